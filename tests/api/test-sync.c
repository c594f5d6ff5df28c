/* SPDX-License-Identifier: MIT */
/*
 * A sync waits for the earlier writes of its queue, returns the disk's result, and delays no
 * other request.
 */
#include "again.h"
#include "fusefs.h"

#define LEN 65536u

static struct fusefs fs;

static void stop_fuse(void)
{
	fusefs_stop(&fs);
}

static void prep(struct pst_queue *q, uint32_t op, struct pst_file *f, struct pst_mem *m,
		 uint64_t off, uint64_t len, uint64_t user_data)
{
	struct pst_io io = rig_io(op, f, op == PST_OP_SYNC ? NULL : m, off, 0, len);

	io.user_data = user_data;
	T_OK(pst_queue_prep(q, &io));
}

/* Submit all requests in one batch, then each by itself. */
static void after_earlier_writes(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, RIG_MIB(4));
	struct pst_file *f = rig_open(rig_path("file"), RIG_NEW), *g;

	g = rig_open(rig_path("other"), RIG_NEW);
	for (unsigned round = 0; round < 6; round++) {
		unsigned writes = 0, seen = 0;
		struct pst_done d;

		for (unsigned i = 0; i < 24; i++) {
			bool sync = i % 8 == 7;

			prep(rig_q, sync ? PST_OP_SYNC : PST_OP_WRITE, i % 3 ? f : g, m,
			     i * (RIG_MIB(1) + 5000), sync ? 0 : 1 + i * 40000, i);
			if (round & 1)
				T_EQ(pst_queue_submit(rig_q), 1);
		}
		if (!(round & 1))
			T_EQ(pst_queue_submit(rig_q), 24);
		for (unsigned i = 0; i < 24; i++) {
			d = rig_reap1(rig_q);
			T_CHECK(d.res >= 0);
			if (d.op != PST_OP_SYNC) {
				writes++;
				seen |= 1u << d.user_data;
				continue;
			}
			T_EQ(d.res, 0);
			T_EQ(d.prefix, 0);
			T_EQ(d.flags, 0);
			/* All earlier writes are done. */
			for (unsigned k = 0; k < d.user_data; k++)
				T_CHECK(k % 8 == 7 || seen & 1u << k);
		}
		T_EQ(writes, 21);
	}
	pst_file_close(f);
	pst_file_close(g);
	pst_mem_free(m);
}

/* Reads do not delay a sync, and a sync delays no read. */
static void beside_reads(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_file *f;

	rig_make(rig_path("file"), 1, LEN);
	f = rig_open(rig_path("file"), RIG_RW);
	for (unsigned i = 0; i < 40; i++)
		prep(rig_q, i % 4 ? PST_OP_READ : PST_OP_SYNC, f, m, 0, i % 4 ? LEN : 0, i);
	T_EQ(pst_queue_submit(rig_q), 40);
	for (unsigned i = 0; i < 40; i++) {
		struct pst_done d = rig_reap1(rig_q);

		T_EQ(d.res, d.op == PST_OP_SYNC ? 0 : LEN);
	}
	pst_file_close(f);
	pst_mem_free(m);
}

static void kinds(void)
{
	struct pst_file *rd, *wr, *rw = rig_open(rig_path("file"), RIG_NEW);
	struct pst_io io = { .op = PST_OP_SYNC, .flags = PST_IO_DATASYNC };
	struct pst_file *files[3];

	rd = rig_open(rig_path("file"), PST_FILE_READ);
	wr = rig_open(rig_path("file"), PST_FILE_WRITE | PST_FILE_PLAIN);
	files[0] = rd;
	files[1] = wr;
	files[2] = rw;
	for (unsigned i = 0; i < 6; i++) {
		struct pst_done d;

		io.file = files[i % 3];
		io.flags = i < 3 ? PST_IO_DATASYNC : 0;
		io.user_data = i;
		d = rig_do(rig_q, &io);
		T_EQ(d.res, 0);
		T_EQ(d.op, PST_OP_SYNC);
		T_EQ(d.user_data, i);
		T_EQ(d.why, PST_WHY_NONE);
		T_EQ(d.paths, 0);
	}
	for (unsigned i = 0; i < 3; i++)
		pst_file_close(files[i]);
}

/* A write fails: the sync after it still runs, and its result does not turn the write's into
 * success. */
static void after_a_failure(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, RIG_MIB(2));
	struct pst_done d;
	struct pst_file *f;
	unsigned failed = 0;
	char path[200];

	fusefs_stop(&fs);
	if (fusefs_start(&fs, rig_dir) < 0) {
		pst_mem_free(m);
		T_SKIP("%s", fs.why);
	}
	(void)snprintf(path, sizeof(path), "%s/full", fs.dir);
	f = rig_open(path, RIG_RW);
	prep(rig_q, PST_OP_WRITE, f, m, 0, 4096, 1);
	prep(rig_q, PST_OP_WRITE, f, m, RIG_MIB(1) - 4096, 65536, 2);
	prep(rig_q, PST_OP_SYNC, f, m, 0, 0, 3);
	T_EQ(pst_queue_submit(rig_q), 3);
	for (unsigned i = 0; i < 3; i++) {
		d = rig_reap1(rig_q);
		if (d.user_data == 2) {
			/* The kernel's error for an asynchronous write that FUSE cuts short is
			 * EIO. */
			if (rig_backend == PST_BACKEND_THREADS || d.res != -EIO)
				T_EQ(d.res, -ENOSPC);
			T_CHECK(d.prefix <= 4096);
			failed++;
		} else if (d.user_data == 3) {
			T_EQ(i, 2);
			T_CHECK(d.res == 0 || d.res == -ENOSPC || d.res == -ENOSYS);
		} else {
			T_EQ(d.res, 4096);
		}
	}
	T_EQ(failed, 1);
	pst_file_close(f);
	pst_mem_free(m);
	rig_q = pst_queue_free(rig_q);
	fusefs_stop(&fs);
}

/* Adjacent unaligned writes, then a sync: fsync(2) must succeed, and the bytes must be there. */
static void neighbours(void)
{
	enum { NR = 60, PIECE = 100003 };
	struct pst_mem *m = rig_alloc(rig_dev, NR * PIECE);
	uint8_t *buf = malloc(NR * PIECE);

	T_CHECK(buf);
	rig_mem_fill(m, 0, NR * PIECE, 6, 0);
	for (unsigned round = 0; round < 6; round++) {
		uint32_t flags = round & 1 ? RIG_NEW : RIG_RW | PST_FILE_CREATE;
		struct pst_file *f = rig_open(rig_path("side"), flags);
		struct pst_done d;

		for (unsigned i = 0; i < NR; i++) {
			struct pst_io io = rig_io(PST_OP_WRITE, f, m, i * PIECE, i * PIECE, PIECE);

			T_OK(pst_queue_prep(rig_q, &io));
		}
		prep(rig_q, PST_OP_SYNC, f, m, 0, 0, 0);
		T_EQ(pst_queue_submit(rig_q), NR + 1);
		for (unsigned i = 0; i <= NR; i++) {
			d = rig_reap1(rig_q);
			if (d.res < 0)
				rig_show(&d);
			T_EQ(d.res, d.op == PST_OP_SYNC ? 0 : PIECE);
		}
		T_EQ(rig_slurp(rig_path("side"), 0, buf, NR * PIECE), NR * PIECE);
		T_EQ(t_differs(buf, 6, 0, NR * PIECE), NR * PIECE);
		pst_file_close(f);
	}
	free(buf);
	pst_mem_free(m);
}

/* ----------------------------------------------------------------- hanging */

static struct pst_file *fuse_open(const char *name)
{
	char path[200];

	fusefs_stop(&fs);
	if (fusefs_start(&fs, rig_dir) < 0)
		T_SKIP("%s", fs.why);
	(void)snprintf(path, sizeof(path), "%s/%s", fs.dir, name);
	return rig_open(path, RIG_RW);
}

static void prep_by(uint32_t op, struct pst_file *f, struct pst_mem *m, uint64_t off, uint64_t len,
		    uint64_t user_data, uint64_t deadline_ns)
{
	struct pst_io io = rig_io(op, f, m, off, op == PST_OP_SYNC ? 0 : off, len);

	io.user_data = user_data;
	io.deadline_ns = deadline_ns;
	T_OK(pst_queue_prep(rig_q, &io));
}

static void reap(struct pst_done *d, unsigned nr)
{
	T_EQ(pst_queue_reap(rig_q, d, nr, nr, t_in_ms(RIG_WAIT_MS)), nr);
}

static int64_t res_of(const struct pst_done *d, unsigned nr, uint64_t user_data)
{
	for (unsigned i = 0; i < nr; i++)
		if (d[i].user_data == user_data)
			return d[i].res;
	T_FAIL("no completion has user_data %" PRIu64, user_data);
}

/* Let the file system answer until no request is busy. */
static void release_all(struct pst_queue *q)
{
	uint64_t end = t_in_ms(RIG_WAIT_MS);
	struct pst_done d;

	while (rig_stats(q).busy > (q ? 0 : rig_before.busy) && t_now() < end) {
		fusefs_release(&fs);
		(void)usleep(2000);
		if (q)
			(void)pst_queue_reap(q, &d, 0, 1, 0);
	}
	T_CHECK(rig_stats(q).busy <= (q ? 0 : rig_before.busy));
}

/* A write hangs: the sync after it waits until the write ends. */
static void held(void)
{
	struct pst_file *f = fuse_open("hang"), *other;
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	uint64_t end = t_in_ms(RIG_WAIT_MS);
	struct pst_done d[2];
	unsigned n = 0;
	char path[200];

	(void)snprintf(path, sizeof(path), "%s/slow", fs.dir);
	other = rig_open(path, RIG_RW);
	prep_by(PST_OP_WRITE, f, m, 0, 4096, 1, 0);
	prep_by(PST_OP_SYNC, f, NULL, 0, 0, 2, 0);
	T_EQ(pst_queue_submit(rig_q), 2);
	while (fusefs_waiting(&fs) < 1 && t_now() < end)
		(void)usleep(1000);
	/* Later reads of another file complete during the hang, although each takes longer than a
	 * sync. */
	for (unsigned i = 0; i < 4; i++) {
		d[0] = rig_read(other, m, 0, 8192, 4096);
		T_EQ(d[0].user_data, 0);
		T_EQ(d[0].res, 4096);
	}
	while (n < 2 && t_now() < end) {
		int r = pst_queue_reap(rig_q, d + n, 0, 2 - n, t_in_ms(5));

		T_CHECK(r >= 0);
		n += (unsigned)r;
		fusefs_release(&fs);
	}
	T_EQ(n, 2);
	T_EQ(d[0].user_data, 1);
	T_EQ(d[0].res, 4096);
	T_EQ(d[1].user_data, 2);
	T_EQ(d[1].res, 0);
	pst_file_close(other);
	pst_file_close(f);
	pst_mem_free(m);
	fusefs_stop(&fs);
}

/* A sync that waits for a write ends at its deadline or by a cancel, while the write continues. */
static void held_no_longer(void)
{
	struct pst_file *f = fuse_open("hang");
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	uint64_t start = t_now();
	struct pst_done d = { 0 };

	prep_by(PST_OP_WRITE, f, m, 0, 4096, 1, 0);
	prep_by(PST_OP_SYNC, f, NULL, 0, 0, 2, t_in_ms(100));
	T_EQ(pst_queue_submit(rig_q), 2);
	reap(&d, 1);
	T_EQ(d.user_data, 2);
	T_EQ(d.res, -ETIMEDOUT);
	T_EQ(d.flags & PST_DONE_BUSY, 0);
	T_CHECK(t_now() - start >= UINT64_C(100000000));
	T_EQ(rig_stats(rig_q).inflight, 1);
	T_EQ(rig_stats(rig_q).busy, 0);

	/* A cancel ends one sync at once; the other still waits. */
	prep_by(PST_OP_SYNC, f, NULL, 0, 0, 3, 0);
	prep_by(PST_OP_SYNC, f, NULL, 0, 0, 4, 0);
	T_EQ(pst_queue_submit(rig_q), 2);
	T_EQ(pst_queue_cancel(rig_q, 3), 1);
	T_EQ(pst_queue_reap(rig_q, &d, 1, 1, 0), 1);
	T_EQ(d.user_data, 3);
	T_EQ(d.res, -ECANCELED);
	T_EQ(pst_queue_cancel(rig_q, 3), -ENOENT);
	T_EQ(rig_stats(rig_q).inflight, 2);

	/* Cancelling the write starts the other sync. */
	T_EQ(pst_queue_cancel(rig_q, 1), 1);
	reap(&d, 1);
	T_EQ(d.user_data, 1);
	T_EQ(d.res, -ECANCELED);
	while (pst_queue_reap(rig_q, &d, 1, 1, t_in_ms(20)) != 1 && t_now() - start < T_HANG_NS)
		fusefs_release(&fs);
	T_EQ(d.user_data, 4);
	T_EQ(d.res, 0);
	release_all(rig_q);
	pst_file_close(f);
	pst_mem_free(m);
	fusefs_stop(&fs);
}

/* A sync does not wait for a later write that hangs, whatever else pst_queue_reap() waits for. */
static void does_not_wait_for_later_writes(void)
{
	struct pst_file *h = fuse_open("hang");
	struct pst_file *f = rig_open(rig_path("later"), RIG_NEW | PST_FILE_PLAIN);
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_done d[3];

	prep_by(PST_OP_WRITE, f, m, 0, 4096, 1, 0);
	prep_by(PST_OP_SYNC, f, NULL, 0, 0, 2, 0);
	prep_by(PST_OP_WRITE, h, m, 8192, 4096, 3, 0);
	T_EQ(pst_queue_submit(rig_q), 3);
	reap(d, 2);
	T_EQ(res_of(d, 2, 1), 4096);
	T_EQ(res_of(d, 2, 2), 0);
	T_EQ(pst_queue_cancel(rig_q, 3), 1);
	reap(d, 1);
	T_EQ(res_of(d, 1, 3), -ECANCELED);
	release_all(rig_q);
	pst_file_close(f);
	pst_file_close(h);
	pst_mem_free(m);
	fusefs_stop(&fs);
}

/* Free the queue while a sync waits: that does not block, and leaves nothing. */
static void queue_goes_while_held(void)
{
	struct pst_file *f = fuse_open("hang");
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	uint64_t start;

	prep_by(PST_OP_WRITE, f, m, 0, 4096, 1, 0);
	prep_by(PST_OP_SYNC, f, NULL, 0, 0, 2, 0);
	T_EQ(pst_queue_submit(rig_q), 2);
	start = t_now();
	rig_q = pst_queue_free(rig_q);
	T_CHECK(t_now() - start < T_HANG_NS);
	T_CHECK(rig_stats(NULL).inflight <= rig_before.inflight);
	m = pst_mem_free(m);
	f = pst_file_close(f);
	release_all(NULL);
	fusefs_stop(&fs);
}

/* Writes that take 20 ms each; reap them by polling only. */
static void after_slow_writes(void)
{
	struct pst_file *f = fuse_open("slow");
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	uint64_t end = t_in_ms(RIG_WAIT_MS);
	struct pst_done d[9];
	unsigned n = 0;

	for (unsigned i = 0; i < 8; i++)
		prep_by(PST_OP_WRITE, f, m, i * 4096, 4096, i, 0);
	prep_by(PST_OP_SYNC, f, NULL, 0, 0, 8, 0);
	T_EQ(pst_queue_submit(rig_q), 9);
	while (n < 9 && t_now() < end) {
		int r = pst_queue_reap(rig_q, d + n, 0, 9 - n, 0);

		T_CHECK(r >= 0);
		n += (unsigned)r;
	}
	T_EQ(n, 9);
	for (unsigned i = 0; i < 8; i++)
		T_EQ(d[i].res, 4096);
	T_EQ(d[8].user_data, 8);
	T_EQ(d[8].res, 0);
	pst_file_close(f);
	pst_mem_free(m);
	fusefs_stop(&fs);
}

/* -------------------------------------------------------- injected failures */

static void slow_writes(void)
{
	struct pst_file *f = rig_open(rig_path("slow"), RIG_NEW);
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	uint64_t start = t_now();
	struct pst_done d[3];

	prep_by(PST_OP_WRITE, f, m, 0, 4096, 0, 0);
	prep_by(PST_OP_SYNC, f, NULL, 0, 0, 1, 0);
	prep_by(PST_OP_SYNC, f, NULL, 0, 0, 2, 0);
	T_EQ(pst_queue_submit(rig_q), 3);
	reap(d, 3);
	T_CHECK(t_now() - start >= UINT64_C(80000000));
	T_EQ(d[0].user_data, 0);
	T_EQ(d[0].res, 4096);
	T_EQ(d[1].res, 0);
	T_EQ(d[2].res, 0);
	pst_file_close(f);
	pst_mem_free(m);
}

/* Writes fail, and their own completions say so; the sync succeeds. */
static void failed_writes(void)
{
	struct pst_file *f = rig_open(rig_path("failed"), RIG_NEW);
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_done d[3];

	prep_by(PST_OP_WRITE, f, m, 0, 4096, 0, 0);
	prep_by(PST_OP_WRITE, f, m, 8192, 100, 1, 0);
	prep_by(PST_OP_SYNC, f, NULL, 0, 0, 2, 0);
	T_EQ(pst_queue_submit(rig_q), 3);
	reap(d, 3);
	T_EQ(res_of(d, 2, 0), -EIO);
	T_EQ(res_of(d, 2, 1), -EIO);
	T_EQ(d[2].user_data, 2);
	T_EQ(d[2].res, 0);
	T_EQ(rig_stats(rig_q).errors, 2);
	pst_file_close(f);
	pst_mem_free(m);
}

static void fail_with(int err)
{
	struct pst_file *f = rig_open(rig_path("failed"), RIG_NEW);
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_io io = { .op = PST_OP_SYNC, .file = f };

	T_EQ(rig_write(f, m, 0, 0, LEN).res, LEN);
	for (unsigned i = 0; i < 4; i++) {
		struct pst_done d;

		io.flags = i & 1 ? PST_IO_DATASYNC : 0;
		d = rig_do(rig_q, &io);
		T_EQ(d.res, -err);
		T_EQ(d.prefix, 0);
	}
	T_EQ(rig_stats(rig_q).errors, 4);
	pst_file_close(f);
	pst_mem_free(m);
}

/* A failed fsync is reported each time. */
static void failed_syncs(void)
{
	fail_with(EIO);
}

/* A file system may return ECANCELED without any cancel. */
static void canceled_syncs(void)
{
	fail_with(ECANCELED);
}

/* A slow fsync ends at its deadline, and is not busy because it uses no memory. */
static void slow_sync(void)
{
	struct pst_file *f;
	struct pst_done d;

	if (rig_backend == PST_BACKEND_URING)
		T_SKIP("a sync that is slow in the kernel");
	f = rig_open(rig_path("slow-sync"), RIG_NEW);
	prep_by(PST_OP_SYNC, f, NULL, 0, 0, 1, t_in_ms(50));
	T_EQ(pst_queue_submit(rig_q), 1);
	reap(&d, 1);
	T_EQ(d.res, -ETIMEDOUT);
	T_EQ(d.flags & PST_DONE_BUSY, 0);
	prep_by(PST_OP_SYNC, f, NULL, 0, 0, 2, 0);
	T_EQ(pst_queue_submit(rig_q), 1);
	(void)usleep(5000); /* a thread may have begun the sync by then, or not: both are right */
	T_EQ(pst_queue_cancel(rig_q, 2), 1);
	reap(&d, 1);
	T_EQ(d.res, -ECANCELED);
	T_EQ(d.flags & PST_DONE_BUSY, 0);
	pst_file_close(f);
	for (unsigned i = 0; i < 3000 && rig_stats(rig_q).busy; i++) {
		(void)usleep(1000);
		(void)pst_queue_reap(rig_q, &d, 0, 1, 0);
	}
	T_EQ(rig_stats(rig_q).busy, 0);
}

static const struct again cases[] = {
	{ "slow_writes", slow_writes, AGAIN_RUN, "file.write:0:80ms" },
	{ "slow_copies", slow_writes, AGAIN_RUN, "mem.copy:0:20ms,file.write:0:80ms" },
	{ "failed_writes", failed_writes, AGAIN_RUN, "file.write:0:EIO" },
	{ "failed_syncs", failed_syncs, AGAIN_RUN, "file.sync:0:EIO" },
	{ "canceled_syncs", canceled_syncs, AGAIN_RUN, "file.sync:0:ECANCELED" },
	{ "slow_sync", slow_sync, AGAIN_BACKENDS, "file.sync:0:300ms" },
};

int main(int argc, char **argv)
{
	rig_init();
	if (argc > 1)
		return again_child(cases, RIG_NR(cases), argv[1]);
	(void)atexit(stop_fuse);
	RIG_RUN(after_earlier_writes);
	RIG_RUN(beside_reads);
	RIG_RUN_BACKENDS(kinds);
	RIG_RUN(after_a_failure);
	RIG_RUN(neighbours);
	RIG_RUN(held);
	RIG_RUN(held_no_longer);
	RIG_RUN(does_not_wait_for_later_writes);
	RIG_RUN(queue_goes_while_held);
	RIG_RUN(after_slow_writes);
	again_all(cases, RIG_NR(cases));
	return rig_done();
}
