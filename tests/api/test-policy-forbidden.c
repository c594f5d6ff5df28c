/* SPDX-License-Identifier: MIT */
/*
 * The paths of requests if the machine forbids io_uring or locked memory.  If it forbids neither,
 * memory is registered.
 */
#include "policy.h"

#include "child.h"
#include "fusefs.h"

/* -------------------------------------------------- what a machine forbids */

/* Back end of the child's queue.  Each case runs in a child that has not used the library
 * before. */
static uint32_t forbidden_backend;

static void without_uring_here(void)
{
	struct pst_queue_opts o = { .sz = sizeof(o), .backend = PST_BACKEND_URING };
	struct pst_queue *q = NULL;
	struct pst_done d;

	forbid(__NR_io_uring_setup);
	T_EQ(rig_backend_check(PST_BACKEND_URING), -EPERM);
	T_CHECK(strstr(pst_error_text(), "io_uring"));
	T_EQ(pst_queue_new(&o, &q), -EPERM);
	T_CHECK(strstr(pst_error_text(), "io_uring"));
	T_CHECK(!q);

	rig_q = rig_queue(forbidden_backend, 0);
	open_file(RIG_RW);
	d = ask(PST_OP_READ, 0, 0, 0, LEN);
	T_EQ(d.res, LEN);
	T_EQ(rig_mem_differs(mem, 0, LEN, SEED, 0), LEN);
	if (forbidden_backend == PST_BACKEND_THREADS) {
		T_EQ(d.why, PST_WHY_NONE);
	} else {
		T_EQ(d.why, PST_WHY_NO_URING);
		T_EQ(d.detail, EPERM);
		rig_mem_fill(mem, 0, LEN, 5, 0);
		d = ask(PST_OP_READ, 0, PST_IO_STRICT, 0, LEN);
		REFUSED(d, PST_WHY_NO_URING);
		T_EQ(rig_mem_differs(mem, 0, LEN, 5, 0), LEN);
		d = ask(PST_OP_WRITE, 0, PST_IO_STRICT, 0, LEN);
		REFUSED(d, PST_WHY_NO_URING);
		T_EQ(rig_stats(rig_q).why[PST_WHY_NO_URING], 3);
	}
	d = ask(PST_OP_WRITE, 0, 0, 0, LEN);
	T_EQ(d.res, LEN);
	close_file();
	rig_q = pst_queue_free(rig_q);
	rig_quiet();
}

/* A sandbox forbids io_uring_enter() after the queue was made: requests end at once, and no
 * thread spins. */
static void without_uring_later_here(void)
{
	struct pst_done d[8];
	uint64_t cpu;

	if (rig_backend_check(PST_BACKEND_URING) < 0)
		T_SKIP("io_uring");
	open_file(RIG_RW);
	needs_direct();
	rig_q = rig_queue(PST_BACKEND_URING, 8);
	d[0] = ask(PST_OP_READ, PST_POLICY1(PST_PATH_DIRECT), 0, 0, LEN);
	T_EQ(d[0].res, LEN);
	forbid(__NR_io_uring_enter);
	cpu = t_cpu();
	for (unsigned i = 0; i < 8; i++) {
		struct pst_io io = rig_io(PST_OP_READ, file, mem, i * 4096, i * 4096, 4096);

		io.policy = PST_POLICY1(PST_PATH_DIRECT);
		io.user_data = i;
		T_OK(pst_queue_prep(rig_q, &io));
	}
	T_EQ(pst_queue_submit(rig_q), 8);
	T_EQ(pst_queue_cancel(rig_q, 7), 1);
	T_EQ(pst_queue_reap(rig_q, d, 8, 8, t_in_ms(RIG_WAIT_MS)), 8);
	for (unsigned i = 0; i < 8; i++) {
		T_CHECK(d[i].res == -EPERM || (d[i].user_data == 7 && d[i].res == -ECANCELED));
		T_CHECK(!(d[i].flags & PST_DONE_BUSY));
	}
	T_CHECK(t_cpu() - cpu < 500000000);
	T_EQ(rig_stats(NULL).busy, 0);
	T_OK(pst_mem_drain(mem, 0));
	close_file();
	rig_q = pst_queue_free(rig_q);
	rig_quiet();
}

static void without_uring_later(void)
{
	rig_dev = "host";
	child_run(without_uring_later_here);
}

static struct fusefs fs;

static void stop_fuse(void)
{
	fusefs_stop(&fs);
}

static void prep_at(struct pst_file *f, uint32_t op, uint64_t at, uint64_t user_data)
{
	struct pst_io io = rig_io(op, f, mem, at, at, 4096);

	io.user_data = user_data;
	T_OK(pst_queue_prep(rig_q, &io));
}

/*
 * A sandbox forbids io_uring after a queue was made that may choose its back end.  Threads take
 * over operations that the kernel has not taken, and all later ones.  An operation that the kernel
 * has taken completes through the ring.
 */
static void threads_take_over_here(void)
{
	struct pst_queue_opts o = { .sz = sizeof(o), .backend = PST_BACKEND_URING };
	struct pst_file *hang;
	struct pst_queue *q = NULL;
	uint64_t end = t_hang();
	struct pst_done d[9];
	char path[200];
	uint64_t seen = 0;

	if (rig_backend_check(PST_BACKEND_URING) < 0)
		T_SKIP("io_uring");
	if (fusefs_start(&fs, rig_dir) < 0)
		T_SKIP("%s", fs.why);
	(void)atexit(stop_fuse);
	(void)snprintf(path, sizeof(path), "%s/hang", fs.dir);
	hang = rig_open(path, PST_FILE_READ);
	open_file(RIG_RW);
	rig_q = rig_queue(PST_BACKEND_AUTO, 16);
	d[0] = ask(PST_OP_READ, 0, PST_IO_STRICT, 0, LEN);
	T_EQ(d[0].res, LEN);
	T_EQ(d[0].why, PST_WHY_NONE);
	prep_at(hang, PST_OP_READ, 0, 8);
	T_EQ(pst_queue_submit(rig_q), 1);
	while (!fusefs_waiting(&fs) && t_now() < end)
		(void)usleep(1000);
	T_EQ(fusefs_waiting(&fs), 1);

	forbid(__NR_io_uring_enter);
	forbid(__NR_io_uring_setup);
	rig_mem_fill(mem, 4096, LEN - 4096, 5, 0);
	rig_cold(rig_path("file"));
	for (unsigned i = 1; i < 8; i++)
		prep_at(file, i == 7 ? PST_OP_WRITE : PST_OP_READ, i * 4096, i);
	T_EQ(pst_queue_submit(rig_q), 7);
	T_EQ(pst_queue_reap(rig_q, d, 7, 9, t_hang()), 7);
	for (unsigned i = 0; i < 7; i++) {
		rig_show(&d[i]);
		T_EQ(d[i].res, 4096);
		seen |= UINT64_C(1) << d[i].user_data;
	}
	T_EQ(seen, 0xfe);
	T_EQ(rig_mem_differs(mem, 4096, 6 * 4096, SEED, 4096), 6 * 4096);
	T_EQ(rig_stats(rig_q).inflight, 1);
	T_EQ(fusefs_waiting(&fs), 1);

	/* Later requests name this reason, a strict one is refused, and no queue of io_uring can be
	 * made. */
	d[0] = ask(PST_OP_READ, 0, 0, 0, LEN);
	T_EQ(d[0].res, LEN);
	T_EQ(d[0].why, PST_WHY_NO_URING);
	T_EQ(d[0].detail, EPERM);
	d[0] = ask(PST_OP_READ, 0, PST_IO_STRICT, 0, LEN);
	REFUSED(d[0], PST_WHY_NO_URING);
	T_EQ(pst_queue_new(&o, &q), -EPERM);

	fusefs_release(&fs);
	T_EQ(pst_queue_reap(rig_q, d, 1, 9, t_hang()), 1);
	T_EQ(d[0].user_data, 8);
	T_EQ(d[0].res, 4096);
	T_EQ(rig_mem_differs(mem, 0, 4096, FUSEFS_SEED, 0), 4096);
	T_EQ(rig_stats(rig_q).inflight, 0);
	rig_q = pst_queue_free(rig_q);
	pst_file_close(hang);
	close_file();
	rig_quiet();
	fusefs_stop(&fs);
}

static void threads_take_over(void)
{
	for (unsigned i = 0; i < 2; i++) {
		rig_dev = i ? "soft:0" : "host";
		child_run(threads_take_over_here);
	}
}

static bool made_before; /* make queue and engine before the sandbox */

/* Make a queue, an engine and a blocking call in a sandbox. */
static void new_ones_after_a_sandbox_here(void)
{
	struct pst_queue_opts o = { .sz = sizeof(o), .backend = PST_BACKEND_URING };
	struct pst_queue *q = NULL;
	struct pst_done d;

	if (rig_backend_check(PST_BACKEND_URING) < 0)
		T_SKIP("io_uring");
	open_file(RIG_RW);
	rig_q = rig_queue(PST_BACKEND_AUTO, 8);
	if (made_before)
		T_EQ(ask(PST_OP_READ, 0, 0, 0, LEN).why, PST_WHY_NONE);
	else
		rig_q = pst_queue_free(rig_q);
	forbid(__NR_io_uring_setup);
	if (!rig_q)
		rig_q = rig_queue(PST_BACKEND_AUTO, 8);
	d = ask(PST_OP_READ, 0, 0, 0, LEN);
	T_EQ(d.res, LEN);
	T_EQ(d.why, made_before ? PST_WHY_NONE : PST_WHY_NO_URING);
	T_EQ(d.detail, made_before ? 0 : EPERM);
	T_EQ(pst_read(file, 0, mem, 0, LEN, NULL), LEN);
	T_EQ(pst_queue_new(&o, &q), -EPERM);
	close_file();
	rig_q = pst_queue_free(rig_q);
	rig_quiet();
}

static void new_ones_after_a_sandbox(void)
{
	for (unsigned i = 0; i < 4; i++) {
		rig_dev = i & 1 ? "soft:0" : "host";
		made_before = i & 2;
		child_run(new_ones_after_a_sandbox_here);
	}
}

static void without_uring(void)
{
	for (unsigned i = 0; i < 2; i++) {
		rig_dev = i ? "soft:0" : "host";
		forbidden_backend = PST_BACKEND_AUTO;
		child_run(without_uring_here);
		forbidden_backend = PST_BACKEND_THREADS; /* threads as requested: no reason */
		child_run(without_uring_here);
	}
}

static atomic_uint troubles;

static void no_trouble(void *arg, int level, const char *line)
{
	(void)arg;
	(void)level;
	printf("# %s\n", line);
	troubles++;
}

static void without_memlock_here(void)
{
	/* Allow enough locked memory for rings.  Below, this test lowers the limit until it is too
	 * small for any registration. */
	struct rlimit rl = { 3 << 19, 3 << 19 };
	uint64_t until = t_in_ms(RIG_WAIT_MS);
	struct pst_done d;

	if (rig_backend_check(PST_BACKEND_URING) < 0)
		T_SKIP("io_uring");
	open_file(RIG_RW); /* open the file before the user changes */
	needs_direct();
	if (setrlimit(RLIMIT_MEMLOCK, &rl) < 0 || (getuid() == 0 && setuid(t_stranger()) < 0))
		T_SKIP("another user: %s", strerror(errno));
	rig_q = rig_queue(PST_BACKEND_URING, 8);
	/* Few enough bytes for the limit, even though the proof reads them twice. */
	d = ask(PST_OP_READ, PST_POLICY1(PST_PATH_DIRECT), 0, 0, LEN / 4);
	TOOK(d, BIT(DIRECT), PST_WHY_NONE);
	rl.rlim_cur = 4096;
	T_EQ(setrlimit(RLIMIT_MEMLOCK, &rl), 0);
	pst_log_set(no_trouble, NULL, PST_LOG_WARN);
	/* Only memory that is used again is registered, so only then is the refusal reported. */
	do
		d = ask(PST_OP_READ, PST_POLICY1(PST_PATH_DIRECT), 0, 0, LEN);
	while (d.why == PST_WHY_NONE && t_now() < until);
	TOOK(d, BIT(DIRECT), PST_WHY_MEMLOCK);
	T_EQ(d.detail, ENOMEM);
	T_EQ(d.flags & PST_DONE_PINNED, 0);
	T_EQ(rig_mem_differs(mem, 0, LEN, SEED, 0), LEN);
	/* A refused registration changes the cost, not the path. */
	d = ask(PST_OP_READ, PST_POLICY1(PST_PATH_DIRECT), PST_IO_STRICT, 0, LEN);
	TOOK(d, BIT(DIRECT), PST_WHY_MEMLOCK);
	T_EQ(rig_stats(NULL).errors, 0);
	close_file();
	rig_q = pst_queue_free(rig_q);
	rig_quiet();
	T_EQ(troubles, 0);
}

static void without_memlock(void)
{
	rig_needs_memlock();
	rig_dev = "host";
	child_run(without_memlock_here);
	rig_dev = "soft:0";
	child_run(without_memlock_here);
}

static void small_writes_here(void)
{
	const char *env = getenv("PST_SMALL_WRITE");
	uint64_t max = env ? strtoull(env, NULL, 0) << 10 : 0;
	struct pst_done d;

	rig_q = rig_queue(rig_best_backend(), 8);
	open_file(RIG_RW);
	needs_direct();
	for (uint64_t len = 4096; len <= 65536; len *= 2) {
		d = ask(PST_OP_WRITE, 0, PST_IO_STRICT, 0, len);
		TOOK(d, len <= max ? BIT(BUFFERED) : BIT(DIRECT), PST_WHY_NONE);
		/* Small unaligned writes also go through the page cache. */
		d = ask(PST_OP_WRITE, 0, 0, 100, len);
		TOOK(d, BIT(BUFFERED), len <= max ? PST_WHY_NONE : PST_WHY_UNALIGNED);
		/* A policy that lists O_DIRECT gets it. */
		d = ask(PST_OP_WRITE, PST_POLICY1(PST_PATH_DIRECT), 0, 0, len);
		TOOK(d, BIT(DIRECT), PST_WHY_NONE);
	}
	T_EQ(rig_sync(file).res, 0);
	close_file();
	rig_q = pst_queue_free(rig_q);
}

/* PST_SMALL_WRITE is the size up to which writes go through the page cache, which is faster for
 * them. */
static void small_writes(void)
{
	static const char *const limits[] = { NULL, "16K", "32K" };

	rig_needs_memlock();
	for (unsigned i = 0; i < 2 * RIG_NR(limits); i++) {
		rig_dev = i % 2 ? "soft:0" : "host";
		if (limits[i / 2])
			(void)setenv("PST_SMALL_WRITE", limits[i / 2], 1);
		child_run(small_writes_here);
	}
	(void)unsetenv("PST_SMALL_WRITE");
}

static bool read_pinned(struct pst_mem *m)
{
	struct pst_io io = rig_io(PST_OP_READ, file, m, 0, 0, 65536);
	struct pst_done d;

	/* Use O_DIRECT: a proof may have brought the bytes into the page cache, and cached bytes
	 * are copied without a registration. */
	io.policy = PST_POLICY2(PST_PATH_DIRECT, PST_PATH_BUFFERED);
	d = rig_do(rig_q, &io);
	T_EQ(d.res, 65536);
	return d.flags & PST_DONE_PINNED;
}

static bool becomes_pinned(struct pst_mem *m)
{
	uint64_t until = t_in_ms(RIG_WAIT_MS);

	while (!read_pinned(m))
		if (t_now() > until)
			return false;
	return true;
}

static void pinned(void)
{
	struct pst_mem_opts o = { .sz = sizeof(o), .flags = PST_MEM_PINNED };
	void *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pst_mem *wrapped = NULL, *promised = NULL;
	bool pins;

	T_CHECK(p != MAP_FAILED);
	rig_needs_memlock();
	open_file(PST_FILE_READ);
	/* Files in memory are copied without a registration. */
	pins = rig_backend == PST_BACKEND_URING && strcmp(rig_file_info(file).fs, "tmpfs") != 0;
	T_OK(pst_mem_wrap((uintptr_t)p, LEN, NULL, &wrapped));
	T_OK(pst_mem_wrap((uintptr_t)p, LEN, &o, &promised));
	/* One request registers nothing.  Memory that is used again becomes registered. */
	T_CHECK(!read_pinned(mem));
	T_CHECK(!pins || becomes_pinned(mem));
	for (unsigned i = 0; i < 1000; i++)
		T_CHECK(!read_pinned(wrapped));
	T_CHECK(!pins || becomes_pinned(promised));
	pst_mem_free(wrapped);
	pst_mem_free(promised);
	close_file();
	rig_q = pst_queue_free(rig_q);
	(void)munmap(p, LEN);
}

int main(void)
{
	/* Small staged requests must not use a window here. */
	(void)setenv("PST_WINDOW", "off", 1);
	rig_init();
	/* Run these cases first: their children use the library, so this process must not have used
	 * it. */
	t_run("without_uring", without_uring);
	t_run("without_uring_later", without_uring_later);
	t_run("threads_take_over", threads_take_over);
	t_run("new_ones_after_a_sandbox", new_ones_after_a_sandbox);
	t_run("without_memlock", without_memlock);
	t_run("small_writes", small_writes);
	RIG_RUN_BACKENDS(pinned);
	return rig_done();
}
