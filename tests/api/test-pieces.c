/* SPDX-License-Identifier: MIT */
/*
 * Requests of many pieces on device memory.  Workers claim pieces of equal length, and look at
 * their segments later.  The bytes must be right, and the segments belong to the caller again
 * after the completion.
 */
#include "rig.h"

#define FILE_LEN RIG_MIB(16)
#define SEED 31
#define NR 3000u

static struct pst_file *file;

static void open_data(void)
{
	rig_make(rig_path("data"), SEED, FILE_LEN);
	rig_warm(rig_path("data"));
	file = rig_open(rig_path("data"), RIG_RW);
}

/* Make NR pieces of this length: disjoint in the file, and in random order in memory with a gap
 * of one byte after each. */
static struct pst_seg *pieces(uint64_t len, uint64_t align, uint64_t *ret_size)
{
	struct pst_seg *segs = calloc(NR, sizeof(*segs));
	uint64_t step = FILE_LEN / NR / align * align;

	T_CHECK(segs && step >= len);
	for (uint64_t i = 0; i < NR; i++)
		segs[i] = (struct pst_seg){ .file_off = i * step +
							rig_below((step - len) / align + 1) * align,
					    .mem_off = i * (len + 1),
					    .len = len,
					    .count = i % 2 };
	for (uint64_t i = NR - 1; i > 0; i--) {
		uint64_t k = rig_below(i + 1), off = segs[i].mem_off;

		segs[i].mem_off = segs[k].mem_off;
		segs[k].mem_off = off;
	}
	*ret_size = NR * (len + 1);
	return segs;
}

static struct pst_io io_of(uint32_t op, struct pst_mem *m, const struct pst_seg *segs)
{
	struct pst_io io = rig_io(op, file, m, 0, 0, 0);

	io.segs = segs;
	io.nr_segs = NR;
	return io;
}

static void check(struct pst_mem *m, const struct pst_seg *segs, uint64_t seed)
{
	for (unsigned i = 0; i < NR; i++) {
		T_EQ(rig_mem_differs(m, segs[i].mem_off, segs[i].len, seed, segs[i].file_off),
		     segs[i].len);
		T_EQ(rig_mem_differs(m, segs[i].mem_off + segs[i].len, 1, 99,
				     segs[i].mem_off + segs[i].len),
		     1);
	}
}

static void read_all(uint64_t len, uint64_t align, uint32_t flags)
{
	uint64_t size;
	struct pst_seg *segs = pieces(len, align, &size);
	struct pst_mem *m = rig_alloc("soft:0", size);
	struct pst_io io = io_of(PST_OP_READ, m, segs);
	struct pst_done d;

	rig_mem_fill(m, 0, size, 99, 0);
	io.flags = flags;
	d = rig_do(rig_q, &io);
	rig_show(&d);
	T_EQ(d.res, (int64_t)(NR * len));
	T_CHECK(d.paths & PST_PATH_BIT(PST_PATH_STAGED));
	check(m, segs, SEED);
	if (flags & PST_IO_CRC32C) {
		uint32_t crc = 0;
		char *buf = malloc(len);

		T_CHECK(buf && d.flags & PST_DONE_CRC32C);
		for (unsigned i = 0; i < NR; i++) {
			T_EQ(rig_slurp(rig_path("data"), segs[i].file_off, buf, len), len);
			crc = rig_crc32c(crc, buf, len);
		}
		T_EQ(d.crc32c, crc);
		free(buf);
	}
	free(segs);
	pst_mem_free(m);
}

static void of_one_length(void)
{
	open_data();
	read_all(4096, 4096, 0);
	read_all(4096, 1, 0);
	read_all(512, 512, PST_IO_CRC32C);
	read_all(1, 1, 0);
	read_all(5000, 1, PST_IO_CRC32C);
	read_all(3333, 3, 0);
	file = pst_file_close(file);
}

static void written(void)
{
	uint64_t size;
	struct pst_seg *segs;
	struct pst_mem *m;
	struct pst_done d;
	struct pst_io io;

	open_data();
	segs = pieces(2048, 512, &size);
	m = rig_alloc("soft:0", size);
	for (unsigned i = 0; i < NR; i++)
		rig_mem_fill(m, segs[i].mem_off, 2048, SEED + 1, segs[i].file_off);
	io = io_of(PST_OP_WRITE, m, segs);
	d = rig_do(rig_q, &io);
	rig_show(&d);
	T_EQ(d.res, NR * 2048);
	for (unsigned i = 0; i < NR; i++) {
		char buf[2050];
		uint64_t off = segs[i].file_off;

		T_EQ(rig_slurp(rig_path("data"), off, buf, 2048), 2048);
		T_EQ(t_differs(buf, SEED + 1, off, 2048), 2048);
	}
	free(segs);
	pst_mem_free(m);
	file = pst_file_close(file);
}

/* The request is cancelled, or its deadline passes, while workers look at the segments. */
static void ended_early(void)
{
	struct pst_queue *q;
	uint64_t size, ended = 0;
	struct pst_mem *m;

	open_data();
	free(pieces(4096, 1, &size));
	m = rig_alloc("soft:0", size);
	q = rig_queue(rig_backend, 8);
	for (unsigned round = 0; round < 300; round++) {
		struct pst_seg *segs = pieces(4096, 1, &size);
		struct pst_io io = io_of(PST_OP_READ, m, segs);
		uint64_t wait = t_now() + rig_below(round < 150 ? 50000 : 1000000);
		struct pst_done d;

		io.user_data = round;
		if (round % 2)
			io.deadline_ns = wait;
		T_OK(pst_queue_prep(q, &io));
		T_EQ(pst_queue_submit(q), 1);
		while (!(round % 2) && t_now() < wait)
			;
		if (!(round % 2))
			(void)pst_queue_cancel(q, round);
		T_EQ(pst_queue_reap(q, &d, 1, 1, t_hang()), 1);
		T_EQ(d.user_data, round);
		T_CHECK(d.res == (int64_t)(NR * 4096) || d.res == -ECANCELED ||
			d.res == -ETIMEDOUT);
		ended += d.res < 0;
		memset(segs, 0xff, NR * sizeof(*segs));
		free(segs);
		T_OK(pst_mem_drain(m, t_hang()));
	}
	T_CHECK(ended);
	q = pst_queue_free(q);
	pst_mem_free(m);
	file = pst_file_close(file);
}

/* The file ends inside one of the pieces: the count includes the pieces before it, and the bytes of
 * that piece before the end. */
static void beyond_the_end(void)
{
	uint64_t size;
	struct pst_seg *segs;
	struct pst_mem *m;
	struct pst_done d;
	struct pst_io io;

	open_data();
	segs = pieces(4096, 4096, &size);
	m = rig_alloc("soft:0", size);
	rig_mem_fill(m, 0, size, 99, 0);
	segs[NR / 2].file_off = FILE_LEN - 1000;
	io = io_of(PST_OP_READ, m, segs);
	d = rig_do(rig_q, &io);
	rig_show(&d);
	T_EQ(d.res, (int64_t)(NR / 2 * 4096 + 1000));
	T_EQ(rig_mem_differs(m, segs[NR / 2].mem_off, 1000, SEED, FILE_LEN - 1000), 1000);
	T_EQ(rig_mem_differs(m, segs[NR / 2 - 1].mem_off, 4096, SEED, segs[NR / 2 - 1].file_off),
	     4096);
	free(segs);
	pst_mem_free(m);
	file = pst_file_close(file);
}

/* Change the segments while the library uses them: the bytes are undefined, but the request
 * ends. */
static void changed_meanwhile(void)
{
	static const uint64_t lens[] = { RIG_MIB(1), 0, 9 };
	uint64_t size;
	struct pst_mem *m;
	struct pst_done d;

	open_data();
	free(pieces(10, 1, &size));
	m = rig_alloc("soft:0", size);
	for (unsigned round = 0; round < RIG_NR(lens); round++) {
		struct pst_seg *segs = pieces(10, 1, &size);
		struct pst_io io = io_of(PST_OP_READ, m, segs);

		io.deadline_ns = t_in_ms(RIG_WAIT_MS);
		T_OK(pst_queue_prep(rig_q, &io));
		for (unsigned i = 0; i < NR; i++)
			segs[i].len = lens[round];
		T_EQ(pst_queue_submit(rig_q), 1);
		d = rig_reap1(rig_q);
		rig_show(&d);
		T_CHECK(d.res != -ETIMEDOUT && d.res < (int64_t)(NR * 10));
		T_OK(pst_mem_drain(m, t_hang()));
		free(segs);
	}
	pst_mem_free(m);
	file = pst_file_close(file);
}

int main(void)
{
	rig_init();
	RIG_RUN_BACKENDS(of_one_length);
	RIG_RUN_BACKENDS(written);
	RIG_RUN_BACKENDS(ended_early);
	RIG_RUN_BACKENDS(beyond_the_end);
	RIG_RUN_BACKENDS(changed_meanwhile);
	return rig_done();
}
