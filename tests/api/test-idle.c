/* SPDX-License-Identifier: MIT */
/*
 * Without requests everything sleeps: no thread runs and no descriptor is readable, even after
 * the deadlines of requests that have ended.
 */
#include <poll.h>
#include <sys/eventfd.h>

#include "idle.h"

#include "fusefs.h"

#define LEN RIG_MIB(1)
#define TIMEOUT_MS 50u

static struct fusefs fs;

static void stop_fuse(void)
{
	fusefs_stop(&fs);
}

static bool readable(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint64_t end = t_in_ms((uint64_t)ms);
	int n;

	do
		n = poll(&p, 1, ms);
	while (n < 0 && errno == EINTR && t_now() < end);
	return n > 0;
}

static struct pst_queue *queue(uint32_t flags)
{
	struct pst_queue_opts o = {
		.sz = sizeof(o),
		.backend = rig_backend,
		.depth = 8,
		.timeout_ms = TIMEOUT_MS,
		.flags = flags,
	};
	struct pst_queue *q = NULL;

	T_OK(pst_queue_new(&o, &q));
	return q;
}

/* Make one request and wait by the descriptor.  On a busy machine it may end by its deadline. */
static void one(struct pst_queue *q, struct pst_file *f, struct pst_mem *m, uint32_t op)
{
	struct pst_io io = rig_io(op, f, m, 0, 0, 65536);
	struct pst_done d;

	T_OK(pst_queue_prep(q, &io));
	T_EQ(pst_queue_submit(q), 1);
	while (pst_queue_reap(q, &d, 0, 1, 0) == 0)
		T_CHECK(readable(pst_queue_fd(q), 5000));
	T_CHECK(d.res == 65536 || d.res == -ETIMEDOUT);
}

static void rests(uint32_t flags)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_queue *q = queue(flags);
	struct pst_file *f;
	struct pst_done d;
	uint64_t passed;
	int fd;

	rig_make(rig_path("data"), 1, LEN);
	f = rig_open(rig_path("data"), RIG_RW);
	for (unsigned i = 0; i < 4; i++)
		one(q, f, m, i & 1 ? PST_OP_WRITE : PST_OP_READ);
	fd = pst_queue_fd(q);
	T_CHECK(fd >= 0);
	/* Take late wake-ups of the kernel, an engine or a thread. */
	idle_rests("pst-");
	while (readable(fd, 0))
		T_EQ(pst_queue_reap(q, &d, 0, 1, 0), 0);
	T_EQ(pst_queue_reap(q, &d, 0, 1, 0), 0);
	for (passed = t_in_ms(2 * TIMEOUT_MS); t_now() < passed;)
		(void)usleep(1000);
	idle_rests("pst-");
	T_CHECK(!readable(fd, 0));
	pst_queue_free(q);
	pst_file_close(f);
	pst_mem_free(m);
}

static void queue_that_is_armed(void)
{
	rests(0);
}

static void queue_armed_once(void)
{
	rests(PST_QUEUE_FD_ONCE);
}

/* A wake-up with nothing in flight wakes one sleep only. */
static void late_wake_up(void)
{
	struct pst_queue *q = queue(PST_QUEUE_FD_ONCE);
	int fd = pst_queue_fd(q);
	struct pst_done d;

	T_CHECK(fd >= 0);
	T_EQ(pst_queue_reap(q, &d, 0, 1, 0), 0);
	T_EQ(eventfd_write(fd, 1), 0);
	T_CHECK(readable(fd, 0));
	T_EQ(pst_queue_reap(q, &d, 0, 1, 0), 0);
	T_CHECK(!readable(fd, 0));
	pst_queue_free(q);
}

/* The timer of an ended request must wake nobody, and must not replace the next request's
 * deadline. */
static void deadline_behind_another(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	int fd = pst_queue_fd(rig_q);
	struct pst_file *f, *hangs;
	struct pst_done d;
	struct pst_io io;
	uint64_t second, end;
	char path[200];

	T_CHECK(fd >= 0);
	if (fusefs_start(&fs, rig_dir) < 0) {
		pst_mem_free(m);
		T_SKIP("%s", fs.why);
	}
	rig_make(rig_path("data"), 1, LEN);
	f = rig_open(rig_path("data"), PST_FILE_READ);
	(void)snprintf(path, sizeof(path), "%s/hang", fs.dir);
	hangs = rig_open(path, PST_FILE_READ);
	io = rig_io(PST_OP_READ, f, m, 0, 0, 4096);
	io.deadline_ns = t_in_ms(TIMEOUT_MS);
	T_OK(pst_queue_prep(rig_q, &io));
	io = rig_io(PST_OP_READ, hangs, m, 0, LEN / 2, 65536);
	io.deadline_ns = second = t_in_ms(20 * TIMEOUT_MS);
	io.user_data = 2;
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 2);
	for (unsigned got = 0; got < 2; got++)
		while (pst_queue_reap(rig_q, &d, 0, 1, 0) == 0)
			T_CHECK(readable(fd, RIG_WAIT_MS));
	T_EQ(d.user_data, 2);
	T_EQ(d.res, -ETIMEDOUT);
	T_CHECK(t_now() >= second);
	pst_file_close(hangs);
	pst_file_close(f);
	pst_mem_free(m);
	rig_q = pst_queue_free(rig_q);
	for (end = t_hang(); rig_stats(NULL).busy > rig_before.busy && t_now() < end;) {
		fusefs_release(&fs);
		(void)usleep(5000);
	}
	fusefs_stop(&fs);
}

int main(void)
{
	rig_init();
	(void)atexit(stop_fuse);
	RIG_RUN(queue_that_is_armed);
	RIG_RUN(queue_armed_once);
	RIG_RUN_BACKENDS(late_wake_up);
	RIG_RUN(deadline_behind_another);
	return rig_done();
}
