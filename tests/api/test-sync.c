/* SPDX-License-Identifier: MIT */
/*
 * SYNC: waits for the writes before it in its queue, says what the disk said, and stands in
 * nobody's way.
 */
#include "rig.h"

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
	T_OK(pst_prep(q, &io));
}

/* In one batch, and each one submitted alone. */
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
				T_EQ(pst_submit(rig_q), 1);
		}
		if (!(round & 1))
			T_EQ(pst_submit(rig_q), 24);
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
			/* All writes in front of it are done. */
			for (unsigned k = 0; k < d.user_data; k++)
				T_CHECK(k % 8 == 7 || seen & 1u << k);
		}
		T_EQ(writes, 21);
	}
	pst_file_close(f);
	pst_file_close(g);
	pst_mem_free(m);
}

/* Reads do not hold it, and it holds no reads. */
static void beside_reads(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_file *f;

	rig_make(rig_path("file"), 1, LEN);
	f = rig_open(rig_path("file"), RIG_RW);
	for (unsigned i = 0; i < 40; i++)
		prep(rig_q, i % 4 ? PST_OP_READ : PST_OP_SYNC, f, m, 0, i % 4 ? LEN : 0, i);
	T_EQ(pst_submit(rig_q), 40);
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

/* A write that fails is no success of the sync, and does not stop it either. */
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
	T_EQ(pst_submit(rig_q), 3);
	for (unsigned i = 0; i < 3; i++) {
		d = rig_reap1(rig_q);
		if (d.user_data == 2) {
			/* Of an asynchronous write that FUSE cut short the kernel makes EIO. */
			if (rig_store == PST_STORE_THREADS || d.res != -EIO)
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

/* Unaligned writes that lie side by side, then fsync: the kernel must find nothing to
 * complain about, and the bytes must be there. */
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

			T_OK(pst_prep(rig_q, &io));
		}
		prep(rig_q, PST_OP_SYNC, f, m, 0, 0, 0);
		T_EQ(pst_submit(rig_q), NR + 1);
		for (unsigned i = 0; i <= NR; i++) {
			d = rig_reap1(rig_q);
			if (d.res < 0)
				rig_show(&d);
			T_EQ(d.res, d.op == PST_OP_SYNC ? 0 : PIECE);
		}
		T_EQ(rig_slurp(rig_path("side"), 0, buf, NR * PIECE), NR * PIECE);
		T_EQ(rig_differs(buf, 6, 0, NR * PIECE), NR * PIECE);
		pst_file_close(f);
	}
	free(buf);
	pst_mem_free(m);
}

int main(void)
{
	rig_init();
	(void)atexit(stop_fuse);
	RIG_RUN(after_earlier_writes);
	RIG_RUN(beside_reads);
	RIG_RUN_STORES(kinds);
	RIG_RUN(after_a_failure);
	RIG_RUN(neighbours);
	return rig_done();
}
