/* SPDX-License-Identifier: MIT */
/*
 * Reads whose bytes are compared with checksums after they arrived, and checksums of bytes that
 * the CPU never sees.  On host memory, on the software device, and on the CUDA library that
 * PST_LIBCUDA names.
 */
#include "again.h"
#include "stub/cuda_stub.h"
#include "symbol.h"

#define SEED 21
#define PIECE 40000u
#define PIECES 64u
#define LEN (PIECES * PIECE + 4321u)
#define GAP 100u /* bytes between pieces in memory */

static struct pst_seg segs[PIECES];
static uint32_t want[PIECES];

/* Make pieces in reverse file order, with lengths around PIECE, and their checksums. */
static void make_pieces(const uint8_t *bytes)
{
	for (unsigned i = 0; i < PIECES; i++) {
		segs[i] = (struct pst_seg){
			.file_off = (PIECES - 1 - i) * (uint64_t)PIECE + rig_below(50),
			.mem_off = i * (uint64_t)(PIECE + GAP),
			.len = PIECE - 50 - rig_below(PIECE - 60) * (i % 3 == 0),
		};
		want[i] = rig_crc32c(0, bytes + segs[i].file_off, segs[i].len);
	}
}

static struct pst_io verify_io(struct pst_file *f, struct pst_mem *m, uint64_t policy)
{
	return (struct pst_io){ .op = PST_OP_READ,
				.flags = PST_IO_VERIFY,
				.policy = policy,
				.file = f,
				.mem = m,
				.segs = segs,
				.nr_segs = PIECES,
				.crc32cs = want };
}

static uint64_t pos_of(unsigned piece)
{
	uint64_t pos = 0;

	for (unsigned i = 0; i < piece; i++)
		pos += segs[i].len;
	return pos;
}

static uint8_t *file_bytes(void)
{
	uint8_t *bytes = malloc(LEN);

	T_CHECK(bytes);
	rig_make(rig_path("data"), SEED, LEN);
	T_EQ(rig_slurp(rig_path("data"), 0, bytes, LEN), LEN);
	return bytes;
}

/* Good checksums pass.  The result names a wrong checksum, or the first of two. */
static void every_piece_is_compared(void)
{
	uint8_t *bytes = file_bytes();
	struct pst_mem *m = rig_alloc(rig_dev, PIECES * (PIECE + GAP));
	struct pst_file *f = rig_open(rig_path("data"), RIG_R);
	struct pst_done d;
	struct pst_io io;

	make_pieces(bytes);
	io = verify_io(f, m, 0);
	d = rig_do(rig_q, &io);
	T_EQ(d.res, pos_of(PIECES));
	T_EQ(d.flags & PST_DONE_CRC32C, 0);
	for (unsigned i = 0; i < PIECES; i += 1 + (unsigned)rig_below(9)) {
		uint32_t bit = 1u << rig_below(32);

		want[i] ^= bit;
		want[PIECES - 1] ^= i < PIECES - 1 ? 1 : 0;
		d = rig_do(rig_q, &io);
		T_EQ(d.res, -EBADMSG);
		T_EQ(d.wrong_piece, i);
		T_EQ(d.prefix, pos_of(i));
		want[i] ^= bit;
		want[PIECES - 1] ^= i < PIECES - 1 ? 1 : 0;
	}
	/* Ask for both kinds of checksums at once. */
	io.flags |= PST_IO_CRC32C;
	d = rig_do(rig_q, &io);
	T_EQ(d.res, pos_of(PIECES));
	T_CHECK(d.flags & PST_DONE_CRC32C);
	(void)pst_file_close(f);
	(void)pst_mem_free(m);
	free(bytes);
}

/* Flip one bit of the file: only the piece with that bit is named. */
static void flipped_bits_are_found(void)
{
	uint8_t *bytes = file_bytes();
	struct pst_mem *m = rig_alloc(rig_dev, PIECES * (PIECE + GAP));
	struct pst_file *f = rig_open(rig_path("data"), RIG_RW);
	unsigned rounds = getenv("PST_SOAK") ? 10000 : 40;

	make_pieces(bytes);
	for (unsigned n = 0; n < rounds; n++) {
		struct pst_io io = verify_io(f, m, 0);
		unsigned i = (unsigned)rig_below(PIECES);
		uint64_t at = segs[i].file_off + rig_below(segs[i].len);
		uint8_t byte = bytes[at] ^ (uint8_t)(1u << rig_below(8));
		struct pst_done d;

		T_EQ(pst_write(f, at, NULL, (uintptr_t)&byte, 1, NULL), 1);
		d = rig_do(rig_q, &io);
		T_EQ(d.res, -EBADMSG);
		T_EQ(d.wrong_piece, i);
		T_EQ(pst_write(f, at, NULL, (uintptr_t)&bytes[at], 1, NULL), 1);
		d = rig_do(rig_q, &io);
		T_EQ(d.res, pos_of(PIECES));
	}
	(void)pst_file_close(f);
	(void)pst_mem_free(m);
	free(bytes);
}

/* The file ends before a piece does: the piece fails. */
static void a_short_file_fails(void)
{
	uint8_t *bytes = file_bytes();
	struct pst_mem *m = rig_alloc(rig_dev, PIECES * (PIECE + GAP));
	struct pst_file *f = rig_open(rig_path("data"), RIG_R);
	uint64_t sizes[] = { 0, 1, PIECE, 5 * PIECE + 77 };

	make_pieces(bytes);
	/* Use file order, so that the first missing piece is the first wrong one. */
	for (unsigned i = 0; i < PIECES; i++) {
		segs[i].file_off = i * (uint64_t)PIECE;
		want[i] = rig_crc32c(0, bytes + segs[i].file_off, segs[i].len);
	}
	for (unsigned i = 0; i < RIG_NR(sizes); i++) {
		struct pst_io io = verify_io(f, m, 0);
		unsigned wrong = 0;
		struct pst_done d;

		T_EQ(truncate(rig_path("data"), (off_t)sizes[i]), 0);
		while (segs[wrong].file_off + segs[wrong].len <= sizes[i])
			wrong++;
		d = rig_do(rig_q, &io);
		T_EQ(d.res, -EBADMSG);
		T_EQ(d.wrong_piece, wrong);
		T_EQ(d.prefix, pos_of(wrong));
		rig_make(rig_path("data"), SEED, LEN);
	}
	(void)pst_file_close(f);
	(void)pst_mem_free(m);
	free(bytes);
}

/* On each path to device memory, a wrong piece is found, and the checksum is right. */
static void by_every_path(void)
{
	static const uint64_t policies[] = { 0, PST_PATH_STAGED, PST_PATH_PAGECACHE };
	uint8_t *bytes = file_bytes();
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_file *f = rig_open(rig_path("data"), RIG_R | PST_FILE_STABLE);
	uint32_t crc = rig_crc32c(0, bytes, LEN), wrong = crc ^ 4;
	struct pst_seg halves[2] = {
		{ .file_off = LEN / 2, .mem_off = LEN / 2, .len = LEN - LEN / 2 },
		{ .len = LEN / 2 },
	};
	uint32_t swapped = rig_crc32c(rig_crc32c(0, bytes + LEN / 2, LEN - LEN / 2), bytes,
				      LEN / 2);

	rig_warm(rig_path("data"));
	for (unsigned i = 0; i < RIG_NR(policies); i++) {
		struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
		struct pst_done d;

		io.policy = policies[i];
		io.flags = PST_IO_CRC32C;
		if (pst_queue_prep(rig_q, &io) < 0)
			continue;
		T_EQ(pst_queue_submit(rig_q), 1);
		d = rig_reap1(rig_q);
		if (d.res == -EOPNOTSUPP)
			continue; /* this memory does not have the path */
		T_EQ(d.res, LEN);
		T_CHECK(d.flags & PST_DONE_CRC32C);
		T_EQ(d.crc32c, crc);
		if (policies[i])
			T_CHECK(d.paths & PST_PATH_BIT(policies[i]));
		/* Read the second half first. */
		io.segs = halves;
		io.nr_segs = 2;
		d = rig_do(rig_q, &io);
		T_EQ(d.res, LEN);
		T_EQ(d.crc32c, swapped);
		io.segs = NULL;
		io.nr_segs = 0;
		io.flags = PST_IO_VERIFY;
		io.crc32cs = &crc;
		T_EQ(rig_do(rig_q, &io).res, LEN);
		io.crc32cs = &wrong;
		d = rig_do(rig_q, &io);
		T_EQ(d.res, -EBADMSG);
		T_EQ(d.prefix, 0);
	}
	(void)pst_file_close(f);
	(void)pst_mem_free(m);
	free(bytes);
}

/* The checksum of the bytes in the memory, after reads and writes, as a whole and in pieces. */
static void what_lies_in_memory(void)
{
	static const uint64_t policies[] = { 0, PST_PATH_STAGED, PST_PATH_PAGECACHE };
	uint8_t *bytes = file_bytes();
	struct pst_mem *m = rig_alloc(rig_dev, PIECES * (PIECE + GAP));
	struct pst_file *f = rig_open(rig_path("data"), RIG_R | PST_FILE_STABLE);
	struct pst_file *to = rig_open(rig_path("copy"), RIG_RW | PST_FILE_CREATE);
	uint32_t crc = 0;

	make_pieces(bytes);
	for (unsigned i = 0; i < PIECES; i++)
		crc = rig_crc32c(crc, bytes + segs[i].file_off, segs[i].len);
	rig_warm(rig_path("data"));
	for (unsigned i = 0; i < 2 * RIG_NR(policies); i++) {
		bool write = i >= RIG_NR(policies);
		struct pst_io io = verify_io(write ? to : f, m, policies[i % RIG_NR(policies)]);
		struct pst_done d;

		io.op = write ? PST_OP_WRITE : PST_OP_READ;
		io.flags = PST_IO_CRC32C | PST_IO_CRC32C_MEM;
		io.crc32cs = NULL;
		if (pst_queue_prep(rig_q, &io) < 0)
			continue;
		T_EQ(pst_queue_submit(rig_q), 1);
		d = rig_reap1(rig_q);
		if (d.res == -EOPNOTSUPP)
			continue; /* this memory does not have the path */
		T_EQ(d.res, pos_of(PIECES));
		T_CHECK(d.flags & PST_DONE_CRC32C);
		T_EQ(d.crc32c, crc);
	}
	(void)pst_file_close(to);
	(void)pst_file_close(f);
	(void)pst_mem_free(m);
	free(bytes);
}

/* The file ends inside a piece, or before all of them. */
static void what_lies_in_memory_at_the_end(void)
{
	uint8_t *bytes = file_bytes();
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_file *f = rig_open(rig_path("data"), RIG_R);
	struct pst_io io = rig_io(PST_OP_READ, f, m, LEN - 1000, 0, 5000);
	struct pst_done d;

	io.flags = PST_IO_CRC32C | PST_IO_CRC32C_MEM;
	d = rig_do(rig_q, &io);
	T_EQ(d.res, 1000);
	T_CHECK(d.flags & PST_DONE_CRC32C);
	T_EQ(d.crc32c, rig_crc32c(0, bytes + LEN - 1000, 1000));
	io.file_off = LEN + 7;
	d = rig_do(rig_q, &io);
	T_EQ(d.res, 0);
	T_CHECK(d.flags & PST_DONE_CRC32C);
	T_EQ(d.crc32c, 0);
	(void)pst_file_close(f);
	(void)pst_mem_free(m);
	free(bytes);
}

/*
 * All copies to and from the device flip a bit, except the tenth; the first six are the device's
 * proof.  Requests that sum staging memory do not notice, those that sum device memory do.
 */
static void wrong_copies_are_seen(void)
{
	struct pst_queue *q = rig_queue(rig_best_backend(), 0);
	uint8_t *bytes = file_bytes();
	struct pst_mem *m = rig_alloc("soft:0", PIECE);
	struct pst_file *f = rig_open(rig_path("data"), RIG_RW);
	uint32_t crc = rig_crc32c(0, bytes, PIECE);
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, PIECE);
	struct pst_done d;

	io.policy = PST_PATH_STAGED;
	io.flags = PST_IO_CRC32C;
	d = rig_do(q, &io); /* uses copy 7 of the device */
	T_EQ(d.res, PIECE);
	T_EQ(d.crc32c, crc);
	io.flags |= PST_IO_CRC32C_MEM;
	d = rig_do(q, &io); /* uses copy 8 */
	T_EQ(d.res, PIECE);
	T_CHECK(d.flags & PST_DONE_CRC32C);
	T_CHECK(d.crc32c != crc);
	io.op = PST_OP_WRITE;
	d = rig_do(q, &io); /* copy 9: flips the bit back on its way to the file */
	T_EQ(d.res, -EBADMSG);
	T_EQ(d.prefix, 0);
	io.op = PST_OP_READ;
	d = rig_do(q, &io); /* uses copy 10, which is right */
	T_EQ(d.crc32c, crc);
	io.flags = PST_IO_VERIFY;
	io.crc32cs = &crc;
	T_EQ(rig_do(q, &io).res, -EBADMSG); /* uses copy 11 */
	(void)pst_file_close(f);
	pst_queue_free(q);
	(void)pst_mem_free(m);
	free(bytes);
}

/* Many requests at once, one in eight with a wrong checksum, and some cancelled. */
static void many_at_once(void)
{
	enum { NR = 256 };
	static uint32_t sums[NR];
	struct pst_queue *q = rig_queue(rig_backend, NR);
	struct pst_mem *m = rig_alloc(rig_dev, NR * 4096);
	uint8_t *bytes = file_bytes();
	bool wrong;
	struct pst_file *f = rig_open(rig_path("data"), RIG_R);

	for (unsigned i = 0; i < NR; i++) {
		struct pst_io io = rig_io(PST_OP_READ, f, m, i * 4096 + i, i * 4096, 4096);

		sums[i] = rig_crc32c(0, bytes + i * 4096 + i, 4096);
		/* Requests that are cancelled half-way compare nothing. */
		sums[i] ^= i % 8 == 3 || i % 16 == 5;
		io.flags = PST_IO_VERIFY;
		io.crc32cs = &sums[i];
		io.user_data = i;
		T_OK(pst_queue_prep(q, &io));
	}
	T_EQ(pst_queue_submit(q), NR);
	for (uint64_t i = 5; i < NR; i += 16)
		(void)pst_queue_cancel(q, i);
	for (unsigned i = 0; i < NR; i++) {
		struct pst_done d = rig_reap1(q);

		if (d.res == -ECANCELED && d.user_data % 16 == 5)
			continue;
		wrong = d.user_data % 8 == 3 || d.user_data % 16 == 5;
		T_EQ(d.res, wrong ? -EBADMSG : 4096);
	}
	(void)pst_file_close(f);
	pst_queue_free(q);
	(void)pst_mem_free(m);
	free(bytes);
}

static struct {
	void (*state)(struct stub_cuda_state *);
	void (*hold_sums)(bool);
	bool (*peek)(cu_ptr, void *, size_t);
} stub;

static bool find_stub(void)
{
	const char *file = getenv("PST_LIBCUDA");
	void *lib = file ? dlopen(file, RTLD_NOW) : NULL;

	if (!lib)
		return false;
	symbol(lib, &stub.state, "stub_cuda_state");
	symbol(lib, &stub.hold_sums, "stub_cuda_hold_sums");
	symbol(lib, &stub.peek, "stub_cuda_peek");
	return stub.hold_sums && stub.peek;
}

static unsigned held_sums(void)
{
	struct stub_cuda_state st;

	stub.state(&st);
	return st.held_sums;
}

/* Wait until bytes of nr requests have arrived, and a worker has begun a check. */
static void wait_for_bytes(struct pst_mem *m, unsigned nr)
{
	struct pst_mem_info info = { .sz = sizeof(info) };
	uint64_t end = t_now() + 60 * UINT64_C(1000000000), zero = 0, got;

	T_OK(pst_mem_info(m, &info));
	for (unsigned i = 0; i < nr;) {
		T_CHECK(stub.peek((cu_ptr)(info.addr + i * 4096 + 4088), &got, sizeof(got)));
		i += got != zero;
		T_CHECK(t_now() < end);
		(void)usleep(100);
	}
	while (!held_sums()) {
		T_CHECK(t_now() < end);
		(void)usleep(100);
	}
}

/*
 * Each worker waits for a check that the device does not end, and the other requests wait for a
 * worker.  A cancel completes them, and nothing touches their memory any more.
 */
static void waiting_checks_are_cancelled(void)
{
	enum { NR = 96, WORKERS = 15 };
	static uint32_t sums[NR];
	uint64_t end = t_now() + 60 * UINT64_C(1000000000), busy;
	struct pst_queue *q;
	struct pst_mem *m;
	uint8_t *bytes;
	struct pst_file *f;

#ifdef __SANITIZE_THREAD__
	T_SKIP("a sanitizer's report: the test looks at memory while the device writes it");
#endif
	if (!find_stub())
		T_SKIP("PST_LIBCUDA names no library of tests/stub");
	q = rig_queue(rig_best_backend(), NR);
	m = rig_alloc("cuda:0", NR * 4096);
	bytes = file_bytes();
	f = rig_open(rig_path("data"), RIG_R);
	stub.hold_sums(true);
	for (unsigned i = 0; i < NR; i++) {
		struct pst_io io = rig_io(PST_OP_READ, f, m, i * 4096, i * 4096, 4096);

		sums[i] = rig_crc32c(0, bytes + i * 4096, 4096);
		io.policy = PST_PATH_STAGED;
		io.flags = PST_IO_VERIFY;
		io.crc32cs = &sums[i];
		io.user_data = i;
		T_OK(pst_queue_prep(q, &io));
	}
	T_EQ(pst_queue_submit(q), NR);
	wait_for_bytes(m, NR);
	for (uint64_t i = 0; i < NR; i++)
		(void)pst_queue_cancel(q, i);
	for (unsigned i = 0; i < NR; i++)
		T_EQ(rig_reap1(q).res, -ECANCELED);
	while ((busy = rig_stats(q).busy) > WORKERS) {
		T_CHECK(t_now() < end);
		(void)usleep(100);
	}
	T_CHECK(busy >= 1);
	stub.hold_sums(false);
	T_OK(pst_mem_drain(m, end));
	T_EQ(rig_stats(q).busy, 0);
	(void)pst_file_close(f);
	pst_queue_free(q);
	(void)pst_mem_free(m);
	free(bytes);
}

/* Adjacent pieces of a segment have a checksum each. */
static void pieces_that_adjoin(void)
{
	enum { SIZE = 1000, NR = 50 };
	struct pst_seg seg = {
		.len = SIZE,
		.file_stride = SIZE,
		.mem_stride = SIZE,
		.count = NR,
	};
	uint8_t *bytes = file_bytes();
	struct pst_mem *m = rig_alloc(rig_dev, SIZE * NR);
	struct pst_file *f = rig_open(rig_path("data"), RIG_R);
	struct pst_io io;
	struct pst_done d;

	for (unsigned i = 0; i < NR; i++)
		want[i] = rig_crc32c(0, bytes + i * SIZE, SIZE);
	io = verify_io(f, m, 0);
	io.segs = &seg;
	io.nr_segs = 1;
	T_EQ(rig_do(rig_q, &io).res, SIZE * NR);
	want[17] ^= 1;
	d = rig_do(rig_q, &io);
	T_EQ(d.res, -EBADMSG);
	T_EQ(d.wrong_piece, 17);
	T_EQ(d.prefix, 17 * SIZE);
	(void)pst_file_close(f);
	(void)pst_mem_free(m);
	free(bytes);
}

static void what_does_not_go_together(void)
{
	uint8_t *bytes = file_bytes();
	struct pst_mem *m = rig_alloc(rig_dev, PIECES * (PIECE + GAP));
	struct pst_file *f = rig_open(rig_path("data"), RIG_RW);
	struct pst_io io;

	make_pieces(bytes);
	io = verify_io(f, m, 0);
	io.crc32cs = NULL;
	T_EQ(pst_queue_prep(rig_q, &io), -EINVAL);
	io = verify_io(f, m, 0);
	io.flags = 0;
	T_EQ(pst_queue_prep(rig_q, &io), -EINVAL);
	io = verify_io(f, m, 0);
	io.op = PST_OP_WRITE;
	T_EQ(pst_queue_prep(rig_q, &io), -EINVAL);
	io = verify_io(f, m, 0);
	io.flags |= PST_IO_CRC32C_MEM;
	T_EQ(pst_queue_prep(rig_q, &io), -EINVAL);
	io = (struct pst_io){ .op = PST_OP_SYNC, .file = f, .flags = PST_IO_CRC32C_MEM };
	T_EQ(pst_queue_prep(rig_q, &io), -EINVAL);
	(void)pst_file_close(f);
	(void)pst_mem_free(m);
	free(bytes);
}

/* Run on a CUDA device, if there is one. */
static void run_cuda(const char *name, void (*fn)(void))
{
	struct pst_device dev = { .sz = sizeof(dev) };
	char full[80];

	if (pst_device_find("cuda:0", &dev) < 0)
		return;
	rig_backend = rig_best_backend();
	rig_dev = "cuda:0";
	rig_last = rig_q;
	rig_q = NULL;
	rig_fn = fn;
	(void)snprintf(full, sizeof(full), "%s cuda:0", name);
	t_run(full, rig_case);
}

static void run(const char *name, void (*fn)(void))
{
	rig_run(name, fn, RIG_HOST | RIG_SOFT);
	run_cuda(name, fn);
}

#define RUN(fn) run(#fn, fn)

static const struct again again_cases[] = {
	{ "wrong_copies_are_seen", wrong_copies_are_seen, AGAIN_ONCE,
	  "mem.copy:7:wrong,mem.copy:8:wrong,mem.copy:9:wrong,mem.copy:11:wrong" },
};

int main(int argc, char **argv)
{
	rig_init();
	if (argc > 1)
		return again_child(again_cases, RIG_NR(again_cases), argv[1]);
	RUN(every_piece_is_compared);
	RUN(flipped_bits_are_found);
	RUN(a_short_file_fails);
	RUN(by_every_path);
	RUN(what_lies_in_memory);
	RUN(what_lies_in_memory_at_the_end);
	again_all(again_cases, RIG_NR(again_cases));
	RUN(many_at_once);
	RIG_RUN1(waiting_checks_are_cancelled);
	RUN(pieces_that_adjoin);
	RUN(what_does_not_go_together);
	return rig_done();
}
