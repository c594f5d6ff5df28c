/* SPDX-License-Identifier: MIT */
/*
 * Small requests on device memory: the CPU moves them through a window where that is faster, and
 * the engine moves the others.
 */
#include <pthread.h>
#include <sched.h>

#include "fusefs.h"
#include "rig.h"

#define LEN RIG_MIB(1)
#define SEED 21
#define BIT(p) PST_PATH_BIT(PST_PATH_##p)

static struct pst_mem *mem;
static struct pst_file *file;

static void open_data(bool cold)
{
	rig_make(rig_path("data"), SEED, LEN);
	if (cold)
		rig_cold(rig_path("data"));
	else
		rig_warm(rig_path("data"));
	file = rig_open(rig_path("data"), RIG_RW);
	mem = rig_alloc("soft", LEN);
	rig_mem_fill(mem, 0, LEN, 99, 0);
}

static void close_data(void)
{
	file = pst_file_close(file);
	mem = pst_mem_free(mem);
}

static struct pst_done ask(uint32_t op, uint64_t policy, uint32_t flags, uint64_t off, uint64_t len)
{
	struct pst_io io = rig_io(op, file, mem, off, off, len);
	struct pst_done d;

	io.policy = policy;
	io.flags = flags;
	d = rig_do(rig_q, &io);
	rig_show(&d);
	return d;
}

static void warm_reads(void)
{
	struct pst_done d;

	open_data(false);
	d = ask(PST_OP_READ, 0, PST_IO_STRICT, 4096, 4096);
	T_EQ(d.res, 4096);
	T_EQ(d.paths, BIT(WINDOW) | BIT(CACHED));
	T_EQ(d.why, PST_WHY_NONE);
	T_EQ(rig_mem_differs(mem, 4096, 4096, SEED, 4096), 4096);
	d = ask(PST_OP_READ, 0, 0, 10001, 333);
	T_EQ(d.paths, BIT(WINDOW) | BIT(CACHED));
	T_EQ(rig_mem_differs(mem, 10001, 333, SEED, 10001), 333);
	T_EQ(rig_mem_differs(mem, 10001 + 333, 4096, 99, 10001 + 333), 4096);
	/* The engine moves large requests, and computes checksums. */
	d = ask(PST_OP_READ, 0, 0, 0, LEN);
	T_CHECK(d.paths & BIT(STAGED) && !(d.paths & BIT(WINDOW)));
	d = ask(PST_OP_READ, 0, PST_IO_CRC32C, 0, 4096);
	T_CHECK(d.paths & BIT(STAGED) && d.flags & PST_DONE_CRC32C);
	T_EQ(d.why, PST_WHY_NONE);
	T_EQ(rig_stats(rig_q).bytes[PST_PATH_WINDOW], 4096 + 333);
	close_data();
}

static void cold_reads_are_staged(void)
{
	struct pst_done d;

	open_data(true);
	d = ask(PST_OP_READ, 0, 0, 0, 8192);
	if (d.paths & BIT(CACHED))
		T_SKIP("a file system whose pages can be dropped");
	T_EQ(d.res, 8192);
	T_CHECK(d.paths & BIT(STAGED) && !(d.paths & BIT(WINDOW)));
	T_EQ(rig_mem_differs(mem, 0, 8192, SEED, 0), 8192);
	close_data();
}

/* One of several pieces is not cached: the engine reads all of them again. */
static void half_resident(void)
{
	struct pst_seg segs[2] = { { 0, 0, 4096, 0, 0, 1 }, { LEN / 2, 8192, 4096, 0, 0, 1 } };
	struct pst_io io;
	struct pst_done d;
	char page[4096];

	open_data(true);
	T_EQ(rig_slurp(rig_path("data"), 0, page, sizeof(page)), sizeof(page));
	io = rig_io(PST_OP_READ, file, mem, 0, 0, 0);
	io.len = 0;
	io.segs = segs;
	io.nr_segs = 2;
	d = rig_do(rig_q, &io);
	rig_show(&d);
	T_EQ(d.res, 8192);
	T_CHECK(d.paths & BIT(STAGED) && !(d.paths & BIT(WINDOW)));
	T_EQ(rig_mem_differs(mem, 0, 4096, SEED, 0), 4096);
	T_EQ(rig_mem_differs(mem, 8192, 4096, SEED, LEN / 2), 4096);
	T_EQ(rig_mem_differs(mem, 4096, 4096, 99, 4096), 4096);
	close_data();
}

static void pieces(void)
{
	struct pst_seg segs[3] = { { 5, 70001, 100, 0, 0, 1 },
				   { 4096, 9, 1000, 2000, 1111, 8 },
				   { LEN - 50, LEN - 3000, 50, 0, 0, 1 } };
	struct pst_io io;
	struct pst_done d;

	open_data(false);
	io = rig_io(PST_OP_READ, file, mem, 0, 0, 0);
	io.len = 0;
	io.segs = segs;
	io.nr_segs = 3;
	d = rig_do(rig_q, &io);
	rig_show(&d);
	T_EQ(d.res, 8150);
	T_EQ(d.paths, BIT(WINDOW) | BIT(CACHED));
	T_EQ(rig_mem_differs(mem, 70001, 100, SEED, 5), 100);
	for (unsigned i = 0; i < 8; i++)
		T_EQ(rig_mem_differs(mem, 9 + 1111 * i, 1000, SEED, 4096 + 2000 * i), 1000);
	T_EQ(rig_mem_differs(mem, LEN - 3000, 50, SEED, LEN - 50), 50);
	/* The engine moves requests of many pieces, however small. */
	segs[1].count = 40;
	segs[1].len = 16;
	d = rig_do(rig_q, &io);
	T_EQ(d.res, 150 + 640);
	T_CHECK(!(d.paths & BIT(WINDOW)));
	close_data();
}

static void the_end_of_the_file(void)
{
	struct pst_io io;
	struct pst_done d;

	open_data(false);
	io = rig_io(PST_OP_READ, file, mem, LEN - 100, 0, 4096);
	d = rig_do(rig_q, &io);
	rig_show(&d);
	T_EQ(d.res, 100);
	T_EQ(d.prefix, 100);
	T_EQ(rig_mem_differs(mem, 0, 100, SEED, LEN - 100), 100);
	io = rig_io(PST_OP_READ, file, mem, LEN + 5, 0, 4096);
	T_EQ(rig_do(rig_q, &io).res, 0);
	close_data();
}

static void writes(void)
{
	static char back[LEN];
	struct pst_done d;

	open_data(false);
	d = ask(PST_OP_WRITE, 0, 0, 12345, 1000);
	T_EQ(d.res, 1000);
	T_CHECK(d.paths & BIT(WINDOW) && !(d.paths & BIT(STAGED)));
	d = ask(PST_OP_WRITE, 0, 0, 8192, 1024);
	T_EQ(d.res, 1024);
	d = ask(PST_OP_WRITE, 0, 0, 65536, 262144);
	T_CHECK(d.paths & BIT(STAGED) && !(d.paths & BIT(WINDOW)));
	T_EQ(rig_slurp(rig_path("data"), 0, back, LEN), LEN);
	T_EQ(t_differs(back + 12345, 99, 12345, 1000), 1000);
	T_EQ(t_differs(back + 8192, 99, 8192, 1024), 1024);
	T_EQ(t_differs(back, SEED, 0, 8192), 8192);
	T_EQ(t_differs(back + 13345, SEED, 13345, 65536 - 13345), 65536 - 13345);
	T_EQ(t_differs(back + 65536, 99, 65536, 262144), 262144);
	close_data();
}

static void listed(void)
{
	const uint64_t only = PST_POLICY1(PST_PATH_WINDOW);
	struct pst_done d;

	open_data(true);
	/* If only the window is listed, any read goes through the page cache. */
	d = ask(PST_OP_READ, only, 0, 0, LEN);
	T_EQ(d.res, (int64_t)LEN);
	T_CHECK(d.paths & BIT(WINDOW) && !(d.paths & (BIT(STAGED) | BIT(DIRECT))));
	T_EQ(rig_mem_differs(mem, 0, LEN, SEED, 0), LEN);
	d = ask(PST_OP_READ, PST_POLICY2(PST_PATH_WINDOW, PST_PATH_DIRECT), 0, 0, 4096);
	T_EQ(d.res, -EOPNOTSUPP);
	d = ask(PST_OP_READ, only, PST_IO_CRC32C, 0, 4096);
	T_EQ(d.res, -EOPNOTSUPP);
	d = ask(PST_OP_READ, PST_POLICY2(PST_PATH_WINDOW, PST_PATH_STAGED), PST_IO_CRC32C, 0, 4096);
	T_EQ(d.res, 4096);
	T_CHECK(d.paths & BIT(STAGED) && d.why);
	d = ask(PST_OP_WRITE, only, 0, 4096, 20000);
	T_EQ(d.res, 20000);
	T_CHECK(d.paths & BIT(WINDOW));
	d = ask(PST_OP_WRITE, only, 0, 0, LEN);
	T_EQ(d.res, -EOPNOTSUPP);
	T_EQ(d.why, PST_WHY_NO_WINDOW);
	d = ask(PST_OP_WRITE, PST_POLICY2(PST_PATH_WINDOW, PST_PATH_STAGED), 0, 0, LEN);
	T_EQ(d.res, (int64_t)LEN);
	T_EQ(d.why, PST_WHY_NO_WINDOW);
	close_data();
}

/* Windows are 64 MiB long: a piece may lie in two. */
static void over_a_border(void)
{
	const uint64_t at = RIG_MIB(64) - 1000;
	struct pst_mem *big = rig_alloc("soft", RIG_MIB(65));
	struct pst_done d;

	open_data(false);
	/* The first requests are staged, because opening a window takes as long as several of
	 * them. */
	d = rig_read(file, big, 0, at, 4096);
	T_EQ(d.paths, BIT(STAGED) | BIT(CACHED));
	for (unsigned i = 0; i < 100 && d.paths & BIT(STAGED); i++)
		d = rig_read(file, big, 0, at, 4096);
	rig_show(&d);
	T_EQ(d.res, 4096);
	T_EQ(d.paths, BIT(WINDOW) | BIT(CACHED));
	T_EQ(rig_mem_differs(big, at, 4096, SEED, 0), 4096);
	pst_mem_free(big);
	close_data();
}

/* Many threads, queues and allocations at once: each window is opened once. */
static void *thread(void *arg)
{
	struct pst_queue *q = NULL;
	uint64_t n = (uintptr_t)arg;
	struct pst_done d = { 0 };
	int bad = 0;

	if (pst_queue_new(NULL, &q) < 0)
		return (void *)1;
	for (unsigned i = 0; i < 200; i++) {
		uint64_t off = (n * 200 + i) * 512 % LEN;
		struct pst_io io = rig_io(PST_OP_READ, file, mem, off, off, 512);

		if (pst_queue_prep(q, &io) < 0 || pst_queue_submit(q) != 1 ||
		    pst_queue_reap(q, &d, 1, 1, t_hang()) != 1 || d.res != 512)
			bad++;
	}
	pst_queue_free(q);
	return (void *)(uintptr_t)bad;
}

static void threads(void)
{
	pthread_t t[8];
	void *bad;

	open_data(false);
	for (uintptr_t i = 0; i < RIG_NR(t); i++)
		T_EQ(pthread_create(&t[i], NULL, thread, (void *)i), 0);
	for (unsigned i = 0; i < RIG_NR(t); i++) {
		T_EQ(pthread_join(t[i], &bad), 0);
		T_CHECK(!bad);
	}
	T_EQ(rig_mem_differs(mem, 0, 8 * 200 * 512, SEED, 0), 8 * 200 * 512);
	close_data();
}

static void paths_are_told(void)
{
	struct pst_path_info info = { .sz = sizeof(info) };
	struct pst_mem *host = rig_alloc("host", 4096);

	open_data(false);
	T_OK(pst_path_check(file, mem, PST_OP_READ, PST_PATH_WINDOW, &info));
	T_EQ(info.state, PST_STATE_PROVEN);
	T_OK(pst_path_check(file, host, PST_OP_READ, PST_PATH_WINDOW, &info));
	T_EQ(info.state, PST_STATE_IMPOSSIBLE);
	T_EQ(info.why, PST_WHY_NO_PROVIDER);
	pst_mem_free(host);
	close_data();
}

/*
 * Reads of bytes that have just left the page cache: the first one misses while others still wait
 * for a free part.  All of them go to the engine, which another queue keeps busy, and each must
 * complete once.
 */
static void given_up_while_waiting(void)
{
	enum { NR = 24, BUSY = 16 };
	static struct pst_seg segs[NR];
	const uint64_t half = RIG_MIB(4);
	struct pst_queue *q, *other;
	struct pst_mem *far;
	unsigned seen[NR] = { 0 };
	struct pst_io io;
	struct pst_done d;

	rig_make(rig_path("data"), SEED, 2 * half);
	rig_warm(rig_path("data"));
	file = rig_open(rig_path("data"), RIG_R);
	mem = rig_alloc("soft", 2 * half);
	far = rig_alloc("soft", half);
	q = rig_queue(rig_backend, 32);
	other = rig_queue(rig_backend, 32);
	for (unsigned i = 0; i < 12; i++) { /* let the library learn that the file is cached */
		io = rig_io(PST_OP_READ, file, mem, 4096 * i, 4096 * i, 4096);
		T_EQ(rig_do(q, &io).res, 4096);
	}
	rig_cold(rig_path("data"));
	io = rig_io(PST_OP_READ, file, mem, 0, 0, 131072);
	io.policy = PST_POLICY1(PST_PATH_BUFFERED);
	(void)rig_do(q, &io);
	for (unsigned i = 0; i < NR; i++) {
		uint64_t at = i < 2 ? 65536 * i : half + 65536 * i;

		segs[i] = (struct pst_seg){ at, at, 256, 4096, 4096, 16 };
		io = rig_io(PST_OP_READ, file, mem, 0, 0, 0);
		io.segs = &segs[i];
		io.nr_segs = 1;
		io.user_data = i;
		T_OK(pst_queue_prep(q, &io));
	}
	for (unsigned i = 0; i < BUSY; i++) {
		io = rig_io(PST_OP_READ, file, far, 0, 0, half);
		T_OK(pst_queue_prep(other, &io));
	}
	T_EQ(pst_queue_submit(other), BUSY);
	T_EQ(pst_queue_submit(q), NR);
	for (unsigned i = 0; i < NR; i++) {
		d = rig_reap1(q);
		T_EQ(d.res, 4096);
		T_CHECK(d.user_data < NR && seen[d.user_data]++ == 0);
	}
	T_EQ(pst_queue_reap(q, &d, 0, 1, 0), 0);
	T_EQ(rig_stats(q).inflight, 0);
	for (unsigned i = 0; i < NR; i++)
		for (unsigned k = 0; k < 16; k++)
			T_EQ(rig_mem_differs(mem, segs[i].mem_off + 4096 * k, 256, SEED,
					     segs[i].file_off + 4096 * k),
			     256);
	q = pst_queue_free(q);
	other = pst_queue_free(other);
	far = pst_mem_free(far);
	close_data();
}

/* ------------------------------------------------------- beside others' work */

/* Submit small reads after a read for the engine.  The last small read must use a window.  Return
 * how many did, and whether the first did. */
static unsigned by_window_behind_another(struct pst_mem *to, bool *ret_first)
{
	enum { NR = 64 };
	struct pst_io io = rig_io(PST_OP_READ, file, to, LEN - 4096, LEN - 4096, 4096);
	struct pst_queue *q = rig_queue(rig_backend, NR + 1);
	bool by[NR + 1] = { false };
	unsigned nr = 0;

	io.policy = PST_POLICY2(PST_PATH_BUFFERED, PST_PATH_STAGED);
	T_OK(pst_queue_prep(q, &io));
	for (unsigned i = 1; i <= NR; i++) {
		io = rig_io(PST_OP_READ, file, to, 4096 * i, 4096 * i, 4096);
		io.user_data = i;
		T_OK(pst_queue_prep(q, &io));
	}
	T_EQ(pst_queue_submit(q), NR + 1);
	for (unsigned i = 0; i <= NR; i++) {
		struct pst_done d = rig_reap1(q);

		T_EQ(d.res, 4096);
		T_CHECK(d.user_data <= NR);
		by[d.user_data] = d.paths & BIT(WINDOW);
		nr += by[d.user_data];
	}
	T_EQ(rig_mem_differs(to, 4096, 4096 * NR, SEED, 4096), 4096 * NR);
	T_CHECK(by[NR]);
	*ret_first = by[1];
	pst_queue_free(q);
	return nr;
}

/* A long window is not opened for a few small requests of one submit; a short one is. */
static void windows_for_many(void)
{
	struct pst_mem *large = rig_alloc("soft", RIG_MIB(64));
	bool first;

	open_data(false);
	T_CHECK(by_window_behind_another(large, &first) < 64);
	T_CHECK(!first);
	T_EQ(by_window_behind_another(large, &first), 64);
	T_EQ(by_window_behind_another(mem, &first), 64);
	pst_mem_free(large);
	close_data();
}

#define LONG (RIG_MIB(1) / 2)

/* Submit a read of a file that hangs, for the engine. */
static struct pst_queue *hung_read(struct pst_file *hang)
{
	struct pst_io io = rig_io(PST_OP_READ, hang, mem, 0, LEN - 4096, 4096);
	struct pst_queue *q = rig_queue(rig_backend, 0);

	io.policy = PST_POLICY2(PST_PATH_BUFFERED, PST_PATH_STAGED);
	T_OK(pst_queue_prep(q, &io));
	T_EQ(pst_queue_submit(q), 1);
	return q;
}

static void reap_hung(const struct fusefs *fs, struct pst_queue *q)
{
	struct pst_done d;

	while (pst_queue_reap(q, &d, 0, 1, 0) == 0) {
		fusefs_release(fs);
		(void)usleep(500);
	}
	pst_queue_free(q);
}

/* Check the path of a read of LONG bytes: a window if by_window and if a window is also the faster
 * path for 64 KiB; otherwise staging. */
static void single_read(bool by_window)
{
	struct pst_done d = ask(PST_OP_READ, 0, 0, 0, LONG);
	uint32_t paths = d.paths;

	T_EQ(d.res, LONG);
	T_EQ(rig_mem_differs(mem, 0, LONG, SEED, 0), LONG);
	d = ask(PST_OP_READ, 0, 0, 0, 65536);
	if (by_window && d.paths & BIT(WINDOW))
		T_EQ(paths, BIT(WINDOW) | BIT(CACHED));
	else
		T_CHECK(paths & BIT(STAGED) && !(paths & BIT(WINDOW)));
	rig_mem_fill(mem, 0, LONG, 99, 0);
}

/* Two reads in one submit: neither uses a window. */
static void read_two(void)
{
	struct pst_io io = rig_io(PST_OP_READ, file, mem, 0, 0, LONG / 2);
	struct pst_done d;

	for (unsigned i = 0; i < 2; i++) {
		io.file_off = io.mem_off = i * LONG / 2;
		T_OK(pst_queue_prep(rig_q, &io));
	}
	T_EQ(pst_queue_submit(rig_q), 2);
	for (unsigned i = 0; i < 2; i++) {
		d = rig_reap1(rig_q);
		T_EQ(d.res, LONG / 2);
		T_CHECK(d.paths & BIT(STAGED) && !(d.paths & BIT(WINDOW)));
	}
}

/*
 * The caller copies a single read of some hundred KiB by itself while workers serve others.  If at
 * least as many requests as CPUs are in flight, workers make this copy too: the device's copies are
 * then faster.
 */
static void single_reads(void)
{
	struct pst_queue *busy[16] = { NULL };
	unsigned nr = 1;
	cpu_set_t cpus;
	struct pst_file *hang;
	struct fusefs fs;
	char path[200];

	if (fusefs_start(&fs, rig_dir) < 0)
		T_SKIP("%s", fs.why);
	T_EQ(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
	open_data(false);
	(void)snprintf(path, sizeof(path), "%s/hang", fs.dir);
	hang = rig_open(path, RIG_R);
	single_read(false);
	busy[0] = hung_read(hang);
	for (unsigned i = 0; i < 3; i++)
		single_read(true);
	read_two();
	/*
	 * With the caller's request, as many requests as CPUs are in flight.  An engine counts
	 * at most sixteen.
	 */
	for (; nr + 1 < (unsigned)CPU_COUNT(&cpus) && nr + 1 < RIG_NR(busy); nr++)
		busy[nr] = hung_read(hang);
	single_read(true);
	for (; nr < RIG_NR(busy); nr++)
		busy[nr] = hung_read(hang);
	single_read(false);
	for (unsigned i = 0; i < RIG_NR(busy); i++)
		reap_hung(&fs, busy[i]);
	single_read(false);
	pst_file_close(hang);
	fusefs_stop(&fs);
	close_data();
}

int main(void)
{
	rig_init();
	RIG_RUN_BACKENDS(warm_reads);
	RIG_RUN_BACKENDS(cold_reads_are_staged);
	RIG_RUN_BACKENDS(half_resident);
	RIG_RUN_BACKENDS(pieces);
	RIG_RUN_BACKENDS(the_end_of_the_file);
	RIG_RUN_BACKENDS(writes);
	RIG_RUN_BACKENDS(listed);
	RIG_RUN_BACKENDS(over_a_border);
	RIG_RUN_BACKENDS(threads);
	RIG_RUN_BACKENDS(paths_are_told);
	RIG_RUN_BACKENDS(given_up_while_waiting);
	RIG_RUN_BACKENDS(windows_for_many);
	RIG_RUN_BACKENDS(single_reads);
	return rig_done();
}
