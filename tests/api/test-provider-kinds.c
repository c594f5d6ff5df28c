/* SPDX-License-Identifier: MIT */
/*
 * Files of providers with I/O contexts of their own: several kinds in one queue, operations that
 * hang or fail, and what such files do not offer.
 */
#include <poll.h>

#include "rig.h"

#include "provider.h"

#define SEED 5
#define LEN RIG_MIB(4)
#define PIECE 65536u
#define HANG 1048576u /* file offset at which operations hang */
#define LONG 1048576u /* bytes; too many for the caller to move to a device itself */
#define HANGS_MS 1500 /* ms; deadline of requests that hang, long enough to reach the provider */

static struct test_plan plan = TEST_PLAN;

static void plan_set(void)
{
	test_provider_plan(&plan);
}

static void plan_reset(void)
{
	plan = (struct test_plan)TEST_PLAN;
	plan.seed = 3;
	plan.delay_us = 100;
	plan_set();
}

static struct pst_file *open_as(const char *scheme, uint32_t flags)
{
	char name[600];

	(void)snprintf(name, sizeof(name), "%s%s", scheme, rig_path("data"));
	return rig_open(name, flags);
}

static struct pst_file *open_local(uint32_t flags)
{
	int fd = open(rig_path("data"), (flags & PST_FILE_WRITE ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	struct pst_file *f = NULL;

	T_CHECK(fd >= 0);
	T_OK(pst_file_wrap(fd, 0, NULL, &f));
	(void)close(fd);
	return f;
}

/* test files and I/O contexts that exist before the case */
static unsigned files, ctxs;

static void make(void)
{
	uint64_t end = t_in_ms(2000);

	plan_reset();
	while (test_provider_hanging() && t_now() < end)
		(void)usleep(1000);
	files = test_provider_files();
	ctxs = test_provider_ctxs();
	rig_make(rig_path("data"), SEED, LEN);
}

static void quiet(void)
{
	uint64_t end = t_hang();

	rig_q = pst_queue_free(rig_q);
	while ((test_provider_ctxs() > ctxs || test_provider_files() > files) && t_now() < end) {
		(void)rig_stats(NULL);
		(void)usleep(1000);
	}
	T_EQ(test_provider_ctxs(), ctxs);
	T_EQ(test_provider_hanging(), 0);
	T_EQ(test_provider_files(), files);
}

static void prep_at(struct pst_file *f, struct pst_mem *m, uint32_t op, uint64_t off, uint64_t len,
		    uint64_t user_data)
{
	struct pst_io io = rig_io(op, f, m, off, off, len);

	io.user_data = user_data;
	T_OK(pst_queue_prep(rig_q, &io));
}

static void reap_all(unsigned nr)
{
	struct pst_done d[64];

	for (unsigned n = 0; n < nr;) {
		int r = (int)pst_queue_reap(rig_q, d, 1, RIG_NR(d), t_in_ms(RIG_WAIT_MS));

		T_CHECK(r > 0);
		for (int i = 0; i < r; i++)
			if (d[i].res != PIECE) {
				rig_show(&d[i]);
				T_FAIL("a request ended with %lld", (long long)d[i].res);
			}
		n += (unsigned)r;
	}
}

/* Three kinds of I/O contexts in one queue. */
static void kinds_side_by_side(void)
{
	struct pst_file *f[3];
	struct pst_mem *m;

	make();
	plan.split = true;
	plan.delay_us = 300;
	plan_set();
	f[0] = open_as("test://", RIG_RW);
	f[1] = open_as("twin://", RIG_RW);
	f[2] = open_local(RIG_RW);
	m = rig_alloc(rig_dev, LEN);
	T_EQ(test_provider_ctxs(), ctxs);
	for (unsigned i = 0; i < LEN / PIECE; i++)
		prep_at(f[i % 3], m, PST_OP_READ, (uint64_t)i * PIECE, PIECE, i);
	/* One context for each kind in the queue, besides those of workers. */
	T_EQ(test_provider_ctxs(), ctxs + 2);
	T_EQ(pst_queue_submit(rig_q), LEN / PIECE);
	reap_all(LEN / PIECE);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	rig_mem_fill(m, 0, LEN, SEED + 1, 0);
	for (unsigned i = 0; i < LEN / PIECE; i++)
		prep_at(f[i % 3], m, PST_OP_WRITE, (uint64_t)i * PIECE, PIECE, i);
	T_EQ(pst_queue_submit(rig_q), LEN / PIECE);
	reap_all(LEN / PIECE);
	for (unsigned i = 0; i < 3; i++)
		T_EQ(rig_sync(f[i]).res, 0);
	rig_mem_fill(m, 0, LEN, 0, 0);
	for (unsigned i = 0; i < LEN / PIECE; i++)
		prep_at(f[(i + 1) % 3], m, PST_OP_READ, (uint64_t)i * PIECE, PIECE, i);
	T_EQ(pst_queue_submit(rig_q), LEN / PIECE);
	reap_all(LEN / PIECE);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED + 1, 0), LEN);
	for (unsigned i = 0; i < 3; i++)
		(void)pst_file_close(f[i]);
	(void)pst_mem_free(m);
	quiet();
}

static void wait_hanging(unsigned nr)
{
	uint64_t end = t_hang();

	while (test_provider_hanging() != nr && t_now() < end)
		(void)usleep(1000);
	T_EQ(test_provider_hanging(), nr);
}

/* Let operations at HANG hang, in files of both kinds.  With deaf, a cancel does not reach them. */
static void plan_hang(bool deaf, struct pst_file **ret_test, struct pst_file **ret_twin)
{
	make();
	plan.hang_off = HANG;
	plan.deaf = deaf;
	plan_set();
	*ret_test = open_as("test://", RIG_R);
	*ret_twin = open_as("twin://", RIG_R);
}

/* A request that hangs in one kind must not delay those of another kind, and can be cancelled. */
static void a_cancel_among_kinds(void)
{
	struct pst_file *test, *twin, *local;
	struct pst_done d;
	struct pst_mem *m;

	plan_hang(false, &test, &twin);
	local = open_local(RIG_R);
	m = rig_alloc(rig_dev, LEN);
	prep_at(twin, m, PST_OP_READ, HANG, LONG, 1);
	prep_at(test, m, PST_OP_READ, HANG, LONG, 2);
	T_EQ(pst_queue_submit(rig_q), 2);
	wait_hanging(2);
	for (unsigned i = 0; i < 20; i++) {
		prep_at(i % 2 ? test : local, m, PST_OP_READ, i % 8 * PIECE, PIECE, 3);
		T_EQ(pst_queue_submit(rig_q), 1);
		d = rig_reap1(rig_q);
		T_EQ(d.user_data, 3);
		T_EQ(d.res, PIECE);
	}
	T_EQ(pst_queue_cancel(rig_q, 1), 1);
	d = rig_reap1(rig_q);
	T_EQ(d.user_data, 1);
	T_EQ(d.res, -ECANCELED);
	if (!rig_soft())
		T_CHECK(!(d.flags & PST_DONE_BUSY));
	wait_hanging(1); /* an engine's worker cancels a moment later */
	plan_reset();
	d = rig_reap1(rig_q);
	T_EQ(d.user_data, 2);
	T_EQ(d.res, LONG);
	(void)pst_file_close(test);
	(void)pst_file_close(twin);
	(void)pst_file_close(local);
	(void)pst_mem_free(m);
	quiet();
}

/*
 * The provider never answers: the deadline ends the request, and its memory is busy until the
 * provider answers.
 */
static void a_deadline_among_kinds(void)
{
	struct pst_file *test, *twin;
	struct pst_io io;
	struct pst_done d;
	struct pst_mem *m;

	plan_hang(true, &test, &twin);
	m = rig_alloc(rig_dev, LEN);
	rig_mem_fill(m, 0, LEN, SEED + 1, 0);
	io = rig_io(PST_OP_READ, twin, m, HANG, 0, PIECE);
	io.deadline_ns = t_in_ms(HANGS_MS);
	T_OK(pst_queue_prep(rig_q, &io));
	io = rig_io(PST_OP_READ, test, m, HANG, PIECE, PIECE);
	io.deadline_ns = t_in_ms(HANGS_MS + 50);
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 2);
	wait_hanging(2);
	for (unsigned i = 0; i < 2; i++) {
		d = rig_reap1(rig_q);
		T_EQ(d.res, -ETIMEDOUT);
		if (!rig_soft())
			T_CHECK(d.flags & PST_DONE_BUSY);
	}
	T_EQ(test_provider_hanging(), 2);
	T_EQ(pst_file_drain(twin, 0), -EBUSY);
	if (!rig_soft())
		T_EQ(pst_mem_drain(m, 0), -EBUSY);
	T_EQ(rig_stats(rig_q).busy, 2);
	plan_reset();
	T_OK(pst_file_drain(twin, t_in_ms(RIG_WAIT_MS)));
	T_OK(pst_file_drain(test, t_in_ms(RIG_WAIT_MS)));
	T_OK(pst_mem_drain(m, t_in_ms(RIG_WAIT_MS)));
	T_EQ(test_provider_hanging(), 0);
	(void)pst_file_close(test);
	(void)pst_file_close(twin);
	(void)pst_mem_free(m);
	quiet();
}

/* The provider does not answer: after the deadline nothing holds files, memory or slots. */
static void a_deadline_cancels(void)
{
	const unsigned nr = 24;
	struct pst_file *test, *twin;
	struct pst_done d;
	struct pst_io io;
	struct pst_mem *m;

	plan_hang(false, &test, &twin);
	m = rig_alloc(rig_dev, LEN);
	for (unsigned i = 0; i < nr; i++) {
		io = rig_io(PST_OP_READ, i % 2 ? test : twin, m, HANG, 0, LONG);
		io.deadline_ns = t_in_ms(HANGS_MS);
		T_OK(pst_queue_prep(rig_q, &io));
	}
	T_EQ(pst_queue_submit(rig_q), nr);
	for (unsigned i = 0; i < nr; i++) {
		d = rig_reap1(rig_q);
		T_EQ(d.res, -ETIMEDOUT);
	}
	T_OK(pst_file_drain(twin, t_in_ms(RIG_WAIT_MS)));
	T_OK(pst_file_drain(test, t_in_ms(RIG_WAIT_MS)));
	T_OK(pst_mem_drain(m, t_in_ms(RIG_WAIT_MS)));
	T_EQ(test_provider_hanging(), 0);
	T_EQ(rig_read(test, m, 0, 0, PIECE).res, PIECE);
	(void)pst_file_close(test);
	(void)pst_file_close(twin);
	(void)pst_mem_free(m);
	plan_reset();
	quiet();
}

/* A sync waits for a write that hangs.  At the write's deadline the sync starts and fails at
 * once, in the same call. */
static void a_sync_refused_at_a_deadline(void)
{
	struct pst_file *f;
	struct pst_done d;
	struct pst_io io;
	struct pst_mem *m;

	make();
	plan.hang_off = HANG;
	plan.deaf = true;
	plan.sync_err = -ENOMEM;
	plan_set();
	f = open_as("test://", RIG_RW);
	m = rig_alloc(rig_dev, LEN);
	io = rig_io(PST_OP_WRITE, f, m, HANG, 0, PIECE);
	io.user_data = 1;
	io.deadline_ns = t_in_ms(HANGS_MS);
	T_OK(pst_queue_prep(rig_q, &io));
	io = (struct pst_io){ .op = PST_OP_SYNC, .file = f, .user_data = 2 };
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 2);
	wait_hanging(1);
	d = rig_reap1(rig_q);
	T_EQ(d.user_data, 1);
	T_EQ(d.res, -ETIMEDOUT);
	d = rig_reap1(rig_q);
	T_EQ(d.user_data, 2);
	T_EQ(d.res, -ENOMEM);
	T_EQ(rig_stats(rig_q).inflight, 0);
	plan_reset();
	T_OK(pst_file_drain(f, t_in_ms(RIG_WAIT_MS)));
	(void)pst_file_close(f);
	(void)pst_mem_free(m);
	quiet();
}

/* Free a queue whose operation hangs: I/O context and file are freed once it has ended. */
static void a_queue_freed_while_it_hangs(void)
{
	struct pst_file *f;
	struct pst_mem *m;
	uint64_t start;

	make();
	plan.hang_off = HANG;
	plan.deaf = true;
	plan_set();
	f = open_as("test://", RIG_R);
	m = rig_alloc(rig_dev, LEN);
	prep_at(f, m, PST_OP_READ, HANG, PIECE, 1);
	T_EQ(pst_queue_submit(rig_q), 1);
	wait_hanging(1);
	start = t_now();
	rig_q = pst_queue_free(rig_q);
	T_CHECK(t_now() - start < UINT64_C(5000000000));
	(void)pst_file_close(f);
	(void)pst_mem_free(m);
	T_CHECK(test_provider_ctxs() > ctxs);
	T_EQ(test_provider_files(), files + 1);
	plan_reset();
	quiet();
}

/* No I/O context can be made, neither for the queue nor for a worker. */
static void no_context(void)
{
	static const struct {
		int err, prep;
	} errs[] = { { -ENOMEM, -ENOMEM }, { -EMFILE, -EMFILE }, { -EAGAIN, -EBUSY } };
	struct pst_file *f, *local;
	struct pst_mem *m;
	struct pst_done d;
	struct pst_io io;

	make();
	f = open_as("test://", RIG_R);
	local = open_local(RIG_R);
	m = rig_alloc(rig_dev, LEN);
	io = rig_io(PST_OP_READ, f, m, 0, 0, PIECE);
	for (unsigned i = 0; i < RIG_NR(errs); i++) {
		plan.ctx_err = errs[i].err;
		plan_set();
		T_EQ(pst_queue_prep(rig_q, &io), errs[i].prep);
		T_CHECK(strstr(pst_error_text(), "no I/O context"));
		/* The failure leaves nothing behind: other requests complete. */
		T_EQ(rig_read(local, m, 0, 0, PIECE).res, PIECE);
	}
	plan_reset();
	if (rig_soft()) {
		/* A window would use the queue's context: use a worker. */
		io.policy = PST_POLICY2(PST_PATH_STAGED, PST_PATH_BUFFERED);
		T_OK(pst_queue_prep(rig_q, &io));
		plan.ctx_err = -ENOMEM;
		plan_set();
		T_EQ(pst_queue_submit(rig_q), 1);
		d = rig_reap1(rig_q);
		T_EQ(d.res, -ENOMEM);
		T_EQ(d.prefix, 0);
		T_EQ(rig_read(local, m, 0, 0, PIECE).res, PIECE);
		plan_reset();
	}
	d = rig_read(f, m, 0, 0, PIECE);
	T_EQ(d.res, PIECE);
	T_EQ(rig_mem_differs(m, 0, PIECE, SEED, 0), PIECE);
	(void)pst_file_close(f);
	(void)pst_file_close(local);
	(void)pst_mem_free(m);
	quiet();
}

/* Fail each step of an operation in turn, until none is left. */
static void every_step_fails(uint32_t op)
{
	unsigned failed = 0, n;

	for (n = 1; n < 500; n++) {
		struct pst_mem *m = rig_alloc(rig_dev, RIG_MIB(1));
		char *buf = malloc(RIG_MIB(1));
		struct pst_file *f;
		struct pst_done d;
		uint64_t told;

		plan.caps = 0; /* one operation of many steps, and no other path */
		plan_set();
		f = open_as("test://", RIG_RW);

		T_CHECK(buf);
		rig_mem_fill(m, 0, RIG_MIB(1), op == PST_OP_WRITE ? SEED : SEED + 9, 0);
		plan.fail_nth = n;
		plan.fail_err = -EIO;
		plan.split = true;
		plan.delay_us = 0;
		plan_set();
		d = op == PST_OP_READ ? rig_read(f, m, 0, 0, RIG_MIB(1))
				      : rig_write(f, m, 0, 0, RIG_MIB(1));
		plan_reset();
		told = d.res < 0 ? d.prefix : (uint64_t)d.res;
		T_CHECK(d.res == -EIO || d.res == (int64_t)RIG_MIB(1));
		T_CHECK(told <= RIG_MIB(1));
		if (op == PST_OP_READ && told)
			T_EQ(rig_mem_differs(m, 0, told, SEED, 0), told);
		if (op == PST_OP_WRITE && told)
			T_CHECK(rig_slurp(rig_path("data"), 0, buf, told) == told &&
				t_differs(buf, SEED, 0, told) == told);
		failed += d.res < 0;
		free(buf);
		(void)pst_file_close(f);
		(void)pst_mem_free(m);
		if (d.res > 0 && n > failed + 3)
			break;
	}
	T_CHECK(failed > 1 && n < 500);
}

static void reads_that_fail(void)
{
	make();
	every_step_fails(PST_OP_READ);
	quiet();
}

static void writes_that_fail(void)
{
	make();
	every_step_fails(PST_OP_WRITE);
	quiet();
}

/* The provider claims O_DIRECT and refuses it. */
static void direct_refused(void)
{
	struct pst_file_info info;
	struct pst_file *f;
	struct pst_mem *m;
	struct pst_done d;
	struct pst_io io;

	make();
	plan.refuse_direct = true;
	plan_set();
	f = open_as("test://", RIG_R);
	info = rig_file_info(f);
	if (!info.direct) {
		(void)pst_file_close(f);
		T_SKIP("a file system with O_DIRECT");
	}
	m = rig_alloc(rig_dev, LEN);
	io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
	io.policy = rig_soft() ? PST_POLICY3(PST_PATH_STAGED, PST_PATH_DIRECT, PST_PATH_BUFFERED)
			       : PST_POLICY2(PST_PATH_DIRECT, PST_PATH_BUFFERED);
	d = rig_do(rig_q, &io);
	T_EQ(d.res, (int64_t)LEN);
	T_EQ(d.why, PST_WHY_DIRECT_ERROR);
	/* A job that starts after the refusal does not try, so it has no errno. */
	T_CHECK(d.detail == EINVAL || (rig_soft() && !d.detail));
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	T_CHECK(!rig_file_info(f).direct);
	(void)pst_file_close(f);
	(void)pst_mem_free(m);
	quiet();
}

/* Files for which the provider offers nothing but reads and writes. */
static void bare_files(void)
{
	const uint32_t dev = rig_soft() ? PST_PATH_BIT(PST_PATH_STAGED) : 0;
	struct pst_path_info info = { .sz = sizeof(info) };
	struct pst_file *f;
	struct pst_mem *m;
	struct pst_done d;
	struct pst_io io;

	make();
	plan.caps = 0;
	plan_set();
	f = open_as("test://", RIG_RW | PST_FILE_STABLE);
	m = rig_alloc(rig_dev, LEN);
	T_CHECK(!rig_file_info(f).direct && rig_file_info(f).why == PST_WHY_NONE);
	/* There is no better path, so strict requests succeed on either back end. */
	for (unsigned i = 0; i < 20; i++) {
		io = rig_io(PST_OP_READ, f, m, 7, 0, LEN - 7);
		io.flags = PST_IO_STRICT;
		d = rig_do(rig_q, &io);
		T_EQ(d.res, (int64_t)LEN - 7);
		T_EQ(d.why, PST_WHY_NONE);
		T_EQ(d.paths, PST_PATH_BIT(PST_PATH_BUFFERED) | dev);
	}
	T_EQ(rig_mem_differs(m, 0, LEN - 7, SEED, 7), LEN - 7);
	T_OK(pst_path_check(f, m, PST_OP_READ, PST_PATH_CACHED, &info));
	T_EQ(info.why, PST_WHY_NO_PROVIDER);
	T_OK(pst_path_check(f, m, PST_OP_READ, PST_PATH_DIRECT, &info));
	T_EQ(info.why, PST_WHY_NO_DIRECT);
	T_OK(pst_path_check(f, m, PST_OP_READ, PST_PATH_PAGECACHE, &info));
	T_EQ(info.why, PST_WHY_NO_PROVIDER);
	io.policy = PST_POLICY1(PST_PATH_CACHED);
	d = rig_do(rig_q, &io);
	T_EQ(d.res, -EOPNOTSUPP);
	T_EQ(d.why, PST_WHY_NO_PROVIDER);
	rig_mem_fill(m, 0, LEN, SEED + 2, 0);
	d = rig_write(f, m, 0, 0, LEN);
	T_EQ(d.res, (int64_t)LEN);
	T_EQ(d.why, PST_WHY_NONE);
	T_EQ(rig_sync(f).res, 0);
	T_EQ(rig_sync(f).why, PST_WHY_NONE);
	(void)pst_file_close(f);
	(void)pst_mem_free(m);
	quiet();
}

/* Sleep on the descriptor; the second kind gets its I/O context while the queue is armed. */
static void wakes_by_descriptor(void)
{
	struct pst_file *f[2];
	struct pollfd p = { .events = POLLIN };
	struct pst_done d;
	struct pst_mem *m;

	make();
	plan.delay_us = 2000;
	plan_set();
	f[0] = open_as("test://", RIG_R);
	f[1] = open_as("twin://", RIG_R);
	m = rig_alloc(rig_dev, LEN);
	p.fd = pst_queue_fd(rig_q);
	T_CHECK(p.fd >= 0);
	for (unsigned i = 0; i < 100; i++) {
		prep_at(f[i % 2], m, PST_OP_READ, i % 32 * PIECE, PIECE, i);
		T_EQ(pst_queue_submit(rig_q), 1);
		while (pst_queue_reap(rig_q, &d, 0, 1, 0) == 0)
			T_EQ(poll(&p, 1, 10000), 1);
		T_EQ(d.user_data, i);
		T_EQ(d.res, PIECE);
	}
	(void)pst_file_close(f[0]);
	(void)pst_file_close(f[1]);
	(void)pst_mem_free(m);
	quiet();
}

/*
 * Files of the test provider, with two differences: each open counts as a new mount, so O_DIRECT
 * must be proven again; and keep_stamps blocks the comparison.
 */
static struct file_ops slow_ops;
static atomic_bool keep_stamps, kept;

static int slow_open(const char *name, uint32_t flags, uint32_t mode, struct file **ret)
{
	int r = test_file_ops.open(name, flags, mode, ret);

	if (r == 0)
		(*ret)->ops = &slow_ops;
	return r;
}

static bool slow_place(const struct file *f, char *buf, size_t size)
{
	static atomic_uint nr;

	(void)f;
	(void)snprintf(buf, size, "place %u", atomic_fetch_add(&nr, 1));
	return false;
}

static int slow_stamp(const struct file *f, struct file_stamp *ret)
{
	int r = test_file_ops.stamp(f, ret);

	while (atomic_load(&keep_stamps)) {
		atomic_store(&kept, true);
		(void)usleep(1000);
	}
	return r;
}

static void wait_for(atomic_bool *what)
{
	uint64_t until = t_hang();

	while (!atomic_load(what) && t_now() < until)
		(void)usleep(1000);
	T_CHECK(atomic_load(what));
}

static bool holds_a_read(const struct test_gate *g)
{
	uint64_t until = t_hang();

	while (!atomic_load(&g->held[TEST_BAR_READ]) && t_now() < until)
		(void)usleep(1000);
	return atomic_load(&g->held[TEST_BAR_READ]);
}

/*
 * Cancel a write while it is compared, after another program has overwritten its bytes: the
 * memory can be freed.
 */
static void freed_under_a_comparison(void)
{
	static struct test_gate gate = { .deaf = true };
	static const char zero[PIECE];
	struct pst_file *f;
	struct pst_mem *m;
	struct pst_done d;
	struct pst_io io;
	int fd;

	make();
	test_gate_set(&gate, TEST_BAR_READ, TEST_SHUT);
	test_gate_set(&gate, TEST_BAR_WRITE, TEST_DONE);
	test_gate_use(&gate);
	f = open_as("slow://", RIG_RW);
	test_gate_use(NULL);
	if (!rig_file_info(f).direct) {
		f = pst_file_close(f);
		quiet();
		T_SKIP("O_DIRECT");
	}
	m = rig_alloc(rig_dev, LEN);
	rig_mem_fill(m, 0, PIECE, SEED + 1, 0);
	io = rig_io(PST_OP_WRITE, f, m, 0, 0, PIECE);
	io.policy = PST_POLICY2(PST_PATH_STAGED, PST_PATH_DIRECT);
	io.user_data = 1;
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 1);
	T_CHECK(holds_a_read(&gate));
	fd = open(rig_path("data"), O_WRONLY | O_CLOEXEC);
	T_EQ(pwrite(fd, zero, PIECE, 0), PIECE);
	(void)close(fd);
	atomic_store(&kept, false);
	atomic_store(&keep_stamps, true);
	test_gate_set(&gate, TEST_BAR_READ, TEST_DONE);
	wait_for(&kept);
	T_EQ(pst_queue_cancel(rig_q, 1), 1);
	d = rig_reap1(rig_q);
	T_EQ(d.res, -ECANCELED);
	T_OK(pst_mem_drain(m, t_hang()));
	m = pst_mem_free(m);
	atomic_store(&keep_stamps, false);
	f = pst_file_close(f);
	quiet();
}

static void open_that_fails(void)
{
	struct pst_file *f = NULL;

	make();
	plan.open_err = -EHOSTDOWN;
	plan_set();
	T_EQ(pst_file_open("test:///x", RIG_R, NULL, &f), -EHOSTDOWN);
	T_CHECK(strstr(pst_error_text(), "opens nothing"));
	plan_reset();
	T_EQ(pst_file_open("test:///nonexistent/x", RIG_R, NULL, &f), -ENOENT);
	T_EQ(pst_file_open("test://", RIG_R, NULL, &f), -EINVAL);
	T_EQ(pst_file_open("other://x", RIG_R, NULL, &f), -EPROTONOSUPPORT);
	T_CHECK(strstr(pst_error_text(), " test://"));
	T_CHECK(strstr(pst_error_text(), " twin://"));
	T_CHECK(strstr(pst_error_text(), " pst://"));
	T_CHECK(!f);
	quiet();
}

int main(void)
{
	rig_init();
	rig_make(rig_path("data"), SEED, LEN);
	/* opening a file registers the test provider */
	(void)pst_file_close(open_as("test://", RIG_R));
	if (file_provider_add(&twin_file_ops) < 0)
		return 1;
	slow_ops = test_file_ops;
	slow_ops.scheme = "slow";
	slow_ops.open = slow_open;
	slow_ops.place = slow_place;
	slow_ops.stamp = slow_stamp;
	if (file_provider_add(&slow_ops) < 0)
		return 1;
	RIG_RUN(kinds_side_by_side);
	RIG_RUN(a_cancel_among_kinds);
	RIG_RUN(a_deadline_among_kinds);
	RIG_RUN(a_deadline_cancels);
	RIG_RUN(a_sync_refused_at_a_deadline);
	RIG_RUN(a_queue_freed_while_it_hangs);
	RIG_RUN(no_context);
	RIG_RUN(reads_that_fail);
	RIG_RUN(writes_that_fail);
	RIG_RUN(direct_refused);
	RIG_RUN(bare_files);
	RIG_RUN(wakes_by_descriptor);
	RIG_RUN_SOFT(freed_under_a_comparison);
	RIG_RUN1(open_that_fails);
	return rig_done();
}
