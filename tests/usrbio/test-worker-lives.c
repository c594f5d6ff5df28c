/* SPDX-License-Identifier: MIT */
/* Rings, files and buffers are added and removed with requests in flight; signals and forks. */
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "worker_rig.h"

#include "again.h"

/* ------------------------------------------------------------------- lives */

/* Several files share a number; the one that is open for the direction is used. */
static void numbers_shared_and_reused(void)
{
	struct server_file *again = NULL;
	struct usrbio_args a;
	struct client r, w;
	int fd;

	env_begin(NULL);
	env_file(1, FILE_LEN, O_RDONLY);
	env_ring(&r, 8, true, 0, 0);
	env_ring(&w, 8, false, 0, 0);
	a = env_args(1, 0, 0, 4096);
	T_EQ(env_do(&r, &a), 4096);
	T_EQ(env_do(&w, &a), -EACCES);
	fd = open(rig_path("file1"), O_WRONLY | O_CLOEXEC);
	T_OK(server_file_add(my.w, 1, fd, &again));
	T_EQ(env_do(&w, &a), 4096);
	T_EQ(env_do(&r, &a), 4096);
	server_file_remove(my.w, again);
	T_EQ(env_do(&w, &a), -EACCES);
	(void)close(fd);
	for (unsigned i = 0; i < 100; i++) {
		rig_make(rig_path("other"), 100 + i, 8192);
		fd = open(rig_path("other"), O_RDONLY | O_CLOEXEC);
		T_OK(server_file_add(my.w, 7, fd, &again));
		(void)close(fd);
		a.file = 7;
		a.len = 8192;
		T_EQ(env_do(&r, &a), 8192);
		env_check(100 + i, 0, 0, 8192);
		server_file_remove(my.w, again);
		T_EQ(env_do(&r, &a), -EBADF);
	}
	client_free(&r);
	client_free(&w);
	env_end();
}

static void descriptors_that_are_no_files(void)
{
	struct server_file *f = NULL;
	int p[2], fd;

	env_begin(NULL);
	T_EQ(server_file_add(my.w, 1, -1, &f), -EBADF);
	T_EQ(pipe2(p, O_CLOEXEC), 0);
	T_EQ(server_file_add(my.w, 1, p[0], &f), -ENXIO);
	(void)close(p[0]);
	(void)close(p[1]);
	fd = open(rig_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	T_EQ(server_file_add(my.w, 1, fd, &f), -EISDIR);
	(void)close(fd);
	T_CHECK(!f);
	env_end();
}

static void options_that_make_no_sense(void)
{
	struct server_opts many = { .threads = 65 };
	struct server_ring_opts o, good;
	struct server *w = NULL;
	struct client c;

	T_EQ(server_new(&many, &w), -EINVAL);
	T_CHECK(!server_free(NULL));
	env_begin(NULL);
	client_map(&c, 8);
	good = client_opts(&c, true);
#define REFUSED(field, value)                                      \
	do {                                                       \
		o = good;                                          \
		o.field = (value);                                 \
		T_EQ(server_ring_add(my.w, &o, &c.ring), -EINVAL); \
		T_CHECK(!c.ring);                                  \
	} while (0)
	REFUSED(size, 0);
	REFUSED(size, usrbio_ring_size(1) - 1);
	REFUSED(base, (char *)c.base + 4);
	REFUSED(io_depth, 9);
	REFUSED(timeout_ms, -1);
	REFUSED(flags, 4);
	REFUSED(priority, USRBIO_PRIORITIES);
	c.at.sq_tail[0] = 9;
	REFUSED(flags, 0);
	c.at.sq_tail[0] = 0;
	c.at.cq_head[0] = -1;
	REFUSED(flags, 0);
	c.at.cq_head[0] = 0;
	good.io_depth = INT32_MIN;
	client_add(&c, my.w, &good);
	client_free(&c);
	env_end();
}

/* PST_FAULT lets the creation of each queue fail. */
static void no_executor_at_all(void)
{
	struct server_ring_opts o;
	struct client c;

	env_begin(NULL);
	client_map(&c, 8);
	o = client_opts(&c, true);
	for (unsigned i = 0; i < 3; i++)
		T_EQ(server_ring_add(my.w, &o, &c.ring), -ENOMEM);
	T_CHECK(!c.ring && pst_error_text()[0]);
	client_free(&c);
	env_end();
}

static void no_second_executor(void)
{
	struct server_opts o = { .threads = 4 };
	struct client c[3];

	env_begin(&o);
	env_file(1, FILE_LEN, O_RDONLY);
	for (unsigned i = 0; i < RIG_NR(c); i++)
		env_ring(&c[i], 8, true, 0, 0);
	for (unsigned i = 0; i < RIG_NR(c); i++) {
		prep(&c[i], 8);
		server_ring_kick(c[i].ring);
		expect(&c[i], 8, false);
		client_free(&c[i]);
	}
	env_end();
}

/* A ring that is served again continues where it stopped. */
static void rings_come_back(void)
{
	struct server_ring_opts o;
	struct client c;

	env_begin(NULL);
	env_file(1, FILE_LEN, O_RDONLY);
	env_ring(&c, 8, true, 0, 0);
	o = client_opts(&c, true);
	for (unsigned i = 0; i < 50; i++) {
		prep(&c, 5);
		server_ring_kick(c.ring);
		expect(&c, 5, false);
		server_ring_remove(my.w, c.ring);
		c.ring = NULL;
		/* The server finds entries that were added while it did not serve the ring,
		 * without a kick. */
		prep(&c, 2);
		T_OK(server_ring_add(my.w, &o, &c.ring));
		expect(&c, 2, false);
	}
	client_free(&c);
	env_end();
}

/* Remove rings and buffers with requests in flight. */
static void removal_while_busy(void)
{
	struct client good;

	env_begin(&one_thread);
	env_file(1, FILE_LEN, O_RDONLY);
	env_ring(&good, 64, true, 0, 0);
	for (unsigned i = 0; i < 60; i++) {
		struct client c;

		rig_cold(rig_path("file1"));
		env_ring(&c, 256, true, i % 3 ? 0 : 200, 0);
		prep(&c, 199 + i % 2);
		server_ring_kick(c.ring);
		prep(&good, 20);
		server_ring_kick(good.ring);
		if (i % 2)
			(void)usleep((useconds_t)rig_below(2000));
		client_free(&c);
		expect(&good, 20, false);
	}
	client_free(&good);
	env_end();
}

/* The requests never end by themselves: removal cancels them, and does not delay other rings. */
static void removal_while_hanging(void)
{
	struct client c, good;
	uint64_t start;

	need_fuse();
	env_begin(&one_thread);
	env_file(1, FILE_LEN, O_RDONLY);
	fuse_file(2, "hang");
	env_ring(&good, 16, true, 0, 0);
	env_ring(&c, 16, true, 0, 0);
	for (unsigned i = 0; i < 16; i++) {
		struct usrbio_args a = env_args(2, i * 4096, BUF_LEN / 2 + i * 4096, 4096);

		T_CHECK(client_prep(&c, &a) >= 0);
	}
	server_ring_kick(c.ring);
	for (start = t_hang(); fusefs_waiting(&fs) < 16 && t_now() < start;)
		(void)usleep(1000);
	T_EQ(fusefs_waiting(&fs), 16);
	start = t_now();
	client_free(&c);
	T_CHECK(t_now() < start + T_HANG_NS);
	prep(&good, 16);
	server_ring_kick(good.ring);
	expect(&good, 16, false);
	client_free(&good);
	/* The kernel releases the buffer when the file system answers. */
	for (start = t_hang(); pst_mem_drain(my.mem, 0) < 0 && t_now() < start;) {
		fusefs_release(&fs);
		(void)usleep(5000);
	}
	env_end();
	fusefs_stop(&fs);
}

static struct server_file *fuse_number(uint64_t number, const char *name)
{
	struct server_file *f = NULL;
	char path[200];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", fs.dir, name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	T_OK(server_file_add(my.w, number, fd, &f));
	(void)close(fd);
	return f;
}

/*
 * Let one write hang and another one to the same range wait for it, then remove their file and
 * buffer.
 */
static void hang_and_wait(struct client *c, const uint8_t id[USRBIO_ID_LEN])
{
	struct server_ring_stats st;

	env_ring(c, 16, false, 0, 0);
	for (unsigned i = 0; i < 2; i++) {
		struct usrbio_args a = env_args(2, 0, i * 512, 512);

		memcpy(a.buf_id, id, sizeof(a.buf_id));
		a.user_data = i;
		T_CHECK(client_prep(c, &a) >= 0);
		server_ring_kick(c->ring);
		if (!c->never_help)
			(void)server_ring_help(c->ring);
		taken(c);
		/* Wait for a pass to end: the write is then started, or waits. */
		server_ring_stats(c->ring, &st);
	}
}

/* Expect the waiting write's completion first, then the hanging one's. */
static void expect_both(struct client *c, int64_t second, int64_t first)
{
	struct usrbio_cqe q;

	T_EQ(client_wait(c, &q, 1, 1, RIG_WAIT_MS), 1);
	T_EQ(q.user_data, 1);
	T_EQ(q.result, second);
	T_EQ(release_until(c, &q, 1), 1);
	T_EQ(q.user_data, 0);
	T_EQ(q.result, first);
	client_free(c);
}

/*
 * Remove the file of a number while a write waits, with another file of the same number: the write
 * goes to that file.  Return false if the kernel delayed the write: io-wq serialises buffered
 * writes to inodes with the same hash, of which there are 64.
 */
static bool goes_to_the_other(void)
{
	int fd = memfd_create("other", MFD_CLOEXEC);
	struct server_file *f, *other = NULL;
	struct usrbio_cqe q[2];
	struct client c;
	bool went;

	T_CHECK(fd >= 0);
	T_OK(server_file_add(my.w, 2, fd, &other));
	(void)close(fd);
	f = fuse_number(2, "hang");
	hang_and_wait(&c, my.id);
	server_file_remove(my.w, f);
	went = client_wait(&c, q, 1, 1, 5000) == 1;
	if (went)
		T_EQ(q[0].user_data, 1);
	T_EQ(release_until(&c, q + went, went ? 1 : 2), went ? 1 : 2);
	T_EQ(q[0].result, 512);
	T_EQ(q[1].result, 512);
	client_free(&c);
	server_file_remove(my.w, other);
	return went;
}

static void removal_of_what_requests_name(void)
{
	uint8_t id[USRBIO_ID_LEN] = { 4 };
	struct server_buffer *b = NULL;
	struct server_file *f;
	struct client c;

	need_fuse();
	env_begin(&one_thread);
	f = fuse_number(2, "hang");
	hang_and_wait(&c, my.id);
	server_file_remove(my.w, f);
	expect_both(&c, -EBADF, 512);

	for (unsigned tries = 0; !goes_to_the_other(); tries++)
		T_CHECK(tries < 4);

	f = fuse_number(2, "hang");
	T_OK(server_buffer_add(my.w, id, my.mem, BUF_LEN, 0, &b));
	hang_and_wait(&c, id);
	server_buffer_remove(my.w, b);
	expect_both(&c, -EINVAL, 512);
	server_file_remove(my.w, f);
	env_end();
	fusefs_stop(&fs);
}

struct storm {
	pthread_t thread;
	unsigned idx;
	int fd;
	uint64_t random;
	uint8_t id[USRBIO_ID_LEN];
	bool good;
};

/* Prepare eight random reads. */
static void storm_prep(struct storm *s, struct client *c)
{
	for (unsigned k = 0; k < 8; k++) {
		struct usrbio_args a = env_args(50, 0, s->idx * 65536 + k * 4096, 4096);

		s->random ^= s->random << 13;
		s->random ^= s->random >> 7;
		s->random ^= s->random << 17;
		a.file_off = s->random % (FILE_LEN - 4096);
		memcpy(a.buf_id, s->id, sizeof(a.buf_id));
		(void)client_prep(c, &a);
	}
	server_ring_kick(c->ring);
}

/* Create, use and remove a ring. */
static bool storm_ring(struct storm *s, struct client *c, unsigned round)
{
	struct server_ring_opts o;
	struct usrbio_cqe q[8];
	unsigned n;

	client_map(c, 24);
	o = client_opts(c, true);
	o.io_depth = round % 3 == 0 ? 4 : round % 3 == 1 ? 0 : -4;
	o.priority = round % USRBIO_PRIORITIES;
	o.timeout_ms = 1;
	c->w = my.w;
	c->never_help = round & 1;
	if (server_ring_add(my.w, &o, &c->ring) < 0)
		return false;
	for (unsigned i = 0; i < 12; i++) {
		storm_prep(s, c);
		n = client_wait(c, q, 8, 8, RIG_WAIT_MS);
		for (unsigned k = 0; k < n; k++)
			if (q[k].result != 4096)
				return false;
		if (n != 8)
			return false;
	}
	/* Remove it with some requests in flight. */
	if (round % 4 == 0)
		storm_prep(s, c);
	client_free(c);
	return true;
}

/* Thread: create and remove rings, files and a buffer all the time. */
static void *storm(void *arg)
{
	struct storm *s = arg;

	for (unsigned round = 0; s->good && round < (RIG_TSAN ? 3 : 50); round++) {
		struct server_buffer *b = NULL;
		struct server_file *f = NULL;
		struct client c;

		s->good = server_file_add(my.w, 50, s->fd, &f) == 0 &&
			  server_buffer_add(my.w, s->id, my.mem, BUF_LEN, 0, &b) == 0 &&
			  storm_ring(s, &c, round);
		if (!s->good)
			break;
		server_file_remove(my.w, f);
		server_buffer_remove(my.w, b);
	}
	return NULL;
}

static void everything_comes_and_goes(void)
{
	struct storm s[4];
	struct server_opts o = { .threads = 2 };
	int fd;

	env_begin(&o);
	env_file(1, FILE_LEN, O_RDONLY);
	fd = open(rig_path("file1"), O_RDONLY | O_CLOEXEC);
	T_CHECK(fd >= 0);
	for (unsigned i = 0; i < RIG_NR(s); i++) {
		s[i] = (struct storm){
			.idx = i,
			.fd = fd,
			.random = 88172645463325252u + i,
			.id = { 9, (uint8_t)i },
			.good = true,
		};
		T_EQ(pthread_create(&s[i].thread, NULL, storm, &s[i]), 0);
	}
	for (unsigned i = 0; i < RIG_NR(s); i++)
		T_EQ(pthread_join(s[i].thread, NULL), 0);
	for (unsigned i = 0; i < RIG_NR(s); i++)
		T_CHECK(s[i].good);
	(void)close(fd);
	env_end();
}

/* Thread: start cold reads by helping, and end. */
static void *start_and_end(void *arg)
{
	struct client *c = arg;

	(void)server_ring_help(c->ring);
	return NULL;
}

/* Requests that a client's thread started continue after the thread's end. */
static void clients_end_before_their_requests(void)
{
	struct client c;

	env_begin(&one_thread);
	env_file(1, FILE_LEN, O_RDONLY);
	env_ring(&c, 256, true, 0, 0);
	for (unsigned i = 0; i < 30; i++) {
		pthread_t thread;

		rig_cold(rig_path("file1"));
		prep(&c, 100);
		T_EQ(pthread_create(&thread, NULL, start_and_end, &c), 0);
		T_EQ(pthread_join(thread, NULL), 0);
		server_ring_kick(c.ring);
		c.never_help = true;
		expect(&c, 100, false);
	}
	client_free(&c);
	env_end();
}

static struct server_ring *handler_ring;

static void on_alarm(int sig)
{
	int saved = errno;

	(void)sig;
	errno = 4711;
	server_ring_kick(handler_ring);
	if (errno != 4711)
		abort();
	errno = saved;
}

/* A signal handler kicks in the middle of any call. */
static void kicks_by_a_handler(void)
{
	struct itimerval every = { { 0, 300 }, { 0, 300 } }, never = { { 0, 0 }, { 0, 0 } };
	struct sigaction sa = { .sa_handler = on_alarm, .sa_flags = SA_RESTART }, old;
	uint64_t end;
	struct client c;

	env_begin(NULL);
	env_file(1, FILE_LEN, O_RDONLY);
	env_ring(&c, 64, true, 0, 0);
	handler_ring = c.ring;
	T_EQ(sigaction(SIGALRM, &sa, &old), 0);
	T_EQ(setitimer(ITIMER_REAL, &every, NULL), 0);
	for (end = t_in_ms(300); t_now() < end;) {
		prep(&c, 10);
		expect(&c, 10, false);
	}
	T_EQ(setitimer(ITIMER_REAL, &never, NULL), 0);
	T_EQ(sigaction(SIGALRM, &old, NULL), 0);
	client_free(&c);
	env_end();
}

/* ------------------------------------------------------------------ forks */

static int in_the_child(struct client *c)
{
	struct server_ring_stats st = { .requests = 1 };
	struct server_ring_opts o = client_opts(c, true);
	struct server_buffer *b;
	struct server_file *f;
	struct server_ring *r;
	struct server *w;

	server_ring_kick(c->ring);
	server_ring_stats(c->ring, &st);
	if (server_ring_help(c->ring) || st.requests)
		return 1;
	if (server_new(NULL, &w) != -EOWNERDEAD)
		return 2;
	if (server_file_add(my.w, 1, 0, &f) != -EOWNERDEAD)
		return 3;
	if (server_buffer_add(my.w, my.id, my.mem, 1, 0, &b) != -EOWNERDEAD)
		return 4;
	if (server_ring_add(my.w, &o, &r) != -EOWNERDEAD)
		return 5;
	server_ring_remove(my.w, c->ring);
	server_file_remove(my.w, my.files[0]);
	server_buffer_remove(my.w, my.buffer);
	return server_free(my.w) ? 6 : 0;
}

static void U15_fork(void)
{
	struct client c;

	env_begin(NULL);
	env_file(1, FILE_LEN, O_RDONLY);
	env_ring(&c, 64, true, 0, 0);
	for (unsigned i = 0; i < 20; i++) {
		int status = -1;
		pid_t pid;

		prep(&c, 30);
		server_ring_kick(c.ring);
		pid = fork();
		if (pid == 0)
			_exit(in_the_child(&c));
		expect(&c, 30, false);
		T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
		T_EQ(status, 0);
	}
	client_free(&c);
	env_end();
}

/* ------------------------------------------------------------------- main */

static const struct again cases[] = {
	{ "no_executor_at_all", no_executor_at_all, AGAIN_ONCE,
	  "file.context:0:ENOMEM,file.uring:0:EPERM" },
	{ "no_second_executor", no_second_executor, AGAIN_ONCE, "file.context:3:EMFILE" },
};

int main(int argc, char **argv)
{
	rig_init();
	(void)atexit(stop_fuse);
	if (argc > 1)
		return again_child(cases, RIG_NR(cases), argv[1]);
	BOTH(numbers_shared_and_reused);
	rig_run1("descriptors_that_are_no_files", descriptors_that_are_no_files);
	rig_run1("options_that_make_no_sense", options_that_make_no_sense);
	BOTH(rings_come_back);
	BOTH(removal_while_busy);
	BOTH(removal_while_hanging);
	BOTH(removal_of_what_requests_name);
	rig_run1("everything_comes_and_goes", everything_comes_and_goes);
	rig_run1("clients_end_before_their_requests", clients_end_before_their_requests);
	BOTH(kicks_by_a_handler);
	BOTH(U15_fork);
	again_all(cases, RIG_NR(cases));
	return rig_done();
}
