/* SPDX-License-Identifier: MIT */
/*
 * An engine bounds the bytes that it reads at a time from a disk with one queue (file/disk.h):
 * enough for the disk, and without delaying others.
 */
#include "rig.h"

#include "core/sched/engine.h"
#include "core/sched/sizes.h"
#include "provider.h"
#include "symbol.h"

#define SEED 8
#define LEN RIG_MIB(64)

/* Reads of files on the disk wait at this gate. */
static struct test_gate gate = { .deaf = true };
static struct pst_file *file;
static struct pst_mem *mem;
static uint64_t begun;
static void (*delay_us)(unsigned us); /* delay each operation of a stream, in us */

static struct pst_file *open_as(uint32_t caps, unsigned disk, struct test_gate *at)
{
	struct test_plan plan = TEST_PLAN;
	struct pst_file *f;

	plan.caps = caps;
	plan.disk = (uint8_t)disk;
	test_provider_plan(&plan);
	test_gate_use(at);
	f = rig_open(rig_path("data"), RIG_R);
	test_gate_use(NULL);
	return f;
}

/* Find the delay function of the CUDA stub. */
static void find_delay(void)
{
	void *lib = dlopen(getenv("PST_LIBCUDA"), RTLD_NOW | RTLD_LOCAL);

	symbol(lib, &delay_us, "stub_cuda_delay_us");
	T_CHECK(delay_us != NULL);
}

/* Open the file for reads through the page cache, which holds all of it. */
static struct pst_file *open_on(unsigned disk, struct test_gate *at)
{
	return open_as(0, disk, at);
}

static void begin(void)
{
	test_gate_set(&gate, TEST_BAR_READ, TEST_SHUT);
	rig_make(rig_path("data"), SEED, LEN);
	file = open_on(1, &gate);
	mem = rig_alloc("soft:0", LEN);
	begun = t_now();
}

static void end(void)
{
	uint64_t until = t_hang();

	file = pst_file_close(file);
	mem = pst_mem_free(mem);
	while (atomic_load(&gate.files) && t_now() < until)
		(void)usleep(1000);
	T_EQ(atomic_load(&gate.files), 0);
}

static void submit(struct pst_queue *q, struct pst_file *f, uint64_t len)
{
	struct pst_io io = rig_io(PST_OP_READ, f, mem, 0, 0, len);

	io.user_data = len;
	T_OK(pst_queue_prep(q, &io));
	T_EQ(pst_queue_submit(q), 1);
}

/* Return the number of jobs for this number of bytes. */
static unsigned jobs(uint64_t bytes)
{
	return (unsigned)(bytes / engine_slot_size());
}

/*
 * Check that exactly want reads wait at the gate.  The engine stops counting reads that have waited
 * half a second, so on a slow machine more reads may wait there.
 */
static void expect_held(unsigned want)
{
	atomic_uint *held = &gate.held[TEST_BAR_READ];
	uint64_t until = t_hang();

	while (atomic_load(held) < want && t_now() < until)
		(void)usleep(1000);
	(void)usleep(20000);
	if (t_now() - begun < DISK_OLD_NS / 2)
		T_EQ(atomic_load(held), want);
	else
		T_CHECK(atomic_load(held) >= want);
}

static void take(struct pst_queue *q, uint64_t len)
{
	struct pst_done d = rig_reap1(q);

	T_EQ(d.res, (int64_t)len);
}

static void enough_at_a_time(void)
{
	begin();
	submit(rig_q, file, LEN);
	expect_held(jobs(DISK_BYTES));
	test_gate_set(&gate, TEST_BAR_READ, TEST_DONE);
	take(rig_q, LEN);
	T_EQ(rig_mem_differs(mem, 0, LEN, SEED, 0), LEN);
	end();
}

/* Return true if O_DIRECT works here. If so, prove it and the device's copies. */
static bool can_direct(void)
{
	struct pst_file *f = open_as(FILE_DIRECT, DISK_NONE, NULL);
	bool can = rig_file_info(f).direct;

	if (can) {
		submit(rig_q, f, LEN);
		take(rig_q, LEN);
	}
	f = pst_file_close(f);
	return can;
}

/* The engine copies what the disk has read before it starts more reads, which use the same
 * slots. */
static void copies_come_first(void)
{
	unsigned nr = jobs(DISK_BYTES);
	struct pst_file *f;
	uint64_t before;

	find_delay();
	begin();
	mem = pst_mem_free(mem);
	mem = rig_alloc("cuda:0", LEN);
	if (!can_direct()) {
		end();
		T_SKIP("O_DIRECT");
	}
	f = open_as(FILE_DIRECT, 1, &gate);
	begun = t_now();
	before = test_provider_steps();
	submit(rig_q, f, LEN);
	expect_held(nr);
	delay_us(200000);
	test_gate_set(&gate, TEST_BAR_READ, TEST_DONE);
	while (test_provider_steps() - before < nr && t_now() - begun < DISK_OLD_NS / 2)
		(void)usleep(1000);
	(void)usleep(20000);
	if (t_now() - begun < DISK_OLD_NS / 2)
		T_EQ(test_provider_steps() - before, nr);
	delay_us(0);
	take(rig_q, LEN);
	T_EQ(rig_mem_differs(mem, 0, LEN, SEED, 0), LEN);
	f = pst_file_close(f);
	end();
}

/* Return true if the engine reads the disk while the device still copies cached bytes.  Return
 * false if the read did not begin, or began so late that the engine may have ceased to count the
 * copies. */
static bool read_meanwhile(void)
{
	struct pst_file *f = open_on(1, NULL);
	uint64_t until = t_hang(), steps, took;

	/* Prove the device's copies first. */
	submit(rig_q, f, LEN);
	take(rig_q, LEN);
	steps = test_provider_steps();
	delay_us(DISK_OLD_NS / 1000 + 100000);
	begun = t_now();
	submit(rig_q, f, LEN);
	while (test_provider_steps() - steps < jobs(DISK_BYTES) && t_now() < until)
		(void)usleep(1000);
	(void)usleep(20000);
	submit(rig_q, file, LEN / 2);
	while (!atomic_load(&gate.held[TEST_BAR_READ]) && t_now() < until)
		(void)usleep(1000);
	took = t_now() - begun;
	delay_us(0);
	test_gate_set(&gate, TEST_BAR_READ, TEST_DONE);
	for (unsigned i = 0; i < 2; i++) {
		struct pst_done d = rig_reap1(rig_q);

		T_EQ(d.res, (int64_t)d.user_data);
	}
	test_gate_set(&gate, TEST_BAR_READ, TEST_SHUT);
	f = pst_file_close(f);
	return took < DISK_OLD_NS / 2;
}

static void what_memory_held_counts_no_more(void)
{
	bool read = false;

	find_delay();
	begin();
	mem = pst_mem_free(mem);
	mem = rig_alloc("cuda:0", LEN);
	for (unsigned i = 0; i < 5 && !read; i++)
		read = read_meanwhile();
	T_CHECK(read);
	T_EQ(rig_mem_differs(mem, 0, LEN, SEED, 0), LEN);
	end();
}

static void no_bound_elsewhere(void)
{
	uint64_t until = t_hang();
	struct pst_file *other;

	begin();
	other = open_on(DISK_NONE, &gate);
	submit(rig_q, other, LEN);
	while (atomic_load(&gate.held[TEST_BAR_READ]) <= jobs(DISK_BYTES) && t_now() < until)
		(void)usleep(1000);
	T_CHECK(atomic_load(&gate.held[TEST_BAR_READ]) > jobs(DISK_BYTES));
	test_gate_set(&gate, TEST_BAR_READ, TEST_DONE);
	take(rig_q, LEN);
	other = pst_file_close(other);
	end();
}

static void others_have_their_part(void)
{
	struct pst_queue *q = rig_queue(rig_backend, 0);
	struct pst_file *other;

	begin();
	other = open_on(DISK_NONE, NULL);
	submit(rig_q, file, LEN);
	expect_held(jobs(DISK_BYTES));
	/* A read of another disk does not wait. */
	submit(q, other, LEN);
	take(q, LEN);
	/* A queue with no reads of this disk gets a share, too. */
	submit(q, file, LEN);
	expect_held(jobs(DISK_BYTES + DISK_BYTES / 2));
	test_gate_set(&gate, TEST_BAR_READ, TEST_DONE);
	take(q, LEN);
	take(rig_q, LEN);
	T_EQ(rig_mem_differs(mem, 0, LEN, SEED, 0), LEN);
	pst_queue_free(q);
	other = pst_file_close(other);
	end();
}

/* Fill the bound of one disk, then read another by the same queue.  Return true if that read did
 * not wait. */
static bool reads_another_disk(struct pst_queue *q)
{
	struct pst_file *other, *good;
	bool at_once;

	begin();
	other = open_on(2, &gate);
	good = open_on(2, NULL);
	submit(q, other, LEN);
	expect_held(jobs(DISK_BYTES));
	submit(rig_q, file, LEN);
	expect_held(2 * jobs(DISK_BYTES));
	submit(rig_q, good, RIG_MIB(1));
	take(rig_q, RIG_MIB(1));
	at_once = t_now() - begun < DISK_OLD_NS;
	test_gate_set(&gate, TEST_BAR_READ, TEST_DONE);
	take(q, LEN);
	take(rig_q, LEN);
	other = pst_file_close(other);
	good = pst_file_close(good);
	end();
	return at_once;
}

static void each_disk_has_its_part(void)
{
	struct pst_queue *q = rig_queue(rig_backend, 0);
	bool at_once = false;

	for (unsigned i = 0; i < 5 && !at_once; i++)
		at_once = reads_another_disk(q);
	T_CHECK(at_once);
	pst_queue_free(q);
}

/* Cancelled reads do not count, even if they hang. */
static void what_was_stopped_counts_no_more(void)
{
	struct pst_done d;

	begin();
	submit(rig_q, file, LEN);
	expect_held(jobs(DISK_BYTES));
	submit(rig_q, file, LEN / 2);
	expect_held(jobs(DISK_BYTES));
	T_EQ(pst_queue_cancel(rig_q, LEN), 1);
	expect_held(2 * jobs(DISK_BYTES));
	test_gate_set(&gate, TEST_BAR_READ, TEST_DONE);
	for (unsigned i = 0; i < 2; i++) {
		d = rig_reap1(rig_q);
		T_EQ(d.res, d.user_data == LEN ? -ECANCELED : (int64_t)(LEN / 2));
	}
	T_EQ(rig_mem_differs(mem, 0, LEN / 2, SEED, 0), LEN / 2);
	end();
}

/* Hung reads delay other reads of their queue and disk only for a while. */
static void what_hangs_counts_no_more(void)
{
	struct pst_queue *q = rig_queue(rig_backend, 0);
	struct pst_file *good;
	struct pst_done d;

	begin();
	good = open_on(1, NULL);
	submit(q, file, LEN);
	expect_held(jobs(DISK_BYTES));
	for (unsigned i = 0; i < 4; i++) {
		submit(q, good, LEN / 2);
		d = rig_reap1(q);
		T_EQ(d.res, LEN / 2);
	}
	test_gate_set(&gate, TEST_BAR_READ, TEST_DONE);
	take(q, LEN);
	T_EQ(rig_mem_differs(mem, 0, LEN, SEED, 0), LEN);
	pst_queue_free(q);
	good = pst_file_close(good);
	end();
}

#define NR_IN_ORDER 128u
#define SMALL UINT64_C(65536)

/* Read a file that is not cached, in order. Return how many reads used O_DIRECT. */
static unsigned read_in_order(struct pst_queue *q, struct pst_file *f, unsigned at_a_time,
			      uint64_t len)
{
	unsigned nr_direct = 0;

	rig_cold(rig_path("data"));
	for (unsigned i = 0; i < NR_IN_ORDER + at_a_time; i++) {
		struct pst_io io = rig_io(PST_OP_READ, f, mem, i * len, i * len, len);
		struct pst_done d;

		if (i < NR_IN_ORDER)
			T_OK(pst_queue_prep(q, &io));
		if (i + 1 < at_a_time)
			continue;
		T_CHECK(pst_queue_submit(q) >= 0);
		if (i < at_a_time)
			continue;
		d = rig_reap1(q);
		T_EQ(d.res, (int64_t)len);
		nr_direct += d.paths & PST_PATH_BIT(PST_PATH_DIRECT) ? 1 : 0;
	}
	T_EQ(rig_mem_differs(mem, 0, NR_IN_ORDER * len, SEED, 0), NR_IN_ORDER * len);
	return nr_direct;
}

static unsigned direct_of(unsigned disk, unsigned at_a_time, uint64_t len)
{
	struct pst_queue *q = rig_queue(rig_backend, 0);
	struct test_plan plan = TEST_PLAN;
	struct pst_file *f;
	unsigned nr;

	plan.disk = (uint8_t)disk;
	test_provider_plan(&plan);
	f = rig_open(rig_path("data"), RIG_R);
	nr = read_in_order(q, f, at_a_time, len);
	pst_queue_free(q);
	f = pst_file_close(f);
	return nr;
}

/* Try several times: on a busy machine all reads in flight may end before the test's thread runs
 * again, and then look like single reads. */
static bool mostly_direct(unsigned disk, unsigned at_a_time, uint64_t len)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < 4 && nr < NR_IN_ORDER / 2; i++)
		nr = direct_of(disk, at_a_time, len);
	return nr >= NR_IN_ORDER / 2;
}

static void begin_direct(void)
{
	begin();
	if (can_direct())
		return;
	end();
	T_SKIP("O_DIRECT");
}

/* On a disk with one queue, a few concurrent small reads in order are left to read-ahead.  Reads of
 * other disks, more reads and larger reads use O_DIRECT. */
static void small_reads_go_ahead(void)
{
	begin_direct();
	T_CHECK(direct_of(1, 15, SMALL) <= NR_IN_ORDER / 4);
	T_CHECK(mostly_direct(DISK_NONE, 15, SMALL));
	T_CHECK(mostly_direct(1, 64, SMALL));
	T_CHECK(mostly_direct(1, 7, 2 * SMALL));
	end();
}

/* Submit small reads of the second half of the file, which is not cached. */
static void submit_small(struct pst_queue *q, struct pst_file *f, unsigned nr)
{
	rig_cold(rig_path("data"));
	for (unsigned i = 0; i < nr; i++) {
		uint64_t off = LEN / 2 + i * SMALL;
		struct pst_io io = rig_io(PST_OP_READ, f, mem, off, off, SMALL);

		io.user_data = SMALL;
		T_OK(pst_queue_prep(q, &io));
	}
	T_EQ(pst_queue_submit(q), nr);
}

/* Reads one by one are left to read-ahead even if another queue has many unreaped reads. */
static void others_do_not_hinder(void)
{
	enum { NR = 32 };
	struct pst_queue *q;
	struct pst_file *f;

	begin_direct();
	q = rig_queue(rig_backend, NR);
	f = open_as(UINT32_MAX, 1, NULL);
	submit_small(q, f, NR);
	T_CHECK(direct_of(1, 1, SMALL) <= NR_IN_ORDER / 4);
	for (unsigned i = 0; i < NR; i++)
		take(q, SMALL);
	pst_queue_free(q);
	f = pst_file_close(f);
	end();
}

/* Cancelled reads, even hung ones, must not keep other reads from read-ahead. */
static void what_was_cancelled_does_not_hinder(void)
{
	enum { NR = 40 };
	struct pst_queue *q;
	struct pst_file *f;

	begin_direct();
	q = rig_queue(rig_backend, NR);
	f = open_as(UINT32_MAX, 1, &gate);
	submit_small(q, f, NR);
	T_EQ(pst_queue_cancel(q, SMALL), NR);
	for (unsigned i = 0; i < NR; i++)
		T_EQ(rig_reap1(q).res, -ECANCELED);
	T_CHECK(direct_of(1, 15, SMALL) <= NR_IN_ORDER / 4);
	test_gate_set(&gate, TEST_BAR_READ, TEST_DONE);
	pst_queue_free(q);
	f = pst_file_close(f);
	end();
}

/* Many requests wait and some are cancelled: each completes. */
static void many_wait(void)
{
	enum { NR = 400, PIECE = 131072 };
	struct pst_queue *q = rig_queue(rig_backend, NR);
	struct pst_io io = rig_io(PST_OP_READ, file, mem, 0, 0, PIECE);
	unsigned canceled = 0, stopped = 0;

	begin();
	io.file = file;
	io.mem = mem;
	for (unsigned i = 0; i < NR; i++) {
		io.file_off = io.mem_off = i * (uint64_t)PIECE % LEN;
		io.user_data = i;
		T_OK(pst_queue_prep(q, &io));
	}
	T_EQ(pst_queue_submit(q), NR);
	expect_held((unsigned)(DISK_BYTES / PIECE));
	for (unsigned i = 0; i < NR; i += 3)
		stopped += pst_queue_cancel(q, i) == 1;
	test_gate_set(&gate, TEST_BAR_READ, TEST_DONE);
	for (unsigned i = 0; i < NR; i++) {
		struct pst_done d = rig_reap1(q);

		T_CHECK(d.res == PIECE || d.res == -ECANCELED);
		canceled += d.res == -ECANCELED;
	}
	T_EQ(canceled, stopped);
	T_CHECK(stopped > NR / 4);
	pst_queue_free(q);
	end();
}

int main(void)
{
	rig_init();
	/* The test provider reads its plan from the environment when the first file is opened. */
	rig_make(rig_path("data"), SEED, LEN);
	pst_file_close(rig_open(rig_path("data"), RIG_R));
	RIG_RUN_BACKENDS(enough_at_a_time);
	RIG_RUN_BACKENDS(copies_come_first);
	RIG_RUN_BACKENDS(what_memory_held_counts_no_more);
	RIG_RUN_BACKENDS(no_bound_elsewhere);
	RIG_RUN_BACKENDS(others_have_their_part);
	RIG_RUN_BACKENDS(each_disk_has_its_part);
	RIG_RUN_BACKENDS(what_was_stopped_counts_no_more);
	RIG_RUN_BACKENDS(what_hangs_counts_no_more);
	RIG_RUN_BACKENDS(many_wait);
	RIG_RUN_BACKENDS(small_reads_go_ahead);
	RIG_RUN_BACKENDS(others_do_not_hinder);
	RIG_RUN_BACKENDS(what_was_cancelled_does_not_hinder);
	return rig_done();
}
