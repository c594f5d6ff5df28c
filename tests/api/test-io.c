/* SPDX-License-Identifier: MIT */
/* All bytes of a request arrive, no others change, and the checksum is right. */
#include "rig.h"

#define SEED 7
#define FILE_LEN (RIG_MIB(24) + 13)
#define GUARD 8192u

static char data_path[512];

/* Expected contents of the file and of the memory. */
static uint8_t *file_image, *mem_image, *scratch;

static struct pst_seg seg_of(uint64_t file_off, uint64_t mem_off, uint64_t len)
{
	return (struct pst_seg){ file_off, mem_off, len, 0, 0, 1 };
}

/* Apply a request to the images.  Return the number of bytes that its completion must count. */
static uint64_t model(uint32_t op, const struct pst_seg *segs, uint64_t nr, uint64_t file_len,
		      uint32_t *ret_crc)
{
	uint64_t done = 0;
	bool end = false;

	*ret_crc = 0;
	for (uint64_t i = 0; i < nr; i++)
		for (uint64_t k = 0; k < (segs[i].count ? segs[i].count : 1); k++) {
			uint64_t off = segs[i].file_off + k * segs[i].file_stride, n = segs[i].len;
			uint64_t moff = segs[i].mem_off + k * segs[i].mem_stride;
			uint8_t *f = file_image + off, *m = mem_image + moff;

			if (op == PST_OP_READ && off + n > file_len)
				n = off < file_len ? file_len - off : 0;
			memcpy(op == PST_OP_READ ? m : f, op == PST_OP_READ ? f : m, n);
			if (!end)
				*ret_crc = rig_crc32c(*ret_crc, m, n);
			if (!end)
				done += n;
			end |= n < segs[i].len;
		}
	return done;
}

/* Check the range that a request may change, and GUARD bytes on each side. */
static void check_mem(struct pst_mem *m, uint64_t mem_len, uint64_t from, uint64_t to)
{
	from = from > GUARD ? from - GUARD : 0;
	to = to + GUARD < mem_len ? to + GUARD : mem_len;
	T_OK(pst_mem_copy_out(m, from, scratch, to - from));
	for (uint64_t i = 0; memcmp(scratch, mem_image + from, to - from) != 0 && i < to - from;
	     i++)
		if (scratch[i] != mem_image[from + i])
			T_FAIL("memory differs at %" PRIu64, from + i);
}

static void check_file(const char *path, uint64_t file_len, uint64_t from, uint64_t to)
{
	from = from > GUARD ? from - GUARD : 0;
	to = to + GUARD < file_len ? to + GUARD : file_len;
	T_EQ(rig_slurp(path, from, scratch, to - from), to - from);
	for (uint64_t i = 0; memcmp(scratch, file_image + from, to - from) != 0 && i < to - from;
	     i++)
		if (scratch[i] != file_image[from + i])
			T_FAIL("the file differs at %" PRIu64, from + i);
}

static struct pst_mem *mem_new(uint64_t len)
{
	struct pst_mem *m = rig_alloc(rig_dev, len);

	t_fill(mem_image, 99, 0, len);
	T_OK(pst_mem_copy_in(m, 0, mem_image, len));
	return m;
}

static void images(uint64_t file_len)
{
	t_fill(file_image, SEED, 0, file_len);
}

static void check_done(const struct pst_done *d, uint32_t op, uint64_t want, uint32_t crc)
{
	if (d->res != (int64_t)want)
		rig_show(d);
	T_EQ(d->res, want);
	T_EQ(d->prefix, want);
	T_EQ(d->op, op);
	T_CHECK(d->paths || !want);
	T_CHECK(d->flags & PST_DONE_CRC32C);
	T_EQ(d->crc32c, crc);
	T_EQ(d->flags & PST_DONE_BUSY, 0);
	T_EQ(d->reserved | d->wrong_piece, 0);
	T_CHECK(!(d->paths & PST_PATH_BIT(PST_PATH_STAGED)) == !rig_soft() || !want);
}

/* ------------------------------------------------------------ one piece */

static void one(struct pst_file *f, struct pst_mem *m, uint64_t mem_len, uint32_t op, uint64_t off,
		uint64_t mem_off, uint64_t len)
{
	struct pst_io io = rig_io(op, f, m, off, mem_off, len);
	struct pst_seg seg = seg_of(off, mem_off, len);
	struct pst_done d;
	uint64_t want;
	uint32_t crc;

	io.flags = PST_IO_CRC32C;
	io.user_data = off ^ len;
	want = model(op, &seg, 1, FILE_LEN, &crc);
	d = rig_do(rig_q, &io);
	T_EQ(d.user_data, off ^ len);
	check_done(&d, op, want, crc);
	check_mem(m, mem_len, mem_off, mem_off + len);
	if (op == PST_OP_WRITE)
		check_file(data_path, FILE_LEN, off, off + len);
}

static const uint64_t sizes[] = { 1,    2,     511,   512,     513,     4095,    4096,    4097,
				  8192, 12289, 65536, 1048575, 1048576, 1048577, 4194304, 4194305 };
static const uint64_t offs[] = { 0, 1, 511, 512, 1000, 4095, 4096, 4097, 1048579 };
static const uint64_t moffs[] = { 0, 1, 64, 512, 4095, 4096 };

static void all_sizes(uint32_t op)
{
	uint64_t mem_len = RIG_MIB(5) + 4096;
	struct pst_mem *m = mem_new(mem_len);
	struct pst_file *f;
	unsigned turn = 0;

	rig_make(data_path, SEED, FILE_LEN);
	images(FILE_LEN);
	f = rig_open(data_path, RIG_RW);
	for (unsigned i = 0; i < RIG_NR(sizes); i++)
		for (unsigned j = 0; j < RIG_NR(offs); j++)
			for (unsigned k = 0; k < RIG_NR(moffs); k++) {
				/* Take one in seven combinations of the long sizes and, under
				 * the thread sanitizer, one in five of the short ones. */
				if (sizes[i] > 100000 ? turn++ % 7 : RIG_TSAN && turn++ % 5)
					continue;
				if (op == PST_OP_READ && k % 3 == 0 && j % 4 == 0)
					rig_cold(data_path);
				one(f, m, mem_len, op, offs[j], moffs[k], sizes[i]);
			}
	pst_file_close(f);
	pst_mem_free(m);
}

static void reads_of_all_sizes(void)
{
	all_sizes(PST_OP_READ);
}

static void writes_of_all_sizes(void)
{
	all_sizes(PST_OP_WRITE);
}

static void long_ones(void)
{
	static const uint64_t at[][2] = { { 4096, 4096 }, { 7, 0 }, { 513, 1 } };
	uint64_t mem_len = RIG_MIB(21), len = RIG_MIB(20) + 7;
	struct pst_mem *m = mem_new(mem_len);
	struct pst_file *f;

	rig_make(data_path, SEED, FILE_LEN);
	images(FILE_LEN);
	f = rig_open(data_path, RIG_RW);
	for (unsigned i = 0; i < RIG_NR(at); i++) {
		rig_cold(data_path);
		one(f, m, mem_len, PST_OP_READ, at[i][0], at[i][1], len);
		t_fill(mem_image, 1000 + i, 0, mem_len);
		T_OK(pst_mem_copy_in(m, 0, mem_image, mem_len));
		one(f, m, mem_len, PST_OP_WRITE, at[i][0], at[i][1], len);
		one(f, m, mem_len, PST_OP_READ, at[i][0], at[i][1], len);
	}
	pst_file_close(f);
	pst_mem_free(m);
}

static void random_pieces(void)
{
	uint64_t mem_len = RIG_MIB(2);
	struct pst_mem *m = mem_new(mem_len);
	struct pst_file *f;

	rig_make(data_path, SEED, FILE_LEN);
	images(FILE_LEN);
	f = rig_open(data_path, RIG_RW);
	for (unsigned i = 0; i < 200; i++) {
		uint64_t len = 1 + rig_below(i % 5 ? 9000 : mem_len / 2);
		uint64_t off = rig_below(FILE_LEN - len), moff = rig_below(mem_len - len);

		if (i % 16 == 0)
			rig_cold(data_path);
		one(f, m, mem_len, i & 1 ? PST_OP_WRITE : PST_OP_READ, off, moff, len);
	}
	pst_file_close(f);
	pst_mem_free(m);
}

/* --------------------------------------------------------- the file's end */

static void past_the_end(void)
{
	static const uint64_t lens[] = { 0, 1, 100, 4096, 10000, 1048576, 1048577 + 512 };
	uint64_t mem_len = RIG_MIB(6);

	for (unsigned i = 0; i < RIG_NR(lens); i++) {
		uint64_t len = lens[i];
		uint64_t at[] = {
			0, 1, 4096, len / 2, len ? len - 1 : 0, len, len + 1, len + 8192
		};
		struct pst_mem *m = mem_new(mem_len);
		struct pst_file *f;

		rig_make(data_path, SEED, len);
		images(len);
		f = rig_open(data_path, RIG_R);
		for (unsigned k = 0; k < 2 * RIG_NR(at); k++) {
			uint64_t off = at[k / 2];
			struct pst_io io = rig_io(PST_OP_READ, f, m, off, k % 3, RIG_MIB(5));
			struct pst_seg seg = seg_of(off, k % 3, RIG_MIB(5));
			struct pst_done d;
			uint64_t want;
			uint32_t crc;

			if (k & 1)
				rig_cold(data_path);
			rig_mem_fill(m, 0, 16, 99, 0);
			io.flags = PST_IO_CRC32C;
			want = model(PST_OP_READ, &seg, 1, len, &crc);
			T_EQ(want, off < len ? len - off : 0);
			d = rig_do(rig_q, &io);
			check_done(&d, PST_OP_READ, want, crc);
			T_EQ(rig_mem_differs(m, k % 3, want, SEED, off), want);
			/* O_DIRECT may change the rest of the last block, but nothing
			 * outside the request's range. */
			T_EQ(rig_mem_differs(m, 0, k % 3, 99, 0), k % 3);
			T_EQ(rig_mem_differs(m, k % 3 + RIG_MIB(5), 9000, 99, k % 3 + RIG_MIB(5)),
			     9000);
		}
		pst_file_close(f);
		pst_mem_free(m);
	}
}

/* The count ends at the first missing byte, in the order of the pieces. */
static void segments_past_the_end(void)
{
	uint64_t len = 100000, mem_len = RIG_MIB(1);
	struct pst_seg segs[] = { { 0, 0, 5000, 0, 0, 1 },
				  { len - 100, 5000, 1000, 0, 0, 1 },
				  { 5000, 6000, 5000, 0, 0, 1 } };
	struct pst_mem *m = mem_new(mem_len);
	struct pst_io io = {
		.op = PST_OP_READ, .flags = PST_IO_CRC32C, .mem = m, .segs = segs, .nr_segs = 3
	};
	struct pst_done d;
	uint64_t want;
	uint32_t crc;

	rig_make(data_path, SEED, len);
	images(len);
	io.file = rig_open(data_path, RIG_R);
	want = model(PST_OP_READ, segs, 3, len, &crc);
	T_EQ(want, 5100);
	d = rig_do(rig_q, &io);
	check_done(&d, PST_OP_READ, want, crc);
	T_EQ(rig_mem_differs(m, 0, 5000, SEED, 0), 5000);
	T_EQ(rig_mem_differs(m, 5000, 100, SEED, len - 100), 100);
	pst_file_close(io.file);
	pst_mem_free(m);
}

/* A write that begins past the end of the file leaves a hole of zeroes. */
static void writes_extend(void)
{
	static const uint64_t at[] = { 0, 1, 4096, 5000, 100000, 1048576 + 17 };
	uint64_t len = 70001;
	struct pst_mem *m = mem_new(len);

	for (unsigned i = 0; i < RIG_NR(at); i++) {
		struct pst_file *f = rig_open(data_path, RIG_NEW);
		struct pst_done d = rig_write(f, m, at[i], 0, len);

		T_EQ(d.res, len);
		T_EQ(rig_file_info(f).size, at[i] + len);
		memset(file_image, 0, at[i]);
		memcpy(file_image + at[i], mem_image, len);
		check_file(data_path, at[i] + len, 0, at[i] + len);
		pst_file_close(f);
	}
	pst_mem_free(m);
}

/* --------------------------------------------------------------- segments */

static void with_segs(uint32_t op, struct pst_seg *segs, uint64_t nr, uint64_t mem_len, bool cold)
{
	struct pst_mem *m = mem_new(mem_len);
	struct pst_io io = {
		.op = op, .flags = PST_IO_CRC32C, .mem = m, .segs = segs, .nr_segs = nr
	};
	struct pst_done d;
	uint64_t want;
	uint32_t crc;

	if (cold)
		rig_cold(data_path);
	io.file = rig_open(data_path, RIG_RW);
	want = model(op, segs, nr, FILE_LEN, &crc);
	d = rig_do(rig_q, &io);
	check_done(&d, op, want, crc);
	check_mem(m, mem_len, 0, mem_len);
	if (op == PST_OP_WRITE)
		check_file(data_path, FILE_LEN, 0, FILE_LEN);
	pst_file_close(io.file);
	pst_mem_free(m);
}

static void both_ways(struct pst_seg *segs, uint64_t nr, uint64_t mem_len)
{
	with_segs(PST_OP_READ, segs, nr, mem_len, true);
	with_segs(PST_OP_READ, segs, nr, mem_len, false);
	with_segs(PST_OP_WRITE, segs, nr, mem_len, false);
}

static void strided(void)
{
	struct pst_seg counts[] = { { 0, 0, 100, 0, 0, 0 },
				    { 200, 100, 100, 12345, 6789, 0 },
				    { 400, 200, 100, 12345, 6789, 1 },
				    { 4096, 4096, 4096, 8192, 4096, 100 },
				    { 1000003, 500001, 777, 1000, 778, 500 } };
	struct pst_seg apart[] = { { 1, 1, 4096, 65536, 4099, 64 } };
	struct pst_seg touching[] = { { 77, 5, 1000, 1000, 1000, 3000 } };
	/* Pieces that are adjacent in the file and apart in memory, and the reverse. */
	struct pst_seg scatter[] = { { 4096, 0, 4096, 4096, 12288, 100 } };
	struct pst_seg gather[] = { { 4096, 0, 4096, 12288, 4096, 100 } };
	struct pst_seg backwards[] = { { 8192, 0, 4096, 0, 0, 1 },
				       { 4096, 4096, 4096, 0, 0, 1 },
				       { 0, 8192, 4096, 0, 0, 1 } };

	rig_make(data_path, SEED, FILE_LEN);
	images(FILE_LEN);
	both_ways(counts, RIG_NR(counts), RIG_MIB(1));
	both_ways(apart, 1, RIG_MIB(1));
	both_ways(touching, 1, RIG_MIB(4));
	both_ways(scatter, 1, RIG_MIB(2));
	both_ways(gather, 1, RIG_MIB(2));
	both_ways(backwards, 3, RIG_MIB(1));
}

/* Pieces may overlap where the request only reads. */
static void overlapping_sources(void)
{
	struct pst_seg file_same[] = { { 4096, 0, 4096, 0, 4096, 50 } };
	struct pst_seg file_over[] = { { 100, 0, 5000, 1000, 5000, 50 } };
	struct pst_seg mem_same[] = { { 4096, 8192, 4096, 4096, 0, 50 } };
	struct pst_seg mem_over[] = { { 333, 0, 5000, 5000, 1000, 50 } };

	rig_make(data_path, SEED, FILE_LEN);
	images(FILE_LEN);
	with_segs(PST_OP_READ, file_same, 1, RIG_MIB(1), true);
	with_segs(PST_OP_READ, file_over, 1, RIG_MIB(1), true);
	with_segs(PST_OP_WRITE, mem_same, 1, RIG_MIB(1), false);
	with_segs(PST_OP_WRITE, mem_over, 1, RIG_MIB(1), false);
}

/*
 * Pieces overlap in the memory that they are read into.  Which of them wins is not promised, but
 * each byte is from one of them, and the path stays trusted.
 */
static void overlapping_targets(void)
{
	struct pst_mem *m;
	uint64_t list[] = { PST_PATH_DIRECT, PST_PATH_BUFFERED };
	uint8_t got[4096];

	if (RIG_TSAN)
		T_SKIP("overlapping reads, which are a race by what they are");
	m = rig_alloc(rig_dev, 8192);
	rig_make(data_path, SEED, FILE_LEN);
	for (unsigned i = 0; i < 5; i++) {
		struct pst_seg seg = { 0, 0, 4096, 4096, 0, 30 };
		struct pst_io io = { .op = PST_OP_READ,
				     .mem = m,
				     .segs = &seg,
				     .nr_segs = 1,
				     .policy = PST_POLICY2(list[0], list[1]) };
		struct pst_done d;

		io.file = rig_open(data_path, RIG_R);
		d = rig_do(rig_q, &io);
		T_EQ(d.res, 30 * 4096);
		if (rig_file_info(io.file).direct && d.why)
			rig_show(&d);
		T_CHECK(!rig_file_info(io.file).direct || d.why == PST_WHY_NONE);
		T_OK(pst_mem_copy_out(m, 0, got, sizeof(got)));
		for (unsigned k = 0; k < sizeof(got); k++) {
			bool known = false;

			for (unsigned p = 0; p < 30 && !known; p++)
				known = got[k] == t_byte(SEED, p * 4096 + k);
			T_CHECK(known);
		}
		pst_file_close(io.file);
	}
	pst_mem_free(m);
}

static void block_table(void)
{
	enum { NR = 10000, LEN = 1024 };
	struct pst_seg *segs = calloc(NR, sizeof(*segs));

	T_CHECK(segs);
	rig_make(data_path, SEED, FILE_LEN);
	images(FILE_LEN);
	for (unsigned i = 0; i < NR; i++)
		segs[i] = seg_of((uint64_t)(i * 7919u % NR) * 2048 + i % 3, (uint64_t)i * LEN, LEN);
	both_ways(segs, NR, (uint64_t)NR * LEN);
	free(segs);
}

static void random_segments(void)
{
	struct pst_seg segs[64];

	rig_make(data_path, SEED, FILE_LEN);
	images(FILE_LEN);
	for (unsigned round = 0; round < 12; round++) {
		uint64_t nr = 1 + rig_below(RIG_NR(segs)), file_off = rig_below(5000),
			 mo = rig_below(100);

		/* Keep pieces disjoint in file and memory: offsets rise by gaps, which are often
		 * 0. */
		for (uint64_t i = 0; i < nr; i++) {
			uint64_t len = 1 + rig_below(rig_below(4) ? 600 : 20000);
			uint64_t count = rig_below(5);

			segs[i] = (struct pst_seg){ file_off,
						    mo,
						    len,
						    len + (rig_below(2) ? rig_below(3000) : 0),
						    len + (rig_below(2) ? rig_below(300) : 0),
						    count };
			file_off += segs[i].file_stride * (count ? count : 1) +
				    (rig_below(2) ? rig_below(9000) : 0);
			mo += segs[i].mem_stride * (count ? count : 1) + rig_below(2) * 64;
		}
		T_CHECK(file_off < FILE_LEN && mo < RIG_MIB(16));
		both_ways(segs, nr, mo + 100);
	}
}

/* ---------------------------------------------------------------- batches */

/* Hundreds of requests: the queue becomes full, is emptied and filled again. */
static void batches(void)
{
	enum { NR = 600, LEN = 5000, DEPTH = 64 };
	struct pst_queue *q = rig_queue(rig_backend, DEPTH);
	struct pst_mem *m = mem_new(NR * LEN);
	uint64_t at[NR];
	unsigned sent = 0, got = 0, seen[NR] = { 0 };
	struct pst_done d[16];
	struct pst_file *f;
	int n, r;

	rig_make(data_path, SEED, FILE_LEN);
	rig_cold(data_path);
	f = rig_open(data_path, RIG_R);
	while (got < NR) {
		while (sent < NR) {
			struct pst_io io = rig_io(PST_OP_READ, f, m,
						  at[sent] = rig_below(FILE_LEN - LEN),
						  (uint64_t)sent * LEN, LEN);

			io.user_data = sent;
			r = pst_queue_prep(q, &io);
			if (r == -EAGAIN)
				break;
			T_OK(r);
			sent++;
		}
		T_CHECK(pst_queue_submit(q) >= 0);
		n = pst_queue_reap(q, d, 1, RIG_NR(d), t_in_ms(RIG_WAIT_MS));
		T_CHECK(n >= 1);
		for (int i = 0; i < n; i++) {
			T_EQ(d[i].res, LEN);
			T_CHECK(d[i].user_data < NR);
			T_EQ(seen[d[i].user_data]++, 0);
		}
		got += (unsigned)n;
		T_CHECK(rig_stats(q).inflight <= sent - got);
	}
	T_EQ(pst_queue_reap(q, d, 1, 1, t_in_ms(100)), 0);
	for (unsigned i = 0; i < NR; i++)
		T_EQ(rig_mem_differs(m, (uint64_t)i * LEN, LEN, SEED, at[i]), LEN);
	pst_file_close(f);
	pst_mem_free(m);
	pst_queue_free(q);
}

/* The queue copies the inline piece and the options at prep.  segs may be freed after the
 * completion. */
static void requests_are_copied(void)
{
	struct pst_mem *m = mem_new(4096);
	struct pst_io io;
	struct pst_done d;

	rig_make(data_path, SEED, 100000);
	io = rig_io(PST_OP_READ, rig_open(data_path, RIG_R), m, 1000, 0, 4096);
	T_OK(pst_queue_prep(rig_q, &io));
	pst_file_close(io.file);
	memset(&io, 0xff, sizeof(io));
	m = pst_mem_free(m);
	T_CHECK(!m);
	T_EQ(pst_queue_submit(rig_q), 1);
	d = rig_reap1(rig_q);
	T_EQ(d.res, 4096);
}

int main(void)
{
	rig_init();
	(void)snprintf(data_path, sizeof(data_path), "%s", rig_path("data"));
	file_image = malloc(FILE_LEN + RIG_MIB(2));
	mem_image = malloc(FILE_LEN + RIG_MIB(2));
	scratch = malloc(FILE_LEN + RIG_MIB(2));
	if (!file_image || !mem_image || !scratch)
		return 1;
	RIG_RUN(reads_of_all_sizes);
	RIG_RUN(writes_of_all_sizes);
	RIG_RUN(long_ones);
	RIG_RUN(random_pieces);
	RIG_RUN(past_the_end);
	RIG_RUN(segments_past_the_end);
	RIG_RUN(writes_extend);
	RIG_RUN(strided);
	RIG_RUN(overlapping_sources);
	RIG_RUN(overlapping_targets);
	RIG_RUN(block_table);
	RIG_RUN(random_segments);
	RIG_RUN(batches);
	RIG_RUN(requests_are_copied);
	free(file_image);
	free(mem_image);
	free(scratch);
	return rig_done();
}
