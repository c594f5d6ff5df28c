/* SPDX-License-Identifier: MIT */
/*
 * Sleep on a queue's descriptor: every completion and every deadline must wake a sleeper by
 * epoll, even with many queues, threads and epoll sets.
 */
#include "queue_fd.h"

static void no_lost_wake_up(void)
{
	enum { DEPTH = 16, PLACE = 20000 };
	struct pst_queue *q = fd_queue(DEPTH);
	struct pst_mem *m = rig_alloc(rig_dev, DEPTH * PLACE);
	struct pst_file *f;

	rig_make(rig_path("data"), 1, LEN);
	f = rig_open(rig_path("data"), PST_FILE_READ);
	random_batches(q, f, m, 4000, 1, DEPTH, PLACE); /* the file is cached */
	pst_file_close(f);
	f = rig_open(rig_path("data"), PST_FILE_READ | PST_FILE_PLAIN);
	random_batches(q, f, m, 1000, 2, DEPTH, PLACE);
	pst_file_close(f);
	pst_mem_free(m);
	pst_queue_free(q);
}

static void no_lost_wake_up_once(void)
{
	once = true;
	no_lost_wake_up();
	once = false;
}

/* PST_QUEUE_FD_ONCE: pst_queue_fd() arms the descriptor for one sleep. */
static void once_is_once(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_queue *q;
	struct pst_done d;
	struct pst_file *f;
	struct pst_io io;
	int fd;

	once = true;
	q = fd_queue(8);
	once = false;
	rig_make(rig_path("data"), 1, LEN);
	f = rig_open(rig_path("data"), PST_FILE_READ | PST_FILE_PLAIN);
	io = rig_io(PST_OP_READ, f, m, 0, 0, 65536);
	fd = pst_queue_fd(q);
	T_CHECK(fd >= 0 && !sleep_on(fd, 0));
	for (unsigned i = 0; i < 20; i++) {
		/* The descriptor is not armed: a completion wakes nobody. */
		T_OK(pst_queue_prep(q, &io));
		T_EQ(pst_queue_submit(q), 1);
		T_CHECK(!sleep_on(fd, 5));
		T_EQ(pst_queue_fd(q), fd);
		T_CHECK(sleep_on(fd, 5000));
		while (pst_queue_reap(q, &d, 0, 1, 0) == 0) {
			T_EQ(pst_queue_fd(q), fd);
			T_CHECK(sleep_on(fd, 5000));
		}
		T_EQ(d.res, 65536);
		T_CHECK(!sleep_on(fd, 0));
	}
	pst_queue_free(q);
	pst_file_close(f);
	pst_mem_free(m);
}

/* Reads and writes by O_DIRECT, which take a while. */
static void direct_wakes(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	int fd = pst_queue_fd(rig_q);
	struct pst_file *f;
	struct pst_done d;

	T_CHECK(fd >= 0);
	T_EQ(pst_queue_fd(rig_q), fd);
	rig_make(rig_path("data"), 1, LEN);
	f = rig_open(rig_path("data"), RIG_RW);
	for (unsigned i = 0; i < 100; i++) {
		struct pst_io io = rig_io(i & 1 ? PST_OP_WRITE : PST_OP_READ, f, m, i * 4096, 0,
					  65536);
		unsigned wakes = 0;

		io.policy = PST_POLICY2(PST_PATH_DIRECT, PST_PATH_BUFFERED);
		T_OK(pst_queue_prep(rig_q, &io));
		T_EQ(pst_queue_submit(rig_q), 1);
		while (pst_queue_reap(rig_q, &d, 0, 1, 0) == 0) {
			T_CHECK(sleep_on(fd, 5000));
			T_CHECK(wakes++ < 1000);
		}
		T_EQ(d.res, 65536);
	}
	pst_file_close(f);
	pst_mem_free(m);
}

/* The descriptor is readable exactly while completions are left. */
static void level_triggered(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	int fd = pst_queue_fd(rig_q);
	struct pst_done d[8];
	struct pst_file *f;

	T_CHECK(fd >= 0);
	rig_make(rig_path("data"), 1, LEN);
	f = rig_open(rig_path("data"), PST_FILE_READ);
	T_EQ(pst_queue_reap(rig_q, d, 0, 8, 0), 0);
	T_CHECK(!sleep_on(fd, 20));
	for (unsigned i = 0; i < 8; i++) {
		struct pst_io io = rig_io(PST_OP_READ, f, m, i, 0, 1000);

		T_OK(pst_queue_prep(rig_q, &io));
	}
	T_EQ(pst_queue_submit(rig_q), 8);
	for (unsigned got = 0; got < 8; got++) {
		while (pst_queue_reap(rig_q, d, 0, 1, 0) == 0)
			T_CHECK(sleep_on(fd, 5000));
	}
	while (pst_queue_reap(rig_q, d, 0, 8, 0) == 0 && sleep_on(fd, 0))
		; /* wait until spurious wake-ups end */
	T_CHECK(!sleep_on(fd, 20));
	/* A reap that waits does not make the descriptor readable. */
	for (unsigned i = 0; i < 20; i++) {
		struct pst_io io = rig_io(PST_OP_READ, f, m, i, 0, 1000);

		T_EQ(rig_do(rig_q, &io).res, 1000);
	}
	pst_file_close(f);
	pst_mem_free(m);
}

/* Requests that end without any I/O wake the sleeper, too. */
static void ends_wake(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	int fd = pst_queue_fd(rig_q);
	struct pst_done d;
	struct pst_file *f;
	struct pst_io io;

	T_CHECK(fd >= 0);
	rig_make(rig_path("data"), 1, LEN);
	f = rig_open(rig_path("data"), PST_FILE_READ);
	io = rig_io(PST_OP_READ, f, m, 0, 0, 1000);
	T_EQ(pst_queue_reap(rig_q, &d, 0, 1, 0), 0);
	io.policy = PST_POLICY1(PST_PATH_GDS); /* refused: no path */
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 1);
	T_CHECK(sleep_on(fd, 2000));
	T_EQ(pst_queue_reap(rig_q, &d, 0, 1, 0), 1);
	T_EQ(d.res, -EOPNOTSUPP);
	T_EQ(pst_queue_reap(rig_q, &d, 0, 1, 0), 0);
	io.policy = 0;
	io.deadline_ns = 1; /* the deadline has passed */
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 1);
	T_CHECK(sleep_on(fd, 2000));
	T_EQ(pst_queue_reap(rig_q, &d, 0, 1, 0), 1);
	T_EQ(d.res, -ETIMEDOUT);
	T_EQ(pst_queue_reap(rig_q, &d, 0, 1, 0), 0);
	io.deadline_ns = 0; /* will be cancelled */
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_cancel(rig_q, 0), 1);
	T_CHECK(sleep_on(fd, 2000));
	T_EQ(pst_queue_reap(rig_q, &d, 0, 1, 0), 1);
	T_EQ(d.res, -ECANCELED);
	pst_file_close(f);
	pst_mem_free(m);
}

/* The deadline of a request that never ends wakes the sleeper. */
static void deadline_wakes(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	uint64_t deadline, end;
	int fd = pst_queue_fd(rig_q);
	struct pst_done d;
	struct pst_file *f;
	char path[200];

	T_CHECK(fd >= 0);
	fusefs_stop(&fs);
	if (fusefs_start(&fs, rig_dir) < 0) {
		pst_mem_free(m);
		T_SKIP("%s", fs.why);
	}
	(void)snprintf(path, sizeof(path), "%s/hang", fs.dir);
	f = rig_open(path, PST_FILE_READ);
	for (unsigned i = 0; i < 3; i++) {
		struct pst_io io = rig_io(PST_OP_READ, f, m, i * 65536, i * 65536, 65536);

		/* Submit the later deadline first: the earlier one must still wake. */
		io.deadline_ns = t_hang();
		io.user_data = 1;
		T_OK(pst_queue_prep(rig_q, &io));
		T_EQ(pst_queue_submit(rig_q), 1);
		io.deadline_ns = deadline = t_in_ms(100);
		io.user_data = 2;
		io.mem_off += LEN / 2;
		T_OK(pst_queue_prep(rig_q, &io));
		T_EQ(pst_queue_submit(rig_q), 1);
		while (pst_queue_reap(rig_q, &d, 0, 1, 0) == 0)
			T_CHECK(sleep_on(fd, 5000));
		T_EQ(d.res, -ETIMEDOUT);
		T_EQ(d.user_data, 2);
		T_CHECK(t_now() >= deadline && t_now() < deadline + T_HANG_NS);
		/* Only the clock's wake-up ends a cancelled request that hangs. */
		T_EQ(pst_queue_cancel(rig_q, 1), 1);
		end = t_hang();
		while (pst_queue_reap(rig_q, &d, 0, 1, 0) == 0) {
			T_CHECK(sleep_on(fd, 5000));
			T_CHECK(t_now() < end);
		}
		T_EQ(d.res, -ECANCELED);
	}
	pst_file_close(f);
	pst_mem_free(m);
	rig_q = pst_queue_free(rig_q);
	for (end = t_hang(); rig_stats(NULL).busy > rig_before.busy && t_now() < end;) {
		fusefs_release(&fs);
		(void)usleep(5000);
	}
	fusefs_stop(&fs);
}

/*
 * Two reads have more pieces than the queue has parts.  At the deadline of the one that hangs,
 * the other gets its parts and continues without any other event.
 */
static void deadline_of_another_wakes(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_seg seg[2] = {
		{ 0, 0, 500, 1000, 500, 1000 },
		{ 0, LEN / 2, 500, 1000, 500, 1000 },
	};
	struct pst_io io = { .op = PST_OP_READ, .mem = m, .nr_segs = 1 };
	struct pst_queue *q = fd_queue(2);
	int fd = pst_queue_fd(q);
	struct pst_done d;

	T_CHECK(fd >= 0);
	rig_make(rig_path("data"), 1, LEN);
	io.file = rig_open(rig_path("data"), PST_FILE_READ | PST_FILE_PLAIN);
	for (unsigned i = 0; i < 20; i++) {
		unsigned left = 2;

		io.segs = &seg[0];
		io.deadline_ns = 0;
		T_OK(pst_queue_prep(q, &io));
		io.segs = &seg[1];
		io.deadline_ns = t_in_ms(2);
		T_OK(pst_queue_prep(q, &io));
		T_CHECK(pst_queue_submit(q) == 2);
		while (t_now() < io.deadline_ns)
			(void)usleep(500);
		for (; left; left -= (unsigned)pst_queue_reap(q, &d, 0, 1, 0))
			T_CHECK(sleep_on(fd, SLEEP_MS));
	}
	pst_queue_free(q);
	pst_file_close(io.file);
	pst_mem_free(m);
}

/* One thread sleeps on several queues by one epoll set. */
static void many_in_one_epoll(void)
{
	enum { QUEUES = 6, EACH = 200 };
	int ep = epoll_create1(EPOLL_CLOEXEC);
	struct pst_queue *q[QUEUES];
	unsigned sent[QUEUES] = { 0 }, got[QUEUES] = { 0 }, sum = 0;
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_file *f;

	rig_make(rig_path("data"), 1, LEN);
	f = rig_open(rig_path("data"), PST_FILE_READ);
	for (unsigned i = 0; i < QUEUES; i++) {
		struct epoll_event ev = { .events = EPOLLIN, .data.u32 = i };

		q[i] = rig_queue(i & 1 ? rig_backend : PST_BACKEND_AUTO, 8);
		T_CHECK(pst_queue_fd(q[i]) >= 0);
		T_EQ(epoll_ctl(ep, EPOLL_CTL_ADD, pst_queue_fd(q[i]), &ev), 0);
	}
	while (sum < QUEUES * EACH) {
		struct epoll_event ev[4];
		struct pst_done d[4];
		int n;

		for (unsigned i = 0; i < QUEUES; i++) {
			for (unsigned k = 0; sent[i] < EACH && sent[i] - got[i] < 8 && k < 3; k++) {
				struct pst_io io = rig_io(PST_OP_READ, f, m, sent[i] * 512,
							  i * 100000, 4096);

				T_OK(pst_queue_prep(q[i], &io));
				sent[i]++;
			}
			T_CHECK(pst_queue_submit(q[i]) >= 0);
		}
		do
			n = epoll_wait(ep, ev, RIG_NR(ev), 5000);
		while (n < 0 && errno == EINTR);
		T_CHECK(n > 0);
		for (int k = 0; k < n; k++) {
			unsigned i = ev[k].data.u32;
			int r;

			do {
				r = pst_queue_reap(q[i], d, 0, RIG_NR(d), 0);
				T_CHECK(r >= 0);
				for (int j = 0; j < r; j++)
					T_EQ(d[j].res, 4096);
				got[i] += (unsigned)r;
				sum += (unsigned)r;
			} while (r == RIG_NR(d));
		}
	}
	for (unsigned i = 0; i < QUEUES; i++)
		pst_queue_free(q[i]);
	pst_file_close(f);
	pst_mem_free(m);
	(void)close(ep);
}

int main(void)
{
	rig_init();
	(void)atexit(stop_fuse);
	RIG_RUN(no_lost_wake_up);
	RIG_RUN(no_lost_wake_up_once);
	RIG_RUN(once_is_once);
	RIG_RUN(direct_wakes);
	RIG_RUN(level_triggered);
	RIG_RUN(ends_wake);
	RIG_RUN(deadline_wakes);
	RIG_RUN_BACKENDS(deadline_of_another_wakes);
	RIG_RUN(many_in_one_epoll);
	return rig_done();
}
