/* SPDX-License-Identifier: MIT */
/*
 * No path is trusted before its bytes were compared.  Here O_DIRECT and the copies of a device
 * spoil bytes, which must never reach the caller.  The library's reads and writes pass through
 * calls.h.  A verdict lasts as long as its process, so each case is a process of its own, forked
 * before the library was used.
 */
#include "proof.h"

static void a_proof_is_made_once(void)
{
	mode_t before = umask(0);

	cache_new();
	in_child(honest_child);
	in_child(knows_child);
	(void)umask(before);
	check_mode(cache_path("penstock"), S_IFDIR, 0700);
	check_mode(cache_path("penstock/proofs"), S_IFREG, 0600);
}

/* A file open for writing only is proven through another descriptor. */
static void write_only_child(void)
{
	struct pst_file *f = open_cold("write-only", PST_FILE_WRITE);
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);
	struct pst_done d;

	rig_mem_fill(m, 0, 65536, 3, 0);
	d = rig_write(f, m, 0, 0, 65536);
	T_EQ(d.res, 65536);
	T_CHECK(took(&d, PST_PATH_DIRECT));
	T_CHECK(d.flags & PST_DONE_PROOF);
	T_EQ(d.why, 0);
	pst_file_close(f);
	pst_mem_free(m);
}

static void write_only_files_are_proven(void)
{
	cache_new();
	in_child(write_only_child);
}

/* Read across the end of the file, unaligned, and in several pieces: an honest path must not be
 * taken for a liar. */
static void odd_child(void)
{
	struct pst_file *f = open_cold("odd", RIG_RW);
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN + 8192);
	struct pst_seg segs[] = { { 100, 0, 70000, 0, 0, 1 },
				  { 200000, 70000, 5000, 6000, 5000, 20 } };
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, 0);
	struct pst_done d;

	io.segs = segs;
	io.nr_segs = 2;
	io.len = 0;
	d = rig_do(rig_q, &io);
	T_EQ(d.res, 170000);
	T_EQ(rig_mem_differs(m, 0, 70000, SEED, 100), 70000);
	for (unsigned i = 0; i < 20; i++)
		T_EQ(rig_mem_differs(m, 70000 + i * 5000, 5000, SEED, 200000 + i * 6000), 5000);
	d = rig_read(f, m, FILE_LEN - 65536, 0, 65536 + 8192);
	T_EQ(d.res, 65536);
	T_EQ(rig_mem_differs(m, 0, 65536, SEED, FILE_LEN - 65536), 65536);
	rig_mem_fill(m, 0, 100000, SEED, 777);
	d = rig_write(f, m, 777, 0, 100000);
	T_EQ(d.res, 100000);
	T_CHECK(check(f, m, PST_OP_READ, PST_PATH_DIRECT).why == PST_WHY_NONE);
	T_CHECK(check(f, m, PST_OP_WRITE, PST_PATH_DIRECT).why == PST_WHY_NONE);
	pst_file_close(f);
	pst_mem_free(m);
}

static void odd_requests_are_no_lies(void)
{
	cache_new();
	in_child(odd_child);
}

/* The first operation on a mount reads past the end of the file: it must return nothing. */
static void behind_child(void)
{
	struct pst_file *f;
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);
	struct pst_done d;

	rig_make(rig_path("behind"), SEED, 4096 + 50);
	rig_cold(rig_path("behind"));
	f = rig_open(rig_path("behind"), RIG_R);
	rig_mem_fill(m, 0, 65536, 5, 0);
	d = read_direct(f, m, 4096 + 100, 300);
	T_EQ(d.res, 0);
	T_EQ(d.prefix, 0);
	T_EQ(rig_mem_differs(m, 4096 + 100, 300, 5, 4096 + 100), 300);
	pst_file_close(f);
	pst_mem_free(m);
}

static void nothing_is_behind_the_end(void)
{
	cache_new();
	in_child(behind_child);
}

/* ------------------------------------------------------------------- lies */

static void check_off(struct pst_file *f, struct pst_mem *m, uint32_t op)
{
	struct pst_path_info info = check(f, m, op, PST_PATH_DIRECT);

	T_EQ(info.state, PST_STATE_IMPOSSIBLE);
	T_EQ(info.why, PST_WHY_NOT_PROVEN);
}

static void lying_reads_child(void)
{
	struct pst_file *f = open_cold("lies", RIG_R), *g = open_cold("other", RIG_RW);
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);
	struct pst_done d;

	lie.reads = true;
	for (unsigned i = 0; i < 3; i++) {
		T_EQ(check(g, m, PST_OP_READ, PST_PATH_DIRECT).state, PST_STATE_POSSIBLE);
		d = read_direct(f, m, i * 65536, 65536);
		T_EQ(d.res, 65536);
		T_EQ(d.why, PST_WHY_NOT_PROVEN);
		T_CHECK(took(&d, PST_PATH_BUFFERED));
		T_CHECK(!took(&d, PST_PATH_DIRECT)); /* the wrong O_DIRECT bytes were discarded */
		T_EQ(d.flags & PST_DONE_PROOF, 0);
		T_EQ(rig_mem_differs(m, i * 65536, 65536, SEED, i * 65536), 65536);
		/* one read for the request, and three that confirm the difference */
		T_EQ(lie.direct, 4 * (i + 1));
	}
	check_off(g, m, PST_OP_READ);
	check_off(f, m, PST_OP_READ);
	T_EQ(check(g, m, PST_OP_WRITE, PST_PATH_DIRECT).state, PST_STATE_POSSIBLE);

	/* O_DIRECT is off for the whole mount, and every request says why. */
	for (unsigned i = 0; i < 2; i++) {
		d = rig_read(i ? g : f, m, 1 << 20, 1 << 20, 65536);
		T_EQ(d.res, 65536);
		T_EQ(d.why, PST_WHY_NOT_PROVEN);
		T_CHECK(!took(&d, PST_PATH_DIRECT));
		T_EQ(rig_mem_differs(m, 1 << 20, 65536, SEED, 1 << 20), 65536);
	}
	T_EQ(lie.direct, 12);
	pst_file_close(f);
	pst_file_close(g);
	pst_mem_free(m);
}

/*
 * O_DIRECT spoils the first bytes and then refuses the rest: the first bytes must be compared
 * nevertheless.
 */
static int refused_with;

static ssize_t lies_then_refuses(const struct call *c)
{
	struct call first = *c;

	if (c->kind != CALL_READ || !call_is_direct(c))
		return call_real(c, c->len);
	if (c->off) {
		errno = refused_with;
		return -1;
	}
	if (first.len > 65536)
		first.len = 65536;
	return lying_call(&first);
}

static void refused_child(void)
{
	struct pst_file *f = open_cold("refused", RIG_R);
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);
	const uint64_t len = 128 << 10; /* fits into one slot */
	struct pst_done d;

	lie.reads = true;
	call_hook = lies_then_refuses;
	d = read_direct(f, m, 0, len);
	T_EQ(d.res, len);
	T_EQ(rig_mem_differs(m, 0, len, SEED, 0), len);
	T_EQ(d.flags & PST_DONE_PROOF, 0);
	pst_file_close(f);
	pst_mem_free(m);
}

static void wrong_reads_before_a_refusal(void)
{
	cache_new();
	refused_with = EINVAL;
	in_child(refused_child);
	refused_with = EIO;
	in_child(refused_child);
}

static void wrong_reads_never_arrive(void)
{
	cache_new();
	in_child(lying_reads_child);
	/* A verdict that the path lies is neither cached nor taken for a proof. */
	in_child(lying_reads_child);
}

static void lying_writes_child(void)
{
	struct pst_file *f = open_cold("lies", RIG_RW), *g = open_cold("other", PST_FILE_WRITE);
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);
	char *buf = malloc(FILE_LEN);
	struct pst_done d;

	lie.writes = true;
	rig_mem_fill(m, 0, FILE_LEN, 4, 0);
	for (unsigned i = 0; i < 3; i++) {
		struct pst_file *to = i == 1 ? g : f;

		d = rig_write(to, m, i * 65536, i * 65536, 65536);
		T_EQ(d.res, 65536);
		T_EQ(d.why, PST_WHY_NOT_PROVEN);
		T_CHECK(took(&d, PST_PATH_BUFFERED));
		T_EQ(d.flags & PST_DONE_PROOF, 0);
		T_EQ(rig_slurp(rig_path(i == 1 ? "other" : "lies"), i * 65536, buf, 65536), 65536);
		T_EQ(t_differs(buf, 4, i * 65536, 65536), 65536);
	}
	check_off(g, m, PST_OP_WRITE);
	check_off(f, m, PST_OP_WRITE);
	T_EQ(check(f, m, PST_OP_READ, PST_PATH_DIRECT).state, PST_STATE_POSSIBLE);
	d = rig_write(f, m, 0, 0, 1 << 20);
	T_EQ(d.why, PST_WHY_NOT_PROVEN);
	T_EQ(lie.direct, 12);
	T_EQ(rig_slurp(rig_path("lies"), 0, buf, 1 << 20), 1 << 20);
	T_EQ(t_differs(buf, 4, 0, 1 << 20), 1 << 20);
	free(buf);
	pst_file_close(f);
	pst_file_close(g);
	pst_mem_free(m);
}

static void wrong_writes_are_written_again(void)
{
	cache_new();
	in_child(lying_writes_child);
}

/* A request that allows only O_DIRECT fails, instead of returning spoiled bytes. */
static void strict_child(void)
{
	struct pst_file *f = open_cold("strict", RIG_RW);
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, 65536);
	struct pst_done d;

	lie.reads = lie.writes = true;
	io.policy = PST_POLICY1(PST_PATH_DIRECT);
	d = rig_do(rig_q, &io);
	T_EQ(d.res, -EOPNOTSUPP);
	T_EQ(d.prefix, 0);
	T_EQ(d.why, PST_WHY_NOT_PROVEN);
	io.policy = PST_POLICY2(PST_PATH_DIRECT, PST_PATH_BUFFERED);
	io.flags = PST_IO_STRICT;
	d = rig_do(rig_q, &io);
	T_EQ(d.res, -EOPNOTSUPP);
	T_EQ(d.prefix, 0);
	T_EQ(d.why, PST_WHY_NOT_PROVEN);
	io.op = PST_OP_WRITE;
	d = rig_do(rig_q, &io);
	T_EQ(d.res, -EOPNOTSUPP);
	T_EQ(d.why, PST_WHY_NOT_PROVEN);
	T_EQ(lie.direct, 12);
	pst_file_close(f);
	pst_mem_free(m);
}

static void strict_requests_fail(void)
{
	cache_new();
	in_child(strict_child);
}

/*
 * Another writer changes the file after each O_DIRECT operation, so a comparison always differs.
 * This must not turn O_DIRECT off: another file on the mount still uses it.
 */
static void live_child(void)
{
	struct pst_file *f = open_cold("live", RIG_RW), *g = open_cold("quiet", RIG_RW);
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);
	struct pst_done d;

	rig_mem_fill(m, 0, FILE_LEN, 4, 0);
	writer.on = true;
	for (unsigned i = 0; i < 4; i++) {
		d = read_direct(f, m, i * 65536, 65536);
		T_EQ(d.res, 65536);
		T_EQ(d.why, PST_WHY_NOT_PROVEN);
		T_CHECK(took(&d, PST_PATH_BUFFERED));
		d = rig_write(f, m, i * 65536, i * 65536, 65536);
		T_EQ(d.res, 65536);
		T_EQ(d.why, PST_WHY_NOT_PROVEN);
		T_CHECK(took(&d, PST_PATH_BUFFERED));
	}
	writer.on = false;
	T_EQ(check(g, m, PST_OP_READ, PST_PATH_DIRECT).state, PST_STATE_POSSIBLE);
	T_EQ(check(g, m, PST_OP_WRITE, PST_PATH_DIRECT).state, PST_STATE_POSSIBLE);
	d = read_direct(g, m, 0, 65536);
	T_EQ(d.res, 65536);
	T_EQ(d.why, 0);
	T_CHECK(took(&d, PST_PATH_DIRECT) && !took(&d, PST_PATH_BUFFERED));
	T_CHECK(d.flags & PST_DONE_PROOF);
	d = rig_write(g, m, 0, 0, 65536);
	T_EQ(d.why, 0);
	T_CHECK(took(&d, PST_PATH_DIRECT));
	T_EQ(check(g, m, PST_OP_READ, PST_PATH_DIRECT).state, PST_STATE_PROVEN);
	T_EQ(check(g, m, PST_OP_WRITE, PST_PATH_DIRECT).state, PST_STATE_PROVEN);
	pst_file_close(f);
	pst_file_close(g);
	pst_mem_free(m);
}

/* Another writer changes the file once, after each first operation: the retry is right, so
 * O_DIRECT stays possible. */
static void once_child(void)
{
	struct pst_file *f = open_cold("once", RIG_RW);
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);

	rig_mem_fill(m, 0, FILE_LEN, 4, 0);
	for (unsigned i = 0; i < 4; i++) {
		writer.once = true;
		T_EQ(read_direct(f, m, i * 65536, 65536).why, PST_WHY_NOT_PROVEN);
		writer.once = true;
		T_EQ(rig_write(f, m, i * 65536, i * 65536, 65536).why, PST_WHY_NOT_PROVEN);
	}
	T_EQ(lie.direct, 16); /* each operation was retried once */
	T_EQ(check(f, m, PST_OP_READ, PST_PATH_DIRECT).state, PST_STATE_POSSIBLE);
	T_EQ(check(f, m, PST_OP_WRITE, PST_PATH_DIRECT).state, PST_STATE_POSSIBLE);
	T_EQ(rig_write(f, m, 0, 0, 65536).why, 0);
	T_EQ(check(f, m, PST_OP_WRITE, PST_PATH_DIRECT).state, PST_STATE_PROVEN);
	pst_file_close(f);
	pst_mem_free(m);
}

static void one_change_is_no_lie(void)
{
	cache_new();
	in_child(once_child);
}

static void a_file_that_others_write_to_is_no_lie(void)
{
	cache_new();
	in_child(live_child);
}

/* Spoil many requests at once, while the first comparisons are still running. */
static void many_lies_child(void)
{
	struct pst_file *f = open_cold("contention", RIG_RW);
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);
	struct pst_done d[32];
	char *buf = malloc(FILE_LEN);

	lie.reads = lie.writes = true;
	for (unsigned round = 0; round < 2; round++) {
		bool write = round == 1;

		if (write)
			rig_mem_fill(m, 0, FILE_LEN, 6, 0);
		for (unsigned i = 0; i < 32; i++) {
			struct pst_io io = rig_io(write ? PST_OP_WRITE : PST_OP_READ, f, m,
						  i * 65536, i * 65536, 65536);

			io.policy = PST_POLICY2(PST_PATH_DIRECT, PST_PATH_BUFFERED);
			io.flags = PST_IO_CRC32C;
			io.user_data = i;
			T_OK(pst_queue_prep(rig_q, &io));
		}
		T_EQ(pst_queue_submit(rig_q), 32);
		T_EQ(pst_queue_reap(rig_q, d, 32, 32, t_in_ms(RIG_WAIT_MS)), 32);
		T_OK(pst_mem_copy_out(m, 0, buf, FILE_LEN));
		for (unsigned i = 0; i < 32; i++) {
			T_EQ(d[i].res, 65536);
			/* PST_WHY_MIXED: other writes were repeated through the page cache, so
			 * this write used the page cache, too. */
			T_CHECK(d[i].why == PST_WHY_NOT_PROVEN ||
				d[i].why == PST_WHY_DIRECT_ERROR ||
				(write && d[i].why == PST_WHY_MIXED));
			T_CHECK(d[i].flags & PST_DONE_CRC32C);
			T_EQ(d[i].crc32c, rig_crc32c(0, buf + d[i].user_data * 65536, 65536));
		}
		if (write)
			T_EQ(rig_slurp(rig_path("contention"), 0, buf, FILE_LEN), FILE_LEN);
		T_EQ(t_differs(buf, write ? 6 : SEED, 0, FILE_LEN), FILE_LEN);
	}
	free(buf);
	pst_file_close(f);
	pst_mem_free(m);
}

static void many_lies_at_once(void)
{
	cache_new();
	in_child(many_lies_child);
}

/* Several requests at once, each with a spoiled byte far from its start. */
static void many_long_lies_child(void)
{
	struct pst_file *f = open_cold("long", RIG_R);
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);
	uint64_t len = FILE_LEN / 4;
	struct pst_done d[4];

	lie.reads = true;
	for (unsigned i = 0; i < 4; i++) {
		struct pst_io io = rig_io(PST_OP_READ, f, m, i * len, i * len, len);

		io.policy = PST_POLICY2(PST_PATH_DIRECT, PST_PATH_BUFFERED);
		T_OK(pst_queue_prep(rig_q, &io));
	}
	T_EQ(pst_queue_submit(rig_q), 4);
	T_EQ(pst_queue_reap(rig_q, d, 4, 4, t_in_ms(RIG_WAIT_MS)), 4);
	for (unsigned i = 0; i < 4; i++) {
		T_EQ(d[i].res, (int64_t)len);
		T_EQ(d[i].flags & PST_DONE_PROOF, 0);
	}
	T_EQ(rig_mem_differs(m, 0, FILE_LEN, SEED, 0), FILE_LEN);
	T_CHECK(check(f, m, PST_OP_READ, PST_PATH_DIRECT).state != PST_STATE_PROVEN);
	pst_file_close(f);
	pst_mem_free(m);
}

static void many_long_lies_at_once(void)
{
	cache_new();
	in_child(many_long_lies_child);
}

/* A queue has cached the plan of its last request: the plan must end when another queue finds
 * that the mount lies. */
static void memo_child(void)
{
	struct pst_file *f = open_cold("lies", RIG_R), *g = open_cold("other", RIG_R);
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);
	struct pst_queue *first = rig_q, *q = rig_queue(PST_BACKEND_THREADS, 0);
	unsigned before;

	lie.reads = true;
	rig_q = q;
	T_EQ(read_direct(g, m, 0, 65536).why, PST_WHY_NOT_PROVEN);
	rig_q = first;
	for (unsigned i = 0; i < 3; i++)
		(void)read_direct(f, m, 0, 65536);
	check_off(g, m, PST_OP_READ);
	before = lie.direct;
	rig_q = q;
	for (unsigned i = 0; i < 3; i++)
		T_EQ(read_direct(g, m, 0, 65536).res, 65536);
	rig_q = first;
	T_EQ(lie.direct, before);
	T_EQ(rig_mem_differs(m, 0, 65536, SEED, 0), 65536);
	pst_queue_free(q);
	pst_file_close(f);
	pst_file_close(g);
	pst_mem_free(m);
}

static void a_bad_mount_is_bad_for_every_queue(void)
{
	cache_new();
	in_child(memo_child);
}

/* ----------------------------------------------------------------- devices */

static void lying_device_child(void)
{
	const char *name = getenv("PST_LIBCUDA");
	void *lib = name ? dlopen(name, RTLD_NOW) : NULL;
	void *fn = lib ? dlsym(lib, "stub_cuda_lose") : NULL;
	void (*lose)(unsigned to, unsigned from);
	struct pst_file *f = open_cold("device", RIG_R);
	struct pst_mem *m;
	struct pst_io io;

	if (!fn)
		T_SKIP("needs the library of tests/stub");
	memcpy(&lose, &fn, sizeof(fn));
	m = rig_alloc("cuda:0", 65536);
	io = rig_io(PST_OP_READ, f, m, 0, 0, 65536);
	for (unsigned i = 1; i < 4; i++) {
		/* Spoil only some bytes: a single one may be right by chance. */
		lose(i & 1 ? 8 : 0, i & 2 ? 8 : 0);
		T_EQ(pst_queue_prep(rig_q, &io), -EIO);
		T_CHECK(strstr(pst_error_text(), "cuda 0"));
		T_EQ(check(f, m, PST_OP_READ, PST_PATH_STAGED).state, PST_STATE_POSSIBLE);
		T_EQ(rig_stats(NULL).pool_bytes, 0);
	}
	T_EQ(pst_queue_submit(rig_q), 0);
	T_OK(pst_mem_drain(m, 0));
	lose(0, 0);
	T_EQ(rig_do(rig_q, &io).res, 65536);
	T_EQ(rig_mem_differs(m, 0, 65536, SEED, 0), 65536);
	T_EQ(check(f, m, PST_OP_READ, PST_PATH_STAGED).state, PST_STATE_PROVEN);
	pst_file_close(f);
	pst_mem_free(m);
}

static void a_lying_device_is_refused(void)
{
	cache_new();
	in_child(lying_device_child);
}

int main(void)
{
	rig_init();
	call_hook = lying_call;
	BOTH(a_proof_is_made_once);
	BOTH(write_only_files_are_proven);
	BOTH(odd_requests_are_no_lies);
	BOTH(nothing_is_behind_the_end);
	BOTH(wrong_reads_never_arrive);
	BOTH(wrong_reads_before_a_refusal);
	BOTH(wrong_writes_are_written_again);
	BOTH(strict_requests_fail);
	BOTH(a_file_that_others_write_to_is_no_lie);
	BOTH(one_change_is_no_lie);
	BOTH(many_lies_at_once);
	BOTH(many_long_lies_at_once);
	BOTH(a_bad_mount_is_bad_for_every_queue);
	rig_dev = "host";
	T_RUN(a_lying_device_is_refused);
	rig_dev = "host";
	return rig_done();
}
