/* SPDX-License-Identifier: MIT */
/*
 * After fork() the child is told to leave the parent's objects alone, in every call, and the
 * parent goes on as if nothing had been.
 */
#include <sys/wait.h>

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

/* Every call; what the exit status should be. */
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
	GONE(pst_mem_alloc("host", 1, NULL, &m));
	GONE(pst_mem_alloc("soft", 1, NULL, &m));
	GONE(pst_mem_wrap((uintptr_t)buf, 1, NULL, &m));
	GONE(pst_mem_drain(mem, 0));
	GONE(pst_mem_info(mem, &mi));
	GONE(pst_mem_store(mem, 0, buf, 1));
	GONE(pst_mem_load(mem, 0, buf, 1));
	GONE(pst_mem_export(mem, 0, 1, PST_RIGHT_READ, &g));
	GONE(pst_mem_import(&g, &m));
	GONE(pst_grant_send(0, &g, 0));
	GONE(pst_grant_recv(0, &g, 0));
	GONE(pst_file_open(rig_path("file"), PST_FILE_READ, NULL, &f));
	GONE(pst_file_wrap(0, 0, &f));
	GONE(pst_file_info(file, &fi));
	GONE(pst_queue_new(NULL, &q));
	GONE(pst_prep(rig_q, &io));
	GONE(pst_submit(rig_q));
	GONE(pst_reap(rig_q, &d, 0, 1, 0));
	GONE(pst_queue_fd(rig_q));
	GONE(pst_cancel(rig_q, 1));
	GONE(pst_stats(rig_q, &st));
	GONE(pst_stats(NULL, &st));
	GONE(pst_path_check(file, mem, PST_OP_READ, PST_PATH_DIRECT, &pi));
	GONE(pst_store_check(PST_STORE_THREADS));
	if (m || f || q || pst_queue_free(rig_q) || pst_mem_free(mem) || pst_file_close(file))
		return 2;
	pst_grant_done(&g);
	/* These touch no object. */
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
	mem = rig_alloc(rig_dev, LEN);
	for (unsigned i = 0; i < 20; i++) {
		struct pst_io io = rig_io(PST_OP_READ, file, mem, 0, 0, LEN);
		int status;
		pid_t pid;

		/* With requests in flight and threads at work. */
		T_OK(pst_prep(rig_q, &io));
		T_EQ(pst_submit(rig_q), 1);
		pid = fork();
		if (pid == 0)
			_exit(in_the_child());
		T_CHECK(pid > 0);
		got += (unsigned)pst_reap(rig_q, &d, 0, 1, 0);
		T_EQ(waitpid(pid, &status, 0), pid);
		T_EQ(status, 0);
	}
	for (; got < 20; got++)
		T_EQ(rig_reap1(rig_q).res, LEN);
	T_EQ(rig_mem_differs(mem, 0, LEN, 1, 0), LEN);
	T_EQ(rig_write(file, mem, 0, 0, LEN).res, LEN);
	mem = pst_mem_free(mem);
	file = pst_file_close(file);
}

/* A child that ends, by exit() with its handlers, takes nothing of the parent's along. */
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
		pid = fork(); /* and the child of the child is no better */
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

/* Descriptors of the library do not go through exec(). */
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

int main(void)
{
	rig_init();
	RIG_RUN(child_is_told);
	RIG_RUN(child_exits);
	RIG_RUN(exec_is_fine);
	return rig_done();
}
