/* SPDX-License-Identifier: MIT */
/*
 * The workers of an engine: which of them are awake, and which one is woken for the next
 * request.
 */
#include <dirent.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "rig.h"

#include "engine.h"
#include "fusefs.h"
#include "symbol.h"
#include "wakes.h"

#define SMALL 32768u
#define WORKERS_USUAL 12 /* the most workers of an engine that take requests of all kinds */

static struct fusefs fs;

/*
 * Report no involuntary switches, so that no worker sees contention, however few CPUs there are.
 * Replaces libc's function for the library.
 */
__attribute__((visibility("default"))) int getrusage(__rusage_who_t who, struct rusage *ret)
{
	int (*real)(__rusage_who_t, struct rusage *);
	int r;

	symbol(RTLD_NEXT, &real, "getrusage");
	r = real(who, ret);
	ret->ru_nivcsw = 0;
	return r;
}

/* sched_yield() calls by threads other than the test's */
static atomic_uint yields;

/* Replaces libc's function for the library. */
__attribute__((visibility("default"))) int sched_yield(void)
{
	int (*real)(void);

	symbol(RTLD_NEXT, &real, "sched_yield");
	if (gettid() != getpid())
		atomic_fetch_add(&yields, 1);
	return real();
}

/* Timed sleeps of workers, and the longest of them. */
static atomic_uint pauses;
static _Atomic long longest_nap_ns;

/* Replaces libc's function for the library. */
__attribute__((visibility("default"))) int ppoll(struct pollfd *fds, nfds_t nr,
						 const struct timespec *timeout,
						 const sigset_t *mask)
{
	int (*real)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);
	char name[16] = "";

	symbol(RTLD_NEXT, &real, "ppoll");
	(void)prctl(PR_GET_NAME, name, 0, 0, 0);
	if (timeout && strncmp(name, "pst-cuda", 8) == 0) {
		if (timeout->tv_nsec > atomic_load(&longest_nap_ns))
			atomic_store(&longest_nap_ns, timeout->tv_nsec);
		atomic_fetch_add(&pauses, 1);
	}
	return real(fds, nr, timeout, mask);
}

#define QUARTER (RIG_MIB(1) / 4)

/* Read by path while copies are slow.  Return how often workers polled for the end of a copy
 * without sleeping. */
static unsigned looks(struct pst_file *f, struct pst_mem *m, uint32_t path)
{
	/* A job takes as many of these pieces as fit into its slot. */
	static struct pst_seg segs[8];
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, 0);
	struct pst_done d;

	for (unsigned i = 0; i < RIG_NR(segs); i++)
		segs[i] = (struct pst_seg){ .file_off = 2 * i * QUARTER,
					    .mem_off = i * QUARTER,
					    .len = QUARTER };
	io.segs = segs;
	io.nr_segs = RIG_NR(segs);
	io.policy = PST_POLICY2(path, PST_PATH_STAGED);
	atomic_store(&yields, 0);
	delay_us(20000);
	d = rig_do(rig_q, &io);
	delay_us(0);
	T_EQ(d.res, (int64_t)(RIG_NR(segs) * QUARTER));
	T_CHECK(d.paths & PST_PATH_BIT(path));
	for (unsigned i = 0; i < RIG_NR(segs); i++)
		T_EQ(rig_mem_differs(m, segs[i].mem_off, segs[i].len, ENGINE_SEED,
				     segs[i].file_off),
		     segs[i].len);
	return atomic_load(&yields);
}

/* Skip if slots are small because a CPU's cache is: these cases need a few large slots. */
static void needs_large_slots(void)
{
	long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);

	if (cache > 0 && cache < 1 << 20)
		T_SKIP("a cache of 1 MiB that a CPU has for itself");
}

/* Open a cached file that O_DIRECT can read from its disk. */
static struct pst_file *direct_file(uint64_t len)
{
	struct pst_file *f = engine_warm_file(0, len);
	struct pst_file_info info = rig_file_info(f);

	if (!info.direct) {
		pst_file_close(f);
		T_SKIP("O_DIRECT on %s", info.fs);
	}
	return f;
}

/* A worker polls while a device copies bytes from the worker's CPU cache.  It sleeps while the
 * device copies bytes that a disk has written to memory. */
static void a_disks_bytes_do_not_keep_workers_awake(void)
{
	struct pst_file *f;
	struct pst_mem *m;

	engine_needs_stub();
	needs_large_slots(); /* workers always poll for a small slot's few bytes */
	f = direct_file(RIG_MIB(4));
	m = rig_alloc(rig_dev, RIG_MIB(2));
	T_CHECK(looks(f, m, PST_PATH_CACHED) > 0);
	T_EQ(looks(f, m, PST_PATH_DIRECT), 0);
	T_CHECK(looks(f, m, PST_PATH_CACHED) > 0);
	pst_file_close(f);
	pst_mem_free(m);
}

/* Wait for nr more timed sleeps of workers.  Return false if they do not come. */
static bool await_waits(unsigned nr)
{
	uint64_t end = t_hang();

	for (nr += atomic_load(&pauses); atomic_load(&pauses) < nr && t_now() < end;)
		(void)usleep(1000);
	return atomic_load(&pauses) >= nr;
}

#define COPIED 32768u /* few enough bytes that workers poll for their copy */

/*
 * The device never completes the copies of one request.  Workers must stop polling after some
 * sleeps, and their sleeps must grow to the longest interval.
 */
static void hangs(uint32_t op)
{
	struct pst_file *f = engine_warm_file(PST_FILE_WRITE, RIG_MIB(1));
	struct pst_mem *m = rig_alloc(rig_dev, COPIED);
	struct pst_io io = rig_io(op, f, m, 0, 0, COPIED);
	uint64_t end = t_hang();
	unsigned before, spun;
	bool slept_briefly;

	io.policy = PST_POLICY2(op == PST_OP_READ ? PST_PATH_CACHED : PST_PATH_BUFFERED,
				PST_PATH_STAGED);
	T_EQ(rig_do(rig_q, &io).res, COPIED); /* starts the engine */
	atomic_store(&longest_nap_ns, 0);
	hold(true);
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 1);
	while (atomic_load(&longest_nap_ns) < 1000000 && t_now() < end)
		(void)usleep(1000);
	before = atomic_load(&yields);
	slept_briefly = await_waits(20);
	spun = atomic_load(&yields) - before;
	hold(false);
	T_EQ(rig_reap1(rig_q).res, COPIED);
	T_CHECK(slept_briefly);
	T_EQ(spun, 0);
	T_CHECK(atomic_load(&longest_nap_ns) >= 1000000);
	pst_file_close(f);
	pst_mem_free(m);
}

static void copies_that_hang_keep_no_worker_awake(void)
{
	engine_needs_stub();
	hangs(PST_OP_READ);
	hangs(PST_OP_WRITE);
}

/* Return the number of workers that take requests of all kinds.  Skip if there are too few. */
static unsigned needs_workers(void)
{
	unsigned nr;
	cpu_set_t set;

	T_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
	nr = (unsigned)CPU_COUNT(&set) * 3 / 4;
	if (nr < 3)
		T_SKIP("four CPUs, for several workers");
	return nr < WORKERS_USUAL ? nr : WORKERS_USUAL;
}

/* Read from the disk through few slots.  Return how often a worker woke another. */
static unsigned wakes_of_read(struct pst_file *f, struct pst_mem *m)
{
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, FILE_LEN);
	struct pst_done d;

	io.policy = PST_POLICY2(PST_PATH_DIRECT, PST_PATH_STAGED);
	atomic_store(&wakes, 0);
	d = rig_do(rig_q, &io);
	T_EQ(d.res, (int64_t)FILE_LEN);
	T_CHECK(d.paths & PST_PATH_BIT(PST_PATH_DIRECT));
	T_EQ(rig_mem_differs(m, 0, FILE_LEN, ENGINE_SEED, 0), FILE_LEN);
	return atomic_load(&wakes);
}

/* The worker that sees copies end takes the next jobs itself.  While the engine waits for a
 * disk, that worker must not wake others for them. */
static void a_disk_is_waited_for_by_few(void)
{
	struct pst_file *f;
	struct pst_mem *m;
	unsigned nr;

	engine_needs_stub();
	(void)needs_workers();
	needs_large_slots(); /* with small slots, several copies end at once */
	f = direct_file(FILE_LEN);
	T_OK(engine_set_pool(RIG_MIB(3)));
	m = rig_alloc(rig_dev, FILE_LEN);
	(void)wakes_of_read(f, m);
	delay_us(5000);
	nr = wakes_of_read(f, m);
	delay_us(0);
	T_CHECK(nr < PIECES);
	pst_file_close(f);
	pst_mem_free(m);
	T_OK(engine_set_pool(0));
}

#define READS 16u     /* reads of the whole file, submitted together */
#define SLOW_US 1000u /* us; duration of each copy of a slot: READS then take about a second */

static void submit_reads(struct pst_queue *q, struct pst_file *f, struct pst_mem *m)
{
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, FILE_LEN);

	io.policy = PST_POLICY3(PST_PATH_CACHED, PST_PATH_BUFFERED, PST_PATH_STAGED);
	for (unsigned i = 0; i < READS; i++)
		T_OK(pst_queue_prep(q, &io));
	T_EQ(pst_queue_submit(q), READS);
}

static void reap_reads(struct pst_queue *q)
{
	for (unsigned i = 0; i < READS; i++)
		T_EQ(rig_reap1(q).res, (int64_t)FILE_LEN);
}

/* Return how many workers still read after half of all bytes has been read. */
static unsigned readers_of(struct pst_queue *q, struct pst_file *f, struct pst_mem *m)
{
	struct engine_bytes_read half, all;
	uint64_t end = t_hang(), before = engine_bytes_read(&half);
	unsigned nr = 0;

	submit_reads(q, f, m);
	while (engine_bytes_read(&half) - before < READS * FILE_LEN / 2) {
		T_CHECK(t_now() < end);
		(void)usleep(1000);
	}
	reap_reads(q);
	(void)engine_bytes_read(&all);
	T_EQ(half.nr, all.nr);
	for (unsigned i = 0; i < all.nr; i++)
		nr += all.of[i] - half.of[i] >= PIECE;
	return nr;
}

/* A few workers suffice for a slow device: more would only fill slots, so the others must stop. */
static void a_device_that_is_behind_needs_fewer(void)
{
	unsigned usual, nr;
	struct pst_file *f;
	struct pst_mem *m;

	engine_needs_stub();
	usual = needs_workers();
	if (access("/proc/self/io", R_OK) < 0)
		T_SKIP("a kernel that counts each thread's bytes");
	f = engine_warm_file(0, FILE_LEN);
	m = rig_alloc(rig_dev, FILE_LEN);
	delay_us(SLOW_US);
	nr = readers_of(rig_q, f, m);
	delay_us(0);
	T_CHECK(nr > 0 && nr <= usual / 2 + 1);
	T_EQ(rig_mem_differs(m, 0, FILE_LEN, ENGINE_SEED, 0), FILE_LEN);
	pst_file_close(f);
	pst_mem_free(m);
}

/* Prepare one read of SMALL bytes for the engine. */
static void add(struct pst_queue *q, struct pst_file *f, struct pst_mem *m, uint64_t at,
		uint32_t path, uint64_t deadline_ns)
{
	struct pst_io io = rig_io(PST_OP_READ, f, m, at, at, SMALL);

	io.policy = PST_POLICY3(path, PST_PATH_BUFFERED, PST_PATH_STAGED);
	io.deadline_ns = deadline_ns;
	T_OK(pst_queue_prep(q, &io));
}

/* Prepare a read of adjacent file pieces, alternately 4 and 8 KiB, which are apart in memory. */
static void add_scattered(struct pst_queue *q, struct pst_file *f, struct pst_mem *m)
{
	static struct pst_seg segs[128];
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, 0);
	uint64_t off = 0;

	for (unsigned i = 0; i < RIG_NR(segs); i++) {
		segs[i] = (struct pst_seg){ .file_off = off,
					    .mem_off = i * 16384u,
					    .len = i % 2 ? 8192 : 4096 };
		off += segs[i].len;
	}
	io.segs = segs;
	io.nr_segs = RIG_NR(segs);
	io.deadline_ns = PST_NO_DEADLINE;
	T_OK(pst_queue_prep(q, &io));
}

/* Return how many reads to hang.  With io_uring: more than the slots that six workers take while
 * the engine waits for a disk (96 of 512 KiB or 48 of 1 MiB). With threads: fewer than the back
 * end's 64 threads. */
static unsigned nr_hanging(void)
{
	return rig_backend == PST_BACKEND_URING ? 104 : 40;
}

/* Submit reads that hang, one after the other. */
static void hang_reads(struct pst_queue *q, struct pst_file *hang, struct pst_mem *m)
{
	uint64_t end = t_hang();

	for (unsigned i = 0; i < nr_hanging(); i++) {
		add(q, hang, m, i * SMALL, PST_PATH_CACHED, PST_NO_DEADLINE);
		T_EQ(pst_queue_submit(q), 1);
		while (fusefs_waiting(&fs) <= i) {
			T_CHECK(t_now() < end);
			(void)usleep(1000);
		}
	}
	(void)usleep(20000); /* wait until the workers sleep */
}

/*
 * Submit a hanging request of scattered pieces, to which one worker is dedicated, and then a read,
 * which must complete.  The first two requests use another engine and start at once; the last two
 * start together.
 */
static void behind_a_scattered_one(struct pst_file *f, struct pst_file *hang, struct pst_mem *m)
{
	struct pst_mem *other = rig_alloc("soft:1", FILE_LEN);
	uint64_t deadline_ns = t_in_ms(10000);

	add(rig_q, f, other, 0, PST_PATH_DIRECT, deadline_ns);
	add(rig_q, f, other, SMALL, PST_PATH_DIRECT, deadline_ns);
	add_scattered(rig_q, hang, m);
	add(rig_q, f, m, RIG_MIB(8), PST_PATH_DIRECT, deadline_ns);
	T_EQ(pst_queue_submit(rig_q), 4);
	for (unsigned i = 0; i < 3; i++)
		T_EQ(rig_reap1(rig_q).res, SMALL);
	pst_mem_free(other);
}

/* While the engine waits for a disk, many reads hang: other reads must complete. */
static void behind_those_that_hang(struct pst_file *f, struct pst_file *hang,
				   struct pst_file *normal)
{
	struct pst_queue *stuck = rig_queue(rig_backend, 128);
	struct pst_mem *m = rig_alloc("soft:0", FILE_LEN), *other = rig_alloc("soft:1", SMALL);
	uint64_t deadline_ns;

	add(rig_q, f, other, 0, PST_PATH_DIRECT, t_in_ms(10000)); /* starts the other engine */
	T_EQ(pst_queue_submit(rig_q), 1);
	T_EQ(rig_reap1(rig_q).res, SMALL);
	(void)wakes_of_read(f, m);
	hang_reads(stuck, hang, m);
	behind_a_scattered_one(f, hang, m);
	(void)wakes_of_read(f, m);
	deadline_ns = t_in_ms(10000);
	for (unsigned i = 0; i < 8; i++)
		add(rig_q, normal, m, i * SMALL, PST_PATH_CACHED, deadline_ns);
	T_EQ(pst_queue_submit(rig_q), 8);
	for (unsigned i = 0; i < 8; i++)
		T_EQ(rig_reap1(rig_q).res, SMALL);
	T_EQ(rig_mem_differs(m, 0, 8 * SMALL, FUSEFS_SEED, 0), 8 * SMALL);
	fusefs_stop(&fs);
	(void)rig_reap1(rig_q);
	for (unsigned i = 0; i < nr_hanging(); i++)
		(void)rig_reap1(stuck);
	pst_queue_free(stuck);
	pst_mem_free(m);
	pst_mem_free(other);
}

/* Return how often the thread has gone to sleep, or 0 if it is not a thread of soft:0. */
static unsigned long sleeps_of(const char *tid)
{
	char buf[128];

	if (!engine_thread_line(tid, "comm", "pst-soft-0", buf, sizeof(buf)) ||
	    !engine_thread_line(tid, "status", "voluntary_ctxt_switches:", buf, sizeof(buf)))
		return 0;
	return strtoul(buf, NULL, 10);
}

/* Return how many threads of soft:0 (workers and its copying thread) have gone to sleep since the
 * last call, which shows that they were awake. */
static unsigned threads_awake(void)
{
	static unsigned long before[16];
	DIR *dir = opendir("/proc/self/task");
	unsigned nr = 0, awake = 0;
	struct dirent *d;

	T_CHECK(dir != NULL);
	/* The threads and their order are the same in each call. */
	while ((d = readdir(dir))) {
		unsigned long sleeps = sleeps_of(d->d_name);

		if (!sleeps)
			continue;
		T_CHECK(nr < RIG_NR(before));
		awake += before[nr] != sleeps;
		before[nr++] = sleeps;
	}
	(void)closedir(dir);
	return awake;
}

/* While an engine waits for a disk, further workers would only contend for its lock: at most
 * about half may wake. */
static void few_workers_keep_up_with_a_disk(void)
{
	unsigned usual = needs_workers(), least = usual + 1;
	struct pst_file *f = direct_file(FILE_LEN);
	struct pst_mem *m = rig_alloc("soft:0", FILE_LEN);

	/* The first read wakes all workers.  Later ones may wake more if a worker does not get a
	 * CPU: take the least of eight. */
	for (unsigned i = 0; i < 8; i++) {
		unsigned nr;

		(void)threads_awake();
		(void)wakes_of_read(f, m);
		(void)usleep(20000); /* wait until the threads sleep */
		nr = threads_awake();
		least = nr < least ? nr : least;
	}
	T_CHECK(least <= usual / 2 + 1);
	pst_file_close(f);
	pst_mem_free(m);
}

/* Return how many workers are woken at once for a read that has a job for each. */
static unsigned woken_for_read(struct pst_file *f, struct pst_mem *m)
{
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, FILE_LEN);
	unsigned nr;

	(void)usleep(20000); /* wait until the workers sleep */
	io.policy = PST_POLICY2(PST_PATH_DIRECT, PST_PATH_STAGED);
	T_OK(pst_queue_prep(rig_q, &io));
	atomic_store(&wakes_here, 0);
	T_EQ(pst_queue_submit(rig_q), 1);
	nr = atomic_load(&wakes_here);
	T_EQ(rig_reap1(rig_q).res, (int64_t)FILE_LEN);
	return nr;
}

/* A request of cached pieces needs no disk: after it, the engine no longer waits for a disk, and
 * a read wakes several workers at once. */
static void scattered_pieces_of_memory_end_it(void)
{
	struct pst_file *f;
	struct pst_mem *m;

	(void)needs_workers();
	f = direct_file(FILE_LEN);
	m = rig_alloc("soft:0", FILE_LEN);
	(void)woken_for_read(f, m);
	T_EQ(woken_for_read(f, m), 1);
	rig_warm(rig_path("data"));
	add_scattered(rig_q, f, m);
	T_EQ(pst_queue_submit(rig_q), 1);
	T_CHECK(rig_reap1(rig_q).paths & PST_PATH_BIT(PST_PATH_CACHED));
	T_CHECK(woken_for_read(f, m) > 1);
	pst_file_close(f);
	pst_mem_free(m);
}

/* Fill segs with pieces that are apart in the file. */
static void fill_apart(struct pst_seg *segs, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++)
		segs[i] = (struct pst_seg){ .file_off = 2 * i * 4096,
					    .mem_off = i * 4096,
					    .len = 4096 };
}

/* Submit reads one at a time: each must complete. */
static void others_go_on(struct pst_file *f, struct pst_file *normal, struct pst_mem *m)
{
	for (unsigned i = 0; i < 6; i++) {
		if (i % 2)
			add(rig_q, f, m, i * SMALL, PST_PATH_DIRECT, t_in_ms(10000));
		else
			add(rig_q, normal, m, i * SMALL, PST_PATH_CACHED, t_in_ms(10000));
		T_EQ(pst_queue_submit(rig_q), 1);
		T_EQ(rig_reap1(rig_q).res, SMALL);
	}
}

/*
 * Pieces of a hanging read.  Four such reads have more operations than a worker's I/O context
 * takes.  With threads, 10 pieces each: its 64 threads must not all hang.
 */
#define PIECES_HANGING 256u

static unsigned nr_pieces_hanging(void)
{
	return rig_backend == PST_BACKEND_URING ? PIECES_HANGING : 10;
}

static void hang_pieces(struct pst_queue *q, struct pst_file *hang, struct pst_mem *m)
{
	static struct pst_seg segs[PIECES_HANGING];
	struct pst_io io = rig_io(PST_OP_READ, hang, m, 0, 0, 0);
	uint64_t end = t_hang();

	fill_apart(segs, PIECES_HANGING);
	io.segs = segs;
	io.nr_segs = nr_pieces_hanging();
	io.deadline_ns = PST_NO_DEADLINE;
	for (unsigned i = 0; i < 4; i++) {
		T_OK(pst_queue_prep(q, &io));
		T_EQ(pst_queue_submit(q), 1);
		while (fusefs_waiting(&fs) <= i) {
			T_CHECK(t_now() < end);
			(void)usleep(1000);
		}
		(void)usleep(20000); /* wait until the worker sleeps */
	}
}

/* While the engine waits for a disk, reads of many pieces hang: other reads must complete. */
static void behind_pieces_that_hang(struct pst_file *f, struct pst_file *hang,
				    struct pst_file *normal)
{
	struct pst_queue *stuck = rig_queue(rig_backend, 0);
	struct pst_mem *m = rig_alloc("soft:0", FILE_LEN);

	(void)wakes_of_read(f, m);
	hang_pieces(stuck, hang, m);
	others_go_on(f, normal, m);
	fusefs_stop(&fs);
	for (unsigned i = 0; i < 4; i++)
		(void)rig_reap1(stuck);
	pst_queue_free(stuck);
	pst_mem_free(m);
}

/* Open a file of the FUSE file system whose files misbehave. */
static struct pst_file *fuse_file(const char *name)
{
	char path[200];

	(void)snprintf(path, sizeof(path), "%s/%s", fs.dir, name);
	return rig_open(path, RIG_R);
}

static void with_fuse(void (*behind)(struct pst_file *f, struct pst_file *hang,
				     struct pst_file *normal))
{
	struct pst_file *f, *hang, *normal;

	(void)needs_workers();
	f = direct_file(FILE_LEN);
	if (fusefs_start(&fs, rig_dir) < 0) {
		pst_file_close(f);
		T_SKIP("%s", fs.why);
	}
	hang = fuse_file("hang");
	normal = fuse_file("normal");
	behind(f, hang, normal);
	pst_file_close(normal);
	pst_file_close(hang);
	pst_file_close(f);
}

#define PIECES_NOT_SCATTERED 63u /* the most pieces of a request that does not count as scattered */
#define REQUESTS_HANGING 10u     /* together more operations than a worker's I/O context takes */

/* Submit one more request.  segs must stay until all requests have ended, because workers may
 * read it. */
static void add_pieces(struct pst_queue *q, struct pst_file *f, struct pst_mem *m,
		       const struct pst_seg *segs)
{
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, 0);

	io.segs = segs;
	io.nr_segs = PIECES_NOT_SCATTERED;
	io.deadline_ns = PST_NO_DEADLINE;
	T_OK(pst_queue_prep(q, &io));
	T_EQ(pst_queue_submit(q), 1);
	(void)usleep(10000);
}

/*
 * While few workers keep up with a slow device, hanging requests must neither occupy all of them
 * nor all be served by one.  With threads only one request hangs, for its 64 threads.
 */
static void behind_a_device_that_is_behind(struct pst_file *f, struct pst_file *hang,
					   struct pst_file *normal)
{
	struct pst_queue *busy = rig_queue(rig_backend, 0), *stuck = rig_queue(rig_backend, 0);
	static struct pst_seg segs[PIECES_NOT_SCATTERED];
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);
	unsigned nr = rig_backend == PST_BACKEND_URING ? REQUESTS_HANGING : 1;

	fill_apart(segs, RIG_NR(segs));
	delay_us(SLOW_US);
	submit_reads(busy, f, m);
	submit_reads(busy, f, m);
	(void)usleep(400000); /* wait until only few workers serve the slow device */
	for (unsigned i = 0; i < nr; i++)
		add_pieces(stuck, hang, m, segs);
	others_go_on(f, normal, m);
	delay_us(0);
	reap_reads(busy);
	reap_reads(busy);
	fusefs_stop(&fs);
	for (unsigned i = 0; i < nr; i++)
		(void)rig_reap1(stuck);
	pst_queue_free(busy);
	pst_queue_free(stuck);
	pst_mem_free(m);
}

static void pieces_that_hang_beside_a_device_that_is_behind(void)
{
	engine_needs_stub();
	with_fuse(behind_a_device_that_is_behind);
}

static void reads_that_hang_keep_no_others_waiting(void)
{
	with_fuse(behind_those_that_hang);
}

static void pieces_that_hang_keep_no_others_waiting(void)
{
	with_fuse(behind_pieces_that_hang);
}

int main(void)
{
	struct pst_mem *keep = NULL;

	(void)setenv("PST_SOFT_DEVICES", "2", 1);
	rig_init();
	RIG_RUN_BACKENDS(reads_that_hang_keep_no_others_waiting);
	fusefs_stop(&fs);
	RIG_RUN_BACKENDS(pieces_that_hang_keep_no_others_waiting);
	fusefs_stop(&fs);
	RIG_RUN_BACKENDS(few_workers_keep_up_with_a_disk);
	RIG_RUN_BACKENDS(scattered_pieces_of_memory_end_it);
	/* Create a context before counting threads: a real driver has threads as long as one
	 * exists. */
	if (pst_mem_alloc("cuda:0", 1, NULL, &keep) == 0)
		(void)pst_mem_copy_in(keep, 0, "", 1);
	(void)engine_stub();
	rig_tasks = rig_count_tasks();
	ENGINE_RUN("cuda:0", a_disks_bytes_do_not_keep_workers_awake);
	ENGINE_RUN("cuda:0", copies_that_hang_keep_no_worker_awake);
	ENGINE_RUN("cuda:0", a_disk_is_waited_for_by_few);
	ENGINE_RUN("cuda:0", a_device_that_is_behind_needs_fewer);
	ENGINE_RUN("cuda:0", pieces_that_hang_beside_a_device_that_is_behind);
	fusefs_stop(&fs);
	pst_mem_free(keep);
	return rig_done();
}
