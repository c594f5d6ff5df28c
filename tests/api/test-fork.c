/* SPDX-License-Identifier: MIT */
/*
 * After fork() every call in the child refuses the parent's objects, and the parent keeps working.
 */
#include <pthread.h>
#include <sys/wait.h>

#include "fusefs.h"
#include "rig.h"

#define LEN RIG_MIB(1)

static struct pst_file *file;
static struct pst_mem *mem;

#define GONE(call)                                                                                 \
	do {                                                                                       \
		errno = 4711;                                                                      \
		if ((call) != -EOWNERDEAD || !strstr(pst_error_text(), "fork") || errno != 4711) { \
			fprintf(stderr, "# %s\n", #call);                                          \
			return 1;                                                                  \
		}                                                                                  \
	} while (0)

/* Make every call with the parent's objects.  Return an exit status: 0 if each was refused. */
static int in_the_child(void)
{
	struct pst_device dev = { .sz = sizeof(dev) };
	struct pst_mem_info mi = { .sz = sizeof(mi) };
	struct pst_file_info fi = { .sz = sizeof(fi) };
	struct pst_path_info pi = { .sz = sizeof(pi) };
	struct pst_stats st = { .sz = sizeof(st) };
	struct pst_grant g = { .sz = sizeof(g), .fd = -1 };
	struct pst_io io = rig_io(PST_OP_READ, file, mem, 0, 0, 4096);
	static char buf[4096];
	struct pst_done d;
	struct pst_mem *m = NULL;
	struct pst_file *f = NULL;
	struct pst_queue *q = NULL;

	GONE(pst_device_list(&dev, 1));
	GONE(pst_device_find("host", &dev));
	GONE(pst_device_text("host", buf, sizeof(buf)));
	GONE(pst_mem_alloc("host", 1, NULL, &m));
	GONE(pst_mem_alloc("soft", 1, NULL, &m));
	GONE(pst_mem_wrap((uintptr_t)buf, 1, NULL, &m));
	GONE(pst_mem_drain(mem, 0));
	GONE(pst_mem_info(mem, &mi));
	GONE(pst_mem_copy_in(mem, 0, buf, 1));
	GONE(pst_mem_copy_out(mem, 0, buf, 1));
	GONE(pst_mem_sync(mem));
	GONE(pst_mem_export(mem, 0, 1, PST_RIGHT_READ, &g));
	GONE(pst_mem_import(&g, &m));
	GONE(pst_grant_send(0, &g, 0));
	GONE(pst_grant_recv(0, &g, 0));
	GONE(pst_file_open(rig_path("file"), PST_FILE_READ, NULL, &f));
	GONE(pst_file_wrap(0, 0, NULL, &f));
	GONE(pst_file_info(file, &fi));
	GONE(pst_queue_new(NULL, &q));
	GONE(pst_queue_prep(rig_q, &io));
	GONE(pst_queue_submit(rig_q));
	GONE(pst_queue_reap(rig_q, &d, 0, 1, 0));
	GONE(pst_queue_fd(rig_q));
	GONE(pst_queue_cancel(rig_q, 1));
	GONE(pst_stats(rig_q, &st));
	GONE(pst_stats(NULL, &st));
	GONE(pst_path_check(file, mem, PST_OP_READ, PST_PATH_DIRECT, &pi));
	GONE(pst_check("io", NULL, NULL, 0));
	if (m || f || q || pst_queue_free(rig_q) || pst_mem_free(mem) || pst_file_close(file))
		return 2;
	pst_grant_done(&g);
	/* These calls use no object, so they work. */
	if (!pst_version()[0] || !pst_path_name(1)[0])
		return 3;
	return 0;
}

static void child_is_told(void)
{
	struct pst_done d;
	unsigned got = 0;

	rig_make(rig_path("file"), 1, LEN);
	rig_cold(rig_path("file"));
	file = rig_open(rig_path("file"), RIG_RW);
	mem = rig_alloc(rig_dev, 20 * LEN);
	for (unsigned i = 0; i < 20; i++) {
		struct pst_io io = rig_io(PST_OP_READ, file, mem, 0, i * LEN, LEN);
		int status;
		pid_t pid;

		/* Fork with requests in flight and workers running. */
		T_OK(pst_queue_prep(rig_q, &io));
		T_EQ(pst_queue_submit(rig_q), 1);
		pid = fork();
		if (pid == 0)
			_exit(in_the_child());
		T_CHECK(pid > 0);
		got += (unsigned)pst_queue_reap(rig_q, &d, 0, 1, 0);
		T_EQ(waitpid(pid, &status, 0), pid);
		T_EQ(status, 0);
	}
	for (; got < 20; got++)
		T_EQ(rig_reap1(rig_q).res, LEN);
	for (unsigned i = 0; i < 20; i++)
		T_EQ(rig_mem_differs(mem, i * LEN, LEN, 1, 0), LEN);
	T_EQ(rig_write(file, mem, 0, 0, LEN).res, LEN);
	mem = pst_mem_free(mem);
	file = pst_file_close(file);
}

/* A grandchild is refused as well.  The parent's objects work after both have ended. */
static void child_exits(void)
{
	int status;
	pid_t pid;

	rig_make(rig_path("file"), 1, LEN);
	file = rig_open(rig_path("file"), PST_FILE_READ);
	mem = rig_alloc(rig_dev, LEN);
	T_EQ(rig_read(file, mem, 0, 0, LEN).res, LEN);
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		pid = fork(); /* the grandchild must be refused, too */
		if (pid == 0)
			_exit(in_the_child());
		_exit(waitpid(pid, &status, 0) == pid ? WEXITSTATUS(status) : 9);
	}
	T_EQ(waitpid(pid, &status, 0), pid);
	T_EQ(status, 0);
	T_EQ(rig_read(file, mem, 0, 0, LEN).res, LEN);
	mem = pst_mem_free(mem);
	file = pst_file_close(file);
}

/* exec() must not pass descriptors of the library to the new program. */
static void exec_is_fine(void)
{
	static const char script[] = "for l in /proc/self/fd/*; do readlink $l; done | "
				     "grep -E 'io_uring|eventfd|memfd|/file$' && exit 1; exit 0";
	int status;
	pid_t pid;

	rig_make(rig_path("file"), 1, LEN);
	file = rig_open(rig_path("file"), PST_FILE_READ);
	mem = rig_alloc(rig_dev, LEN);
	T_CHECK(pst_queue_fd(rig_q) >= 0);
	T_EQ(rig_read(file, mem, 0, 0, LEN).res, LEN);
	pid = vfork();
	if (pid == 0) {
		(void)execl("/bin/sh", "sh", "-c", script, (char *)NULL);
		_exit(9);
	}
	T_EQ(waitpid(pid, &status, 0), pid);
	T_EQ(status, 0);
	T_EQ(rig_read(file, mem, 0, 0, LEN).res, LEN);
	mem = pst_mem_free(mem);
	file = pst_file_close(file);
}

/* ------------------------------------------------- while the parent works */

static int wait_for(pid_t pid)
{
	int status = -1;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

static void open_cold(uint64_t len)
{
	rig_make(rig_path("file"), 1, len);
	rig_cold(rig_path("file"));
	file = rig_open(rig_path("file"), RIG_RW);
	mem = rig_alloc(rig_dev, len);
	(void)fflush(stdout);
}

static void close_file(void)
{
	mem = pst_mem_free(mem);
	file = pst_file_close(file);
}

/* Fork with half of the requests in flight and half only prepared: the parent gets all bytes. */
static void requests_in_flight(void)
{
	enum { NR = 32, PIECE = 256 << 10 };
	struct pst_done d[NR];

	open_cold(NR * PIECE);
	for (unsigned round = 0; round < 6; round++) {
		unsigned n = 0;
		pid_t pid;

		rig_mem_fill(mem, 0, NR * PIECE, round & 1 ? 1 : 5, 0);
		rig_cold(rig_path("file"));
		for (unsigned i = 0; i < NR; i++) {
			struct pst_io io = rig_io(round & 1 ? PST_OP_WRITE : PST_OP_READ, file, mem,
						  i * PIECE, i * PIECE, PIECE);

			T_OK(pst_queue_prep(rig_q, &io));
			if (i == NR / 2 - 1)
				T_EQ(pst_queue_submit(rig_q), NR / 2);
		}
		pid = fork();
		if (pid == 0)
			_exit(in_the_child());
		T_EQ(pst_queue_submit(rig_q), NR / 2);
		while (n < NR) {
			int r = pst_queue_reap(rig_q, d, 1, NR, t_in_ms(RIG_WAIT_MS));

			T_CHECK(r > 0);
			for (int i = 0; i < r; i++)
				T_EQ(d[i].res, PIECE);
			n += (unsigned)r;
		}
		T_EQ(rig_mem_differs(mem, 0, NR * PIECE, 1, 0), NR * PIECE);
		T_EQ(wait_for(pid), 0);
	}
	close_file();
}

static struct fusefs fs;

/* A request that hangs in the parent must not keep a child from ending. */
static void beside_a_request_that_hangs(void)
{
	struct pst_done d = { 0 };
	struct pst_io io;
	char path[200];
	pid_t pid;

	if (fusefs_start(&fs, rig_dir) < 0)
		T_SKIP("%s", fs.why);
	(void)snprintf(path, sizeof(path), "%s/hang", fs.dir);
	file = rig_open(path, PST_FILE_READ);
	mem = rig_alloc(rig_dev, 4096);
	io = rig_io(PST_OP_READ, file, mem, 0, 0, 4096);
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 1);
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		(void)alarm(20);
		if (pst_queue_reap(rig_q, &d, 1, 1, PST_NO_DEADLINE) != -EOWNERDEAD)
			_exit(7);
		_exit(in_the_child());
	}
	T_EQ(wait_for(pid), 0);
	T_EQ(pst_queue_reap(rig_q, &d, 0, 1, 0), 0);
	for (unsigned i = 0; i < 500 && d.res != 4096; i++) {
		fusefs_release(&fs);
		(void)pst_queue_reap(rig_q, &d, 1, 1, t_in_ms(20));
	}
	T_EQ(d.res, 4096);
	T_EQ(rig_mem_differs(mem, 0, 4096, FUSEFS_SEED, 0), 4096);
	close_file();
	fusefs_stop(&fs);
}

/* The parent frees its objects while a child still has copies: the child's calls are refused. */
static void freed_while_the_child_lives(void)
{
	int hold[2];
	char c;
	pid_t pid;

	open_cold(LEN);
	T_EQ(rig_read(file, mem, 0, 0, LEN).res, LEN);
	T_EQ(pipe2(hold, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		(void)close(hold[1]);
		_exit(read(hold[0], &c, 1) == 0 ? in_the_child() : 8);
	}
	(void)close(hold[0]);
	close_file();
	rig_q = pst_queue_free(rig_q);
	(void)close(hold[1]);
	T_EQ(wait_for(pid), 0);
}

struct worker {
	struct pst_queue *q;
	_Atomic bool stop;
	_Atomic unsigned bad;
};

static void *worker_main(void *arg)
{
	struct pst_device dev = { .sz = sizeof(dev) };
	struct worker *w = arg;

	while (!w->stop) {
		struct pst_io io = rig_io(PST_OP_READ, file, mem, 0, 0, 4096);
		struct pst_done d = { 0 };
		struct pst_mem *m = NULL;

		w->bad += pst_queue_prep(w->q, &io) != 0 || pst_queue_submit(w->q) != 1;
		w->bad += pst_queue_reap(w->q, &d, 1, 1, t_in_ms(RIG_WAIT_MS)) != 1 ||
			  d.res != 4096;
		w->bad += pst_mem_alloc("soft:0", 4096, NULL, &m) != 0;
		w->bad += pst_device_list(&dev, 1) < 1;
		pst_mem_free(m);
	}
	return NULL;
}

/* Fork while another thread is inside the library and may hold any of its locks. */
static void beside_another_thread(void)
{
	struct worker w = { .q = rig_queue(rig_backend, 4) };
	pthread_t t;

	open_cold(LEN);
	T_EQ(pthread_create(&t, NULL, worker_main, &w), 0);
	for (unsigned i = 0; i < 40; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			(void)alarm(20); /* a deadlock would end the child here */
			_exit(in_the_child());
		}
		w.bad += wait_for(pid) != 0;
	}
	w.stop = true;
	(void)pthread_join(t, NULL);
	T_EQ(w.bad, 0);
	pst_queue_free(w.q);
	close_file();
}

/* A log line whose delivery lasts until go is set. */
struct slow_line {
	_Atomic bool begun, go;
};

static void deliver_slowly(void *arg, int level, const char *line)
{
	struct slow_line *slow = arg;

	(void)level;
	(void)line;
	slow->begun = true;
	while (!slow->go)
		(void)usleep(1000);
}

static void *make_queues(void *arg)
{
	struct slow_line *slow = arg;
	struct pst_queue *q = NULL;

	while (!slow->go && pst_queue_new(NULL, &q) == 0)
		q = pst_queue_free(q);
	return NULL;
}

/* Fork while another thread delivers a log line: the child does not have that thread. */
static void beside_a_log_line(void)
{
	struct slow_line slow = { 0 };
	pthread_t t;
	pid_t pid;
	int status;

	/* Only with io_uring does each new queue log a line. */
	if (rig_backend_check(PST_BACKEND_URING) < 0)
		T_SKIP("io_uring, of which each queue logs a line");
	open_cold(LEN);
	pst_log_set(deliver_slowly, &slow, PST_LOG_DEBUG);
	T_EQ(pthread_create(&t, NULL, make_queues, &slow), 0);
	for (uint64_t until = t_in_ms(RIG_WAIT_MS); !slow.begun && t_now() < until;)
		(void)usleep(1000);
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		(void)alarm(20); /* a deadlock would end the child here */
		errno = 4711;
		pst_log_set(NULL, NULL, 0);
		pst_log_set(deliver_slowly, &slow, PST_LOG_DEBUG);
		_exit(errno == 4711 ? in_the_child() : 6);
	}
	status = wait_for(pid);
	slow.go = true;
	(void)pthread_join(t, NULL);
	pst_log_set(NULL, NULL, 0);
	T_CHECK(slow.begun);
	T_EQ(status, 0);
	close_file();
}

/*
 * Host memory is private: the child's writes stay in the child, and a read of the parent fills the
 * parent's pages, even those that fork() left shared.
 */
static void host_memory_is_the_parents(void)
{
	char *p;
	pid_t pid;

	rig_dev = "host";
	open_cold(LEN);
	p = pst_mem_ptr(mem);
	T_EQ(rig_read(file, mem, 0, 0, LEN).res, LEN); /* the pages may be registered from now on */
	rig_cold(rig_path("file"));
	memset(p, 1, LEN);
	pid = fork();
	if (pid == 0) {
		memset(p, 2, LEN);
		_exit(0);
	}
	T_EQ(rig_read(file, mem, 0, 0, LEN).res, LEN);
	T_EQ(wait_for(pid), 0);
	T_EQ(t_differs(p, 1, 0, LEN), LEN);
	close_file();
}

/* ------------------------------------------------------------- from anew */

/* Act as the program that is started with the argument "work". */
static int work_anew(void)
{
	struct pst_queue *q = NULL;
	struct pst_done d = { 0 };
	struct pst_io io;

	if (pst_queue_new(NULL, &q) < 0 || pst_mem_alloc("soft:0", 4096, NULL, &mem) < 0 ||
	    pst_file_open("/proc/self/exe", PST_FILE_READ, NULL, &file) < 0)
		return 1;
	io = rig_io(PST_OP_READ, file, mem, 0, 0, 4096);
	if (pst_queue_prep(q, &io) < 0 || pst_queue_submit(q) != 1 ||
	    pst_queue_reap(q, &d, 1, 1, PST_NO_DEADLINE) != 1 || d.res != 4096)
		return 2;
	close_file();
	pst_queue_free(q);
	return 0;
}

static void count_lines(void *arg, int level, const char *line)
{
	_Atomic unsigned *lines = arg;

	(void)level;
	(void)line;
	(*lines)++;
}

/*
 * With the argument "first": fork before the first call.  Then both processes may use the library.
 * Setting a log callback does not count as use, and each process gets its own log lines.
 */
static int fork_first(void)
{
	static _Atomic unsigned lines;
	pid_t pid;

	pst_log_set(count_lines, &lines, PST_LOG_DEBUG);
	pid = fork();
	if (pid == 0)
		_exit(work_anew() == 0 && lines ? 0 : 1);
	return work_anew() == 0 && lines && wait_for(pid) == 0 ? 0 : 1;
}

static int run_self(const char *how)
{
	pid_t pid;

	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		(void)execl("/proc/self/exe", "test-fork", how, (char *)NULL);
		_exit(127);
	}
	return wait_for(pid);
}

static void exec_begins_anew(void)
{
	open_cold(LEN);
	T_EQ(rig_read(file, mem, 0, 0, LEN).res, LEN);
	T_EQ(run_self("work"), 0);
	close_file();
}

static void fork_before_the_first_call(void)
{
	T_EQ(run_self("first"), 0);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return strcmp(argv[1], "work") == 0 ? work_anew() : fork_first();
	rig_init();
	RIG_RUN(child_is_told);
	RIG_RUN(child_exits);
	RIG_RUN(exec_is_fine);
	RIG_RUN(requests_in_flight);
	RIG_RUN(beside_a_request_that_hangs);
	RIG_RUN(freed_while_the_child_lives);
	RIG_RUN(beside_another_thread);
	RIG_RUN1(beside_a_log_line);
	RIG_RUN_BACKENDS(host_memory_is_the_parents);
	RIG_RUN(exec_begins_anew);
	RIG_RUN1(fork_before_the_first_call);
	return rig_done();
}
