/* SPDX-License-Identifier: MIT */
/*
 * Small reads in file order are left to the kernel's read-ahead.  Other reads stay with O_DIRECT.
 */
#include <pthread.h>

#include "rig.h"

#define SEED 23
#define LEN RIG_MIB(8)
#define PIECE 4096u
#define FEW 3 /* reads by O_DIRECT before the order can be known */

#define BIT(name) PST_PATH_BIT(PST_PATH_##name)
#define FILE_HOPS (BIT(DIRECT) | BIT(CACHED) | BIT(BUFFERED))

static struct pst_file *file;
static struct pst_mem *mem;

static void close_file(void)
{
	file = pst_file_close(file);
	mem = pst_mem_free(mem);
}

/* Drop the file from the page cache.  Read it first: pages of a read-ahead in flight cannot be
 * dropped. */
static void cold(void)
{
	rig_warm(rig_path("file"));
	rig_cold(rig_path("file"));
}

/* Open a file on a mount where O_DIRECT is proven, then drop it from the page cache: the plain
 * reads of the proof filled it. */
static void open_cold(uint64_t len)
{
	struct pst_file_info info;
	struct pst_done d;

	rig_make(rig_path("file"), SEED, len);
	rig_cold(rig_path("file"));
	file = rig_open(rig_path("file"), RIG_R);
	mem = rig_alloc(rig_dev, LEN);
	info = rig_file_info(file);
	if (!info.direct) {
		close_file();
		T_SKIP("O_DIRECT on %s", info.fs);
	}
	d = rig_read(file, mem, 0, 0, RIG_MIB(1));
	T_CHECK(d.res > 0);
	cold();
}

/*
 * Read once by the queue, and check that the bytes are right and that why is 0. Return the file
 * hops.
 */
static uint32_t ask_by(struct pst_queue *q, struct pst_mem *m, const struct pst_io *how,
		       uint64_t off, uint64_t len)
{
	struct pst_io io = *how;
	struct pst_done d;

	io.op = PST_OP_READ;
	io.file = file;
	io.mem = m;
	io.file_off = off;
	io.len = len;
	d = rig_do(q, &io);
	if (d.res != (int64_t)len || (d.why != PST_WHY_NONE && d.why != PST_WHY_MEMLOCK))
		rig_show(&d);
	T_EQ(d.res, len);
	T_CHECK(d.why == PST_WHY_NONE || d.why == PST_WHY_MEMLOCK);
	T_EQ(rig_mem_differs(m, 0, len, SEED, off), len);
	return d.paths & FILE_HOPS;
}

static uint32_t ask(uint64_t off, uint64_t len)
{
	return ask_by(rig_q, mem, &(struct pst_io){ 0 }, off, len);
}

/*
 * Check that reads in order stop using O_DIRECT once the order is known.  Whether a read then waits
 * (BUFFERED) or finds its bytes (CACHED) depends on the disk.
 */
static void goes_ahead(const struct pst_io *how, uint64_t off, uint64_t len, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++, off += len) {
		uint32_t hops = ask_by(rig_q, mem, how, off, len);

		T_EQ(hops & BIT(DIRECT), i < FEW ? BIT(DIRECT) : 0);
		T_EQ(!(hops & (BIT(CACHED) | BIT(BUFFERED))), i < FEW);
	}
}

/* ---------------------------------------------------------- front to back */

static void sequential(void)
{
	static const unsigned sizes[] = { 4096, 16384, 65536, 131072 };

	open_cold(LEN);
	for (unsigned i = 0; i < RIG_NR(sizes); i++) {
		goes_ahead(&(struct pst_io){ 0 }, i * RIG_MIB(2), sizes[i],
			   (unsigned)(RIG_MIB(1) / sizes[i]));
		cold();
	}
	close_file();
}

/* A strict request also goes through the page cache here, because that is the better path. */
static void strict(void)
{
	open_cold(LEN);
	goes_ahead(&(struct pst_io){ .flags = PST_IO_STRICT }, 0, PIECE, 64);
	close_file();
}

static void checksums(void)
{
	open_cold(LEN);
	goes_ahead(&(struct pst_io){ .flags = PST_IO_CRC32C }, RIG_MIB(1), PIECE, 64);
	close_file();
}

/* An unaligned read has no edges, because it no longer uses O_DIRECT. */
static void unaligned(void)
{
	struct pst_done d;

	open_cold(LEN);
	for (unsigned i = 0; i < 100; i++) {
		d = rig_read(file, mem, 777 + i * 1000, 0, 1000);
		T_EQ(d.res, 1000);
		T_EQ(rig_mem_differs(mem, 0, 1000, SEED, 777 + i * 1000), 1000);
		if (i < FEW)
			continue;
		T_EQ(d.paths & BIT(DIRECT), 0);
		T_CHECK(d.why == PST_WHY_NONE || d.why == PST_WHY_MEMLOCK);
	}
	close_file();
}

static void interleaved(void)
{
	static const unsigned regions[] = { 4, 16 };

	for (unsigned n = 0; n < RIG_NR(regions); n++) {
		uint64_t apart = LEN / regions[n];
		struct pst_queue *q;

		open_cold(LEN);
		q = rig_queue(rig_backend, 0); /* a new queue, which has seen no reads */
		for (unsigned i = 0; i < 32; i++)
			for (unsigned k = 0; k < regions[n]; k++) {
				uint32_t hops = ask_by(q, mem, &(struct pst_io){ 0 },
						       k * apart + i * PIECE, PIECE);

				T_EQ(!!(hops & BIT(DIRECT)), i < FEW);
			}
		q = pst_queue_free(q);
		close_file();
	}
}

/* One of several threads, each with its own part of the file and its own queue. */
struct reader {
	pthread_t thread;
	struct pst_queue *q;
	struct pst_mem *mem;
	uint64_t off;
	unsigned nr_bad, nr_direct;
};

static void *read_part(void *arg)
{
	struct reader *r = arg;
	struct pst_done d;

	for (unsigned i = 0; i < 64; i++) {
		struct pst_io io = rig_io(PST_OP_READ, file, r->mem, r->off + i * PIECE, i * PIECE,
					  PIECE);

		if (pst_queue_prep(r->q, &io) < 0 || pst_queue_submit(r->q) != 1 ||
		    pst_queue_reap(r->q, &d, 1, 1, t_in_ms(RIG_WAIT_MS)) != 1 || d.res != PIECE)
			r->nr_bad++;
		r->nr_direct += i >= FEW && (d.paths & BIT(DIRECT));
	}
	return NULL;
}

static void threads(void)
{
	struct reader r[4] = { 0 };

	open_cold(LEN);
	for (unsigned i = 0; i < 4; i++) {
		r[i].q = rig_queue(rig_backend, 0);
		r[i].mem = rig_alloc(rig_dev, 64 * PIECE);
		r[i].off = i * LEN / 4;
	}
	for (unsigned i = 0; i < 4; i++)
		T_EQ(pthread_create(&r[i].thread, NULL, read_part, &r[i]), 0);
	for (unsigned i = 0; i < 4; i++)
		(void)pthread_join(r[i].thread, NULL);
	for (unsigned i = 0; i < 4; i++) {
		T_EQ(r[i].nr_bad, 0);
		T_EQ(r[i].nr_direct, 0);
		T_EQ(rig_mem_differs(r[i].mem, 0, 64 * PIECE, SEED, r[i].off), 64 * PIECE);
		r[i].q = pst_queue_free(r[i].q);
		r[i].mem = pst_mem_free(r[i].mem);
	}
	close_file();
}

/* Requests of several pieces: in two regions, or spread in one region. */
static void segments(void)
{
	struct pst_seg segs[3];
	struct pst_done d;

	open_cold(LEN);
	for (unsigned i = 0; i < 20; i++) {
		struct pst_io io = rig_io(PST_OP_READ, file, mem, 0, 0, 0);

		segs[0] = (struct pst_seg){ .file_off = i * 2 * PIECE, .len = PIECE };
		segs[1] = (struct pst_seg){ .file_off = (i * 2 + 1) * PIECE,
					    .mem_off = 5 * PIECE,
					    .len = PIECE };
		segs[2] = (struct pst_seg){ .file_off = LEN / 2 + i * PIECE,
					    .mem_off = 9 * PIECE,
					    .len = PIECE };
		io.segs = segs;
		io.nr_segs = 3;
		d = rig_do(rig_q, &io);
		T_EQ(d.res, 3 * PIECE);
		for (unsigned k = 0; k < 3; k++)
			T_EQ(rig_mem_differs(mem, segs[k].mem_off, PIECE, SEED, segs[k].file_off),
			     PIECE);
		if (i < FEW)
			T_EQ(d.paths & FILE_HOPS, BIT(DIRECT));
		if (i >= 3 * FEW)
			T_EQ(d.paths & BIT(DIRECT), 0);
	}
	close_file();
}

/* ---------------------------------------------------------- what is not that */

static void random_order(void)
{
	open_cold(LEN);
	for (unsigned i = 0; i < 64; i++)
		T_EQ(ask((uint64_t)(i * 37 % 64) * PIECE, PIECE), BIT(DIRECT));
	close_file();
}

static void backwards(void)
{
	open_cold(LEN);
	for (unsigned i = 64; i-- > 0;)
		T_EQ(ask((uint64_t)i * PIECE, PIECE), BIT(DIRECT));
	close_file();
}

/* Read with gaps, as a program does that reads one column of a table. */
static void strided(void)
{
	open_cold(LEN);
	for (unsigned i = 0; i < 64; i++)
		T_EQ(ask((uint64_t)i * 3 * PIECE, PIECE), BIT(DIRECT));
	close_file();
}

static void large(void)
{
	open_cold(LEN);
	for (unsigned i = 0; i < 16; i++)
		T_EQ(ask(i * LEN / 16, LEN / 16), BIT(DIRECT));
	close_file();
}

/* Reads at other offsets must neither end the sequence nor count as part of it. */
static void astray(void)
{
	uint64_t off = 0;

	open_cold(LEN);
	for (unsigned i = 0; i < 32; i++, off += PIECE)
		T_EQ(!!(ask(off, PIECE) & BIT(DIRECT)), i < FEW);
	cold();
	for (unsigned i = 0; i < 32; i++)
		T_EQ(ask(LEN / 2 + (uint64_t)(i * 37 % 64) * PIECE, PIECE), BIT(DIRECT));
	close_file();
}

/* Cached reads in random order must have no effect on the choice of paths: later uncached reads in
 * order are left to read-ahead. */
static void half_warm(void)
{
	static char buf[RIG_MIB(1)];

	open_cold(LEN);
	T_EQ(rig_slurp(rig_path("file"), 0, buf, sizeof(buf)), sizeof(buf));
	for (unsigned i = 0; i < 32; i++) {
		uint32_t hops = ask((uint64_t)(i * 37 % 64) * PIECE, PIECE);

		if (i >= 16)
			T_EQ(hops, BIT(CACHED));
	}
	cold();
	for (unsigned i = 0; i < 64; i++) {
		uint32_t hops = ask(LEN / 2 + i * PIECE, PIECE);

		if (i >= 3 * FEW)
			T_EQ(hops & BIT(DIRECT), 0);
	}
	close_file();
}

/* Many concurrent reads stay with O_DIRECT: they keep the disk busy without read-ahead. */
static void many_at_once(void)
{
	struct pst_done d[32];

	open_cold(LEN);
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < 32; i++) {
			uint64_t off = (round * 32 + i) * UINT64_C(65536);
			struct pst_io io = rig_io(PST_OP_READ, file, mem, off, off, 65536);

			T_OK(pst_queue_prep(rig_q, &io));
		}
		T_EQ(pst_queue_submit(rig_q), 32);
		T_EQ(pst_queue_reap(rig_q, d, 32, 32, t_in_ms(RIG_WAIT_MS)), 32);
		for (unsigned i = 0; i < 32; i++) {
			T_EQ(d[i].res, 65536);
			T_EQ(d[i].paths & FILE_HOPS, BIT(DIRECT));
		}
	}
	T_EQ(rig_mem_differs(mem, 0, RIG_MIB(4), SEED, 0), RIG_MIB(4));
	/* Now read one at a time. The disk counts as busy for some more reads. */
	for (unsigned i = 0; i < 32; i++) {
		uint32_t hops = ask(RIG_MIB(4) + i * UINT64_C(65536), 65536);

		if (i < FEW || i >= 8 * FEW)
			T_EQ(!!(hops & BIT(DIRECT)), i < FEW);
	}
	close_file();
}

static void policies(void)
{
	struct pst_io io = { .policy = PST_POLICY1(PST_PATH_DIRECT) };

	open_cold(LEN);
	if (rig_soft())
		io.policy = PST_POLICY2(PST_PATH_STAGED, PST_PATH_DIRECT);
	for (unsigned i = 0; i < 32; i++)
		T_EQ(ask_by(rig_q, mem, &io, i * PIECE, PIECE), BIT(DIRECT));
	io.policy = io.policy << 4 | PST_PATH_CACHED;
	io.policy |= (uint64_t)PST_PATH_BUFFERED << 12;
	for (unsigned i = 32; i < 64; i++) {
		struct pst_io one = rig_io(PST_OP_READ, file, mem, i * PIECE, 0, PIECE);

		one.policy = io.policy;
		T_EQ(rig_do(rig_q, &one).paths & FILE_HOPS, BIT(DIRECT));
	}
	close_file();
}

/* ------------------------------------------------------------ while it changes */

static void end_of_file(void)
{
	const uint64_t len = 64 * PIECE + 100;
	struct pst_done d;

	open_cold(len);
	goes_ahead(&(struct pst_io){ 0 }, 0, PIECE, 64);
	d = rig_read(file, mem, 64 * PIECE, 0, PIECE);
	T_EQ(d.res, 100);
	T_EQ(d.paths & BIT(DIRECT), 0);
	T_EQ(rig_mem_differs(mem, 0, 100, SEED, 64 * PIECE), 100);
	d = rig_read(file, mem, 65 * PIECE, 0, PIECE);
	T_EQ(d.res, 0);
	close_file();
}

static void truncated(void)
{
	struct pst_done d;

	open_cold(LEN);
	goes_ahead(&(struct pst_io){ 0 }, 0, PIECE, 32);
	T_EQ(truncate(rig_path("file"), 32 * PIECE + 10), 0);
	d = rig_read(file, mem, 32 * PIECE, 0, PIECE);
	T_EQ(d.res, 10);
	T_EQ(truncate(rig_path("file"), 20 * PIECE), 0);
	d = rig_read(file, mem, 33 * PIECE, 0, PIECE);
	T_EQ(d.res, 0);
	/* The file gets new bytes where the kernel has read ahead: the reads must return them. */
	rig_make(rig_path("file"), SEED, LEN);
	for (unsigned i = 34; i < 64; i++)
		(void)ask(i * PIECE, PIECE);
	close_file();
}

/* Another descriptor writes just ahead of the reader, where the kernel has already read: once
 * through the page cache and once by O_DIRECT. */
static void written(void)
{
	char *buf = NULL;
	int fd[2];

	open_cold(LEN);
	fd[0] = open(rig_path("file"), O_WRONLY | O_CLOEXEC);
	fd[1] = open(rig_path("file"), O_WRONLY | O_CLOEXEC | O_DIRECT);
	T_CHECK(fd[0] >= 0 && fd[1] >= 0);
	T_EQ(posix_memalign((void **)&buf, 4096, PIECE), 0);
	goes_ahead(&(struct pst_io){ 0 }, 0, PIECE, 16);
	for (unsigned i = 16; i < 80; i++) {
		uint64_t off = i * PIECE;
		struct pst_done d;

		t_fill(buf, SEED + i, off, PIECE);
		T_EQ(pwrite(fd[i & 1], buf, PIECE, (off_t)off), PIECE);
		d = rig_read(file, mem, off, 0, PIECE);
		T_EQ(d.res, PIECE);
		T_EQ(d.paths & BIT(DIRECT), 0);
		T_EQ(rig_mem_differs(mem, 0, PIECE, SEED + i, off), PIECE);
	}
	free(buf);
	(void)close(fd[0]);
	(void)close(fd[1]);
	close_file();
}

int main(void)
{
	rig_init();
	RIG_RUN(sequential);
	RIG_RUN(strict);
	RIG_RUN(checksums);
	RIG_RUN(unaligned);
	RIG_RUN(interleaved);
	RIG_RUN(threads);
	RIG_RUN(segments);
	RIG_RUN(random_order);
	RIG_RUN(backwards);
	RIG_RUN(strided);
	RIG_RUN(large);
	RIG_RUN(astray);
	RIG_RUN(half_warm);
	RIG_RUN(many_at_once);
	RIG_RUN(policies);
	RIG_RUN(end_of_file);
	RIG_RUN(truncated);
	RIG_RUN(written);
	return rig_done();
}
