/* SPDX-License-Identifier: MIT */
/*
 * Every request ends exactly once, at its deadline or when it is cancelled, even if the file system
 * never answers.  A request whose memory or file is still in use is reported as busy.
 */
#include <poll.h>

#include "rig.h"

#include "fusefs.h"

#define LEN 65536u
#define DATA_AT RIG_MIB(2) /* offset in mem for reads and writes of `data' */

static struct fusefs fs;
static struct pst_file *hang, *data;
static struct pst_mem *mem;

static void stop_fuse(void)
{
	fusefs_stop(&fs);
}

/* Wait until the file system has received nr requests. */
static void waits(unsigned nr)
{
	uint64_t end = t_in_ms(RIG_WAIT_MS);

	while (fusefs_waiting(&fs) < nr && t_now() < end)
		(void)usleep(1000);
	T_CHECK(fusefs_waiting(&fs) >= nr);
}

/* Let the file system answer until the memory is quiet.  Answer repeatedly, because the kernel may
 * split a read into several requests. */
static void release(struct pst_mem *m)
{
	uint64_t end = t_hang();

	do
		fusefs_release(&fs);
	while (pst_mem_drain(m, t_in_ms(10)) < 0 && t_now() < end);
	T_OK(pst_mem_drain(m, 0));
}

/* Let the file system answer until no request of the process is busy. */
static void release_all(struct pst_queue *q)
{
	uint64_t end = t_hang();

	while (rig_stats(NULL).busy > rig_before.busy && t_now() < end) {
		fusefs_release(&fs);
		(void)usleep(10000);
		if (q) /* a queue notices the answer only in a call */
			T_EQ(pst_queue_reap(q, &(struct pst_done){ 0 }, 0, 1, 0), 0);
	}
	T_EQ(rig_stats(NULL).busy, rig_before.busy);
}

static void unmount_hang(void)
{
	mem = pst_mem_free(mem);
	hang = pst_file_close(hang);
	data = pst_file_close(data);
	rig_q = pst_queue_free(rig_q);
	rig_quiet();
	fusefs_stop(&fs);
}

static void start(struct pst_queue *q, uint32_t op, struct pst_file *f, uint64_t off, uint64_t len,
		  uint64_t user_data, uint64_t deadline)
{
	/* Reads of `hang' and of `data' use separate parts of mem. */
	struct pst_io io = rig_io(op, f, mem, off, f == data ? DATA_AT : off, len);

	io.user_data = user_data;
	io.deadline_ns = deadline;
	if (op == PST_OP_SYNC)
		io.mem = NULL, io.len = 0;
	T_OK(pst_queue_prep(q, &io));
	T_EQ(pst_queue_submit(q), 1);
}

static void mount_hang(void)
{
	char path[200];

	fusefs_stop(&fs); /* a failed case may have left it mounted */
	if (fusefs_start(&fs, rig_dir) < 0)
		T_SKIP("%s", fs.why);
	(void)snprintf(path, sizeof(path), "%s/hang", fs.dir);
	hang = rig_open(path, RIG_RW);
	rig_make(rig_path("data"), 3, RIG_MIB(1));
	data = rig_open(rig_path("data"), RIG_RW);
	mem = rig_alloc(rig_dev, RIG_MIB(3));
	/* Start the device's engine with a first request: starting may take longer than the
	 * deadlines below. */
	start(rig_q, PST_OP_READ, data, 0, 4096, 0, t_in_ms(RIG_WAIT_MS));
	T_EQ(rig_reap1(rig_q).res, 4096);
}

static struct pst_done reap_by(struct pst_queue *q, uint64_t from, uint64_t min_ms)
{
	struct pst_done d = rig_reap1(q);
	uint64_t ms = (t_now() - from) / 1000000;

	if (ms < min_ms)
		T_FAIL("it took %" PRIu64 " ms", ms);
	return d;
}

/* ---------------------------------------------------------------- deadlines */

static void hung_read(void)
{
	uint64_t t0 = t_now(), t1;
	struct pst_done d;

	mount_hang();
	t0 = t_now();
	start(rig_q, PST_OP_READ, hang, 0, LEN, 7, t_in_ms(300));
	T_EQ(rig_stats(rig_q).inflight, 1);
	d = reap_by(rig_q, t0, 299);
	T_EQ(d.res, -ETIMEDOUT);
	T_EQ(d.user_data, 7);
	T_EQ(d.prefix, 0);
	T_EQ(rig_stats(rig_q).timeouts, 1);
	T_EQ(rig_stats(rig_q).inflight, 0);
	T_EQ(rig_stats(rig_q).busy, 1);
	T_EQ(!!(d.flags & PST_DONE_BUSY), !rig_soft());
	if (rig_soft()) {
		/* The hung read writes to a staging slot, never to the memory. */
		T_OK(pst_mem_drain(mem, 0));
	} else {
		T_EQ(pst_mem_drain(mem, 0), -EBUSY);
		t1 = t_now();
		T_EQ(pst_mem_drain(mem, t_in_ms(50)), -EBUSY);
		T_CHECK(t_now() - t1 >= 49 * 1000000u && t_now() - t1 < T_HANG_NS);
		T_CHECK(pst_error_text()[0]);
		release(mem);
	}
	release_all(rig_q);
	T_EQ(pst_queue_reap(rig_q, &d, 0, 1, 0), 0);
	unmount_hang();
}

static void hung_write(void)
{
	uint64_t t0;
	struct pst_done d;

	mount_hang();
	t0 = t_now();
	/* 500 ms are enough for the write to reach the file system. */
	start(rig_q, PST_OP_WRITE, hang, 4096, LEN, 8, t_in_ms(500));
	d = reap_by(rig_q, t0, 499);
	T_EQ(d.res, -ETIMEDOUT);
	/* The hung write may still change the file. */
	T_CHECK(d.flags & PST_DONE_BUSY);
	T_EQ(pst_mem_drain(mem, 0), rig_soft() ? 0 : -EBUSY);
	release_all(rig_q);
	T_OK(pst_mem_drain(mem, 0));
	unmount_hang();
}

static void others_go_on(void)
{
	struct pst_queue *other;
	struct pst_done d;
	uint64_t t0;

	mount_hang();
	other = rig_queue(rig_backend, 0);
	for (unsigned i = 0; i < 20; i++)
		start(rig_q, PST_OP_READ, hang, i * LEN, LEN, 1000, t_in_ms(600000));
	t0 = t_now();
	for (unsigned i = 0; i < 20; i++) {
		start(rig_q, PST_OP_READ, data, i, 30000, i, t_hang());
		d = rig_reap1(rig_q);
		T_EQ(d.user_data, i);
		T_EQ(d.res, 30000);
		T_EQ(rig_mem_differs(mem, DATA_AT, 30000, 3, i), 30000);
		start(other, PST_OP_READ, data, i, 30000, i, t_hang());
		T_EQ(rig_reap1(other).res, 30000);
	}
	T_CHECK(t_now() - t0 < T_HANG_NS);
	T_EQ(pst_queue_cancel(rig_q, 1000), 20);
	for (unsigned i = 0; i < 20; i++)
		T_EQ(rig_reap1(rig_q).res, -ECANCELED);
	/* New requests work while the cancelled ones still hold their resources. */
	for (unsigned i = 0; i < 20; i++) {
		start(rig_q, PST_OP_READ, data, i, 30000, i, t_hang());
		T_EQ(rig_reap1(rig_q).res, 30000);
	}
	pst_queue_free(other);
	release_all(rig_q);
	unmount_hang();
}

/* Large reads that hang must leave room in the queue for others. */
static void large_ones_leave_room(void)
{
	static struct pst_seg segs[6];
	struct pst_queue *q;
	struct pst_done d;

	mount_hang();
	q = rig_queue(rig_backend, 8);
	mem = pst_mem_free(mem);
	mem = rig_alloc(rig_dev, RIG_MIB(64));
	for (unsigned i = 0; i < 6; i++) {
		struct pst_io io = { .op = PST_OP_READ,
				     .file = hang,
				     .mem = mem,
				     .segs = &segs[i],
				     .nr_segs = 1,
				     .deadline_ns = t_hang() };

		segs[i] = (struct pst_seg){ 0,          RIG_MIB(4 + 9 * i), RIG_MIB(1),
					    RIG_MIB(1), RIG_MIB(1) + 4096,  8 };
		io.user_data = 100;
		T_OK(pst_queue_prep(q, &io));
		T_EQ(pst_queue_submit(q), 1);
	}
	start(q, PST_OP_READ, data, 0, LEN, 1, t_in_ms(RIG_WAIT_MS));
	d = rig_reap1(q);
	T_EQ(d.user_data, 1);
	T_EQ(d.res, LEN);
	T_EQ(pst_queue_cancel(q, 100), 6);
	for (unsigned i = 0; i < 6; i++)
		T_EQ(rig_reap1(q).res, -ECANCELED);
	/* New requests work while the cancelled ones still hold their resources. */
	start(q, PST_OP_READ, data, 0, LEN, 1, t_in_ms(RIG_WAIT_MS));
	T_EQ(rig_reap1(q).res, LEN);
	release_all(q);
	pst_queue_free(q);
	unmount_hang();
}

#ifndef TEST_PLAN_TEXT /* a provider's operations do not use up the worker's I/O context */
/*
 * Hung reads of many pieces use up the operations of a worker's I/O context, so a write of another
 * file cannot start.  After the write's deadline no part of it may start, and its file is quiet.
 */
static void nothing_starts_behind_a_deadline(void)
{
	enum { NR = 4, PIECES = 512, PIECE = 512 };
	static struct pst_seg segs[PIECES];
	struct pst_queue *q[NR];
	struct pst_done d;
	struct pst_io io;
	char buf[LEN];

	if (rig_backend == PST_BACKEND_THREADS) {
		rig_q = pst_queue_free(rig_q);
		T_SKIP("a thread for each operation");
	}
	mount_hang();
	for (unsigned i = 0; i < PIECES; i++)
		segs[i] = (struct pst_seg){ i * 5000, i * PIECE, PIECE, 0, 0, 1 };
	for (unsigned i = 0; i < NR; i++) {
		q[i] = rig_queue(rig_backend, 4);
		io = (struct pst_io){
			.op = PST_OP_READ, .file = hang, .mem = mem, .segs = segs, .nr_segs = PIECES
		};
		T_OK(pst_queue_prep(q[i], &io));
		T_EQ(pst_queue_submit(q[i]), 1);
	}
	waits(rig_soft() ? PIECES : NR);
	rig_mem_fill(mem, DATA_AT, LEN, 8, 0);
	io = rig_io(PST_OP_WRITE, data, mem, 0, DATA_AT, LEN);
	io.deadline_ns = t_in_ms(500);
	if (rig_soft()) /* memory of the software device: use no window */
		io.policy = PST_POLICY2(PST_PATH_STAGED, PST_PATH_BUFFERED);
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 1);
	d = rig_reap1(rig_q);
	T_CHECK(d.res == LEN || d.res == -ETIMEDOUT);
	T_OK(pst_file_drain(data, t_hang()));
	for (unsigned i = 0; i < NR; i++)
		pst_queue_free(q[i]);
	release_all(NULL);
	T_EQ(rig_slurp(rig_path("data"), 0, buf, LEN), LEN);
	T_EQ(t_differs(buf, d.res == LEN ? 8 : 3, 0, LEN), LEN);
	unmount_hang();
}
#endif

/* A write that needs two passes does not wait for a hung read. */
static void waiting_for_two(void)
{
	struct pst_done d;

	mount_hang();
	rig_cold(rig_path("data"));
	start(rig_q, PST_OP_READ, hang, 0, LEN, 1, t_in_ms(2 * RIG_WAIT_MS));
	start(rig_q, PST_OP_WRITE, data, 100, 300000, 2, t_in_ms(RIG_WAIT_MS));
	d = rig_reap1(rig_q);
	T_EQ(d.user_data, 2);
	T_EQ(d.res, 300000);
	T_EQ(pst_queue_cancel(rig_q, 1), 1);
	T_EQ(rig_reap1(rig_q).res, -ECANCELED);
	release_all(rig_q);
	unmount_hang();
}

static void default_timeout(void)
{
	struct pst_queue_opts o = { .sz = sizeof(o), .backend = rig_backend, .timeout_ms = 120 };
	struct pst_queue *q = NULL;
	uint64_t t0;

	mount_hang();
	T_OK(pst_queue_new(&o, &q));
	t0 = t_now();
	start(q, PST_OP_READ, hang, 0, LEN, 1, 0);
	T_EQ(reap_by(q, t0, 119).res, -ETIMEDOUT);
	/* A request's own deadline, or PST_NO_DEADLINE, overrides the default. */
	t0 = t_now();
	start(q, PST_OP_READ, hang, LEN, LEN, 1, t_in_ms(250));
	T_EQ(reap_by(q, t0, 249).res, -ETIMEDOUT);
	start(q, PST_OP_READ, hang, 2 * LEN, LEN, 1, PST_NO_DEADLINE);
	T_EQ(pst_queue_reap(q, &(struct pst_done){ 0 }, 1, 1, t_in_ms(250)), 0);
	T_EQ(pst_queue_cancel(q, 1), 1);
	T_EQ(rig_reap1(q).res, -ECANCELED);
	release_all(q);
	pst_queue_free(q);
	unmount_hang();
}

static void passed_deadline(void)
{
	struct pst_done d;

	mount_hang();
	rig_mem_fill(mem, DATA_AT, LEN, 9, 0);
	start(rig_q, PST_OP_READ, data, 0, LEN, 1, 1);
	d = rig_reap1(rig_q);
	T_EQ(d.res, -ETIMEDOUT);
	T_EQ(d.paths, 0);
	T_EQ(d.flags, 0);
	T_EQ(rig_mem_differs(mem, DATA_AT, LEN, 9, 0), LEN);
	start(rig_q, PST_OP_WRITE, data, 0, LEN, 1, 1);
	T_EQ(rig_reap1(rig_q).res, -ETIMEDOUT);
	start(rig_q, PST_OP_READ, data, 0, LEN, 1, 0);
	T_EQ(rig_reap1(rig_q).res, LEN);
	T_EQ(rig_mem_differs(mem, DATA_AT, LEN, 3, 0), LEN);
	unmount_hang();
}

/* --------------------------------------------------------------- early ends */

static void queue_freed(void)
{
	uint64_t t0;

	mount_hang();
	for (unsigned i = 0; i < 4; i++)
		start(rig_q, i & 1 ? PST_OP_WRITE : PST_OP_READ, hang, i * LEN, LEN, 1, 0);
	start(rig_q, PST_OP_SYNC, hang, 0, 0, 1, 0); /* the sync waits until the writes end */
	waits(1); /* a write is at the file system, where a cancel fails */
	t0 = t_now();
	rig_q = pst_queue_free(rig_q);
	T_CHECK(t_now() - t0 < T_HANG_NS);
	T_CHECK(rig_stats(NULL).busy > rig_before.busy);
	if (!rig_soft())
		T_EQ(pst_mem_drain(mem, 0), -EBUSY);
	release(mem);
	release_all(rig_q);
	unmount_hang();
}

static void memory_and_file_freed(void)
{
	mount_hang();
	start(rig_q, PST_OP_READ, hang, 0, LEN, 1, t_in_ms(100));
	start(rig_q, PST_OP_WRITE, hang, LEN, LEN, 2, t_in_ms(100));
	mem = pst_mem_free(mem);
	hang = pst_file_close(hang);
	T_EQ(rig_reap1(rig_q).res, -ETIMEDOUT);
	T_EQ(rig_reap1(rig_q).res, -ETIMEDOUT);
	release_all(rig_q);
	unmount_hang();
}

static void all_freed(void)
{
	mount_hang();
	start(rig_q, PST_OP_READ, hang, 0, LEN, 1, 0);
	start(rig_q, PST_OP_WRITE, hang, LEN, LEN, 2, 0);
	mem = pst_mem_free(mem);
	hang = pst_file_close(hang);
	rig_q = pst_queue_free(rig_q);
	release_all(rig_q);
	unmount_hang();
}

/* The file system dies: hung requests end with an error. */
static void file_system_dies(void)
{
	struct pst_done d;

	mount_hang();
	start(rig_q, PST_OP_READ, hang, 0, LEN, 1, t_hang());
	waits(1);
	fusefs_stop(&fs);
	d = rig_reap1(rig_q);
	T_CHECK(d.res < 0 && d.res != -ETIMEDOUT);
	T_EQ(d.flags & PST_DONE_BUSY, 0);
	unmount_hang();
}

/* ----------------------------------------------------------------- cancel */

static void cancel_prepared(void)
{
	struct pst_io io;
	struct pst_done d;

	mount_hang();
	io = rig_io(PST_OP_READ, data, mem, 0, 0, LEN);
	io.user_data = 5;
	rig_mem_fill(mem, 0, LEN, 9, 0);
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_cancel(rig_q, 5), 1);
	T_EQ(pst_queue_cancel(rig_q, 5), -ENOENT);
	T_EQ(pst_queue_submit(rig_q), 0);
	d = rig_reap1(rig_q);
	T_EQ(d.res, -ECANCELED);
	T_EQ(d.user_data, 5);
	T_EQ(rig_mem_differs(mem, 0, LEN, 9, 0), LEN);
	T_EQ(rig_stats(rig_q).canceled, 1);
	T_EQ(pst_queue_reap(rig_q, &d, 0, 1, 0), 0);
	unmount_hang();
}

static void cancel_hung(void)
{
	struct pst_done d[4];
	unsigned sum = 0;
	uint64_t t0;
	int again;

	mount_hang();
	start(rig_q, PST_OP_READ, hang, 0, LEN, 5, 0);
	start(rig_q, PST_OP_READ, hang, LEN, LEN, 6, 0);
	start(rig_q, PST_OP_READ, hang, 2 * LEN, LEN, 5, 0);
	T_EQ(pst_queue_cancel(rig_q, 4), -ENOENT);
	t0 = t_now();
	T_EQ(pst_queue_cancel(rig_q, 5), 2);
	again = pst_queue_cancel(rig_q, 5); /* none, one or both requests may have ended by now */
	T_CHECK(again == 1 || again == 2 || again == -ENOENT);
	T_EQ(pst_queue_reap(rig_q, d, 2, 4, t_in_ms(RIG_WAIT_MS)), 2);
	T_CHECK(t_now() - t0 < T_HANG_NS);
	for (unsigned i = 0; i < 2; i++) {
		T_EQ(d[i].res, -ECANCELED);
		T_EQ(d[i].user_data, 5);
	}
	T_EQ(pst_queue_cancel(rig_q, 5), -ENOENT);
	T_EQ(pst_queue_reap(rig_q, d, 1, 4, t_in_ms(150)), 0);
	T_EQ(pst_queue_cancel(rig_q, 6), 1);
	sum = (unsigned)pst_queue_reap(rig_q, d, 1, 4, t_in_ms(RIG_WAIT_MS));
	T_EQ(sum, 1);
	T_EQ(d[0].res, -ECANCELED);
	T_EQ(rig_stats(rig_q).canceled, 3);
	release_all(rig_q);
	unmount_hang();
}

static void cancel_held_sync(void)
{
	struct pst_done d;

	mount_hang();
	start(rig_q, PST_OP_WRITE, hang, 0, LEN, 1, 0);
	start(rig_q, PST_OP_SYNC, data, 0, 0, 2, 0);
	start(rig_q, PST_OP_SYNC, data, 0, 0, 3, t_in_ms(600));
	T_EQ(pst_queue_reap(rig_q, &d, 1, 1, t_in_ms(50)), 0);
	T_EQ(pst_queue_cancel(rig_q, 2), 1);
	d = rig_reap1(rig_q);
	T_EQ(d.user_data, 2);
	T_EQ(d.res, -ECANCELED);
	T_EQ(d.flags, 0);
	d = rig_reap1(rig_q);
	T_EQ(d.user_data, 3);
	T_EQ(d.res, -ETIMEDOUT);
	T_EQ(d.flags, 0);
	T_EQ(pst_queue_cancel(rig_q, 1), 1);
	T_EQ(rig_reap1(rig_q).res, -ECANCELED);
	release_all(rig_q);
	unmount_hang();
}

/* Cancel a read that is already done: it keeps its result, and a second cancel finds nothing. */
static void cancel_too_late(void)
{
	struct pollfd p = { .events = POLLIN };
	struct pst_done d;
	int n;

	mount_hang();
	start(rig_q, PST_OP_READ, data, 0, LEN, 1,
	      0); /* so that a proof, if one is needed, happens in this request */
	T_EQ(rig_reap1(rig_q).res, LEN);
	p.fd = pst_queue_fd(rig_q);
	T_CHECK(p.fd >= 0);
	start(rig_q, PST_OP_READ, data, 0, LEN, 1, 0);
	T_EQ(poll(&p, 1, RIG_WAIT_MS), 1);
	n = pst_queue_cancel(rig_q, 1); /* the read is done, but not reaped */
	T_CHECK(n == 1 || n == -ENOENT);
	d = rig_reap1(rig_q);
	T_EQ(d.res, LEN);
	T_EQ(pst_queue_cancel(rig_q, 1), -ENOENT);
	unmount_hang();
}

/* ---------------------------------------------------------- exactly once */

/* Random requests with random ends: each completes exactly once, and successful ones have the right
 * bytes. */
static void exactly_once(void)
{
	enum { NR = 4000, DEPTH = 32, PLACE = 70000, OWN = 32768 };
	struct pst_queue *q = rig_queue(rig_backend, DEPTH);
	struct pst_mem *m = rig_alloc(rig_dev, (uint64_t)DEPTH * PLACE);
	static uint8_t seen[NR];
	static uint64_t off[NR], len[NR];
	unsigned place[NR], free_places[DEPTH], busy_places[DEPTH], nr_free = DEPTH, nr_busy = 0;
	unsigned sent = 0, got = 0, ends = 0;
	struct pst_file *f;

	memset(seen, 0, sizeof(seen));
	rig_make(rig_path("once"), 4, RIG_MIB(1));
	f = rig_open(rig_path("once"), RIG_RW);
	for (unsigned i = 0; i < DEPTH; i++)
		free_places[i] = i;
	while (got < NR) {
		struct pst_done d[8];
		int n, r;

		while (sent < NR && nr_free && rig_below(8)) {
			unsigned p = free_places[--nr_free];
			struct pst_io io = rig_io(PST_OP_READ, f, m, 0, (uint64_t)p * PLACE, 0);

			place[sent] = p;
			io.len = len[sent] = 1 + rig_below(rig_below(4) ? 5000 : PLACE - 1);
			io.file_off = off[sent] = rig_below(RIG_MIB(1) - io.len);
			io.user_data = sent;
			switch (rig_below(8)) {
			case 0:
				io.op = PST_OP_SYNC;
				io.flags = PST_IO_DATASYNC;
				break;
			case 1:
				/*
				 * Write the same bytes back in place.  Overlapping ranges must not
				 * be written at the same time, so each request has its own.
				 */
				io.op = PST_OP_WRITE;
				io.len = len[sent] = 1 + rig_below(OWN - 1);
				io.file_off = off[sent] = p * OWN + rig_below(OWN - io.len);
				rig_mem_fill(m, io.mem_off, io.len, 4, io.file_off);
				break;
			}
			if (io.op == PST_OP_SYNC)
				io.mem = NULL;
			if (rig_below(4) == 0)
				io.deadline_ns = t_now() + rig_below(2000000);
			r = pst_queue_prep(q, &io);
			if (r == -EAGAIN) { /* some requests are still busy */
				nr_free++;
				break;
			}
			T_OK(r);
			sent++;
			if (rig_below(4) == 0)
				(void)pst_queue_cancel(q,
						       sent - 1 - rig_below(sent > 9 ? 9 : sent));
		}
		T_CHECK(pst_queue_submit(q) >= 0);
		if (sent && rig_below(4) == 0)
			(void)pst_queue_cancel(q, sent - 1 - rig_below(sent > 9 ? 9 : sent));
		n = pst_queue_reap(q, d, (unsigned)rig_below(2), RIG_NR(d), t_in_ms(RIG_WAIT_MS));
		T_CHECK(n >= 0);
		for (int i = 0; i < n; i++) {
			uint64_t u = d[i].user_data;

			T_CHECK(u < sent);
			T_EQ(seen[u]++, 0);
			if (d[i].res < 0) {
				if (d[i].res != -ECANCELED && d[i].res != -ETIMEDOUT)
					rig_show(&d[i]);
				if (d[i].res != -ECANCELED)
					T_EQ(d[i].res, -ETIMEDOUT);
				ends++;
			} else if (d[i].op != PST_OP_SYNC) {
				T_EQ(d[i].res, len[u]);
			}
			if (d[i].res > 0 && d[i].op == PST_OP_READ)
				T_EQ(rig_mem_differs(m, (uint64_t)place[u] * PLACE, len[u], 4,
						     off[u]),
				     len[u]);
			/* A busy request may still write to its place: do not reuse it. */
			if (d[i].flags & PST_DONE_BUSY)
				busy_places[nr_busy++] = place[u];
			else
				free_places[nr_free++] = place[u];
		}
		got += (unsigned)n;
		while (nr_busy && !rig_stats(q).busy)
			free_places[nr_free++] = busy_places[--nr_busy];
	}
	for (unsigned i = 0; i < NR; i++)
		T_EQ(seen[i], 1);
	T_CHECK(ends > 0);
	T_EQ(pst_queue_reap(q, &(struct pst_done){ 0 }, 0, 1, 0), 0);
	T_EQ(rig_stats(q).requests, NR);
	T_EQ(rig_stats(q).timeouts + rig_stats(q).canceled, ends);
	pst_file_close(f);
	pst_mem_free(m);
	pst_queue_free(q);
}

int main(void)
{
	rig_init();
	(void)atexit(stop_fuse);
	RIG_RUN(exactly_once);
	RIG_RUN(hung_read);
	RIG_RUN(hung_write);
	RIG_RUN(others_go_on);
	RIG_RUN(large_ones_leave_room);
#ifndef TEST_PLAN_TEXT
	RIG_RUN(nothing_starts_behind_a_deadline);
#endif
	RIG_RUN(waiting_for_two);
	RIG_RUN(default_timeout);
	RIG_RUN(passed_deadline);
	RIG_RUN(queue_freed);
	RIG_RUN(memory_and_file_freed);
	RIG_RUN(all_freed);
	RIG_RUN(file_system_dies);
	RIG_RUN(cancel_prepared);
	RIG_RUN(cancel_hung);
	RIG_RUN(cancel_held_sync);
	RIG_RUN(cancel_too_late);
	return rig_done();
}
