/* SPDX-License-Identifier: MIT */
/*
 * Files opened as stable: devices copy from their pinned pages, long pieces several at a time.
 * Runs on the CUDA library that PST_LIBCUDA names, or on the machine's own.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "rig.h"
#include "stub/cuda_stub.h"

#define PIECE RIG_MIB(1)
#define PIECES 24u
#define FILE_LEN (PIECES * PIECE)
#define SEED 11
#define GIVES_UP_NS UINT64_C(200000000) /* ns after which a listed read may give up */

/* Functions of the CUDA stub (tests/stub/cuda_stub.h); NULL with a real driver. */
static bool (*fail)(const char *spec);
static void (*delay_us)(unsigned us);
static void (*stall)(const char *name);
static void (*state)(struct stub_cuda_state *ret);

/* Number of times that a worker has waited for another thread's pinning. */
static atomic_uint worker_waits;

/* Replaces libc's function for the library. */
__attribute__((visibility("default"))) int pthread_cond_timedwait(pthread_cond_t *cond,
								  pthread_mutex_t *lock,
								  const struct timespec *until)
{
	int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
	char name[16] = "";
#ifdef __SANITIZE_THREAD__
	/* The sanitizer's function has no symbol version. */
	void *fn = NULL;
#else
	/* On x86, dlsym() may find an older version, which has other condition variables. */
	void *fn = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
#endif

	if (!fn)
		fn = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
	memcpy(&real, &fn, sizeof(fn));
	(void)prctl(PR_GET_NAME, name, 0, 0, 0);
	if (strncmp(name, "pst-cuda", 8) == 0)
		atomic_fetch_add(&worker_waits, 1);
	return real(cond, lock, until);
}

static struct pst_file *stable(void)
{
	rig_make(rig_path("data"), SEED, FILE_LEN);
	rig_warm(rig_path("data"));
	return rig_open(rig_path("data"), PST_FILE_READ | PST_FILE_STABLE);
}

/*
 * Read the file until it is pinned.  Pinning starts in the background after a first read of
 * everything.  A page that the kernel has reclaimed would prevent that, so each try reads the whole
 * file again.
 */
static void wait_pinned(struct pst_file *f, struct pst_mem *m)
{
	uint64_t end = t_hang();

	T_EQ(rig_read(f, m, 0, 0, FILE_LEN).res, (int64_t)FILE_LEN);
	while (!(rig_read(f, m, 0, 0, PIECE).paths & PST_PATH_BIT(PST_PATH_PAGECACHE))) {
		T_CHECK(t_now() < end);
		rig_warm(rig_path("data"));
		(void)nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
}

/* Wait until this number of bytes is pinned: a unit of pages fills some time after its first
 * bytes. */
static void wait_bytes(uint64_t bytes)
{
	uint64_t end = t_hang();

	while (rig_stats(NULL).pages_bytes != bytes && t_now() < end)
		(void)usleep(1000);
	T_EQ(rig_stats(NULL).pages_bytes, bytes);
}

static void prep(struct pst_file *f, struct pst_mem *m, uint64_t at, unsigned piece,
		 uint64_t deadline)
{
	struct pst_io io = rig_io(PST_OP_READ, f, m, piece * PIECE, at, PIECE);

	io.user_data = piece;
	io.deadline_ns = deadline;
	T_OK(pst_queue_prep(rig_q, &io));
}

/* Read all pieces at once: the device copies them from the page cache, and the bytes are right. */
static void pieces_go_together(void)
{
	struct pst_mem *m[PIECES], *all = rig_alloc(rig_dev, FILE_LEN);
	struct pst_file *f = stable();
	struct pst_done d[PIECES];

	wait_pinned(f, all);
	for (unsigned i = 0; i < PIECES; i++) {
		m[i] = rig_alloc(rig_dev, PIECE);
		prep(f, m[i], 0, i, 0);
	}
	T_EQ(pst_queue_submit(rig_q), PIECES);
	T_EQ(pst_queue_reap(rig_q, d, PIECES, PIECES, t_hang()), PIECES);
	for (unsigned i = 0; i < PIECES; i++) {
		rig_show(&d[i]);
		T_EQ(d[i].res, (int64_t)PIECE);
		T_CHECK(d[i].paths & PST_PATH_BIT(PST_PATH_PAGECACHE));
		T_EQ(d[i].why, PST_WHY_NONE);
		T_EQ(rig_mem_differs(m[i], 0, PIECE, SEED, i * PIECE), PIECE);
		pst_mem_free(m[i]);
	}
	pst_file_close(f);
	pst_mem_free(all);
}

/* Read all pieces while one call of the driver fails.  Return true if the call was made. */
static bool despite(const char *spec, struct pst_file *f, struct pst_mem *all)
{
	struct pst_mem *m = rig_alloc(rig_dev, PIECE);
	struct pst_done d[PIECES];
	bool met;

	for (unsigned i = 0; i < PIECES; i++)
		prep(f, i == 5 ? m : all, i == 5 ? 0 : i * PIECE, i, 0);
	(void)fail(spec);
	delay_us(20000); /* the device is busy with the first piece when the others arrive */
	T_EQ(pst_queue_submit(rig_q), PIECES);
	T_EQ(pst_queue_reap(rig_q, d, PIECES, PIECES, t_hang()), PIECES);
	delay_us(0);
	met = fail(NULL);
	for (unsigned i = 0; i < PIECES; i++)
		T_EQ(d[i].res, (int64_t)PIECE);
	T_EQ(rig_mem_differs(m, 0, PIECE, SEED, 5 * PIECE), PIECE);
	pst_mem_free(m);
	return met;
}

/* A failed batch is retried piece by piece: no piece fails because of another. */
static void a_failed_batch_is_taken_apart(void)
{
	struct pst_mem *all;
	struct pst_file *f;
	bool batched, gathered;

	if (!fail || !delay_us)
		T_SKIP("a CUDA library that fails on demand");
	all = rig_alloc(rig_dev, FILE_LEN);
	f = stable();
	wait_pinned(f, all);
	/* The size of this machine's jobs decides which of the two calls is used. */
	batched = despite("cuMemcpyBatchAsync_v2:1:1", f, all);
	gathered = despite("cuLaunchKernel:1:1", f, all);
	T_CHECK(batched || gathered);
	pst_file_close(f);
	pst_mem_free(all);
}

/* Cancel some reads, some of them too late: each completes once, and the others have their
 * bytes. */
static void some_end_early(void)
{
	struct pst_mem *m[PIECES], *all = rig_alloc(rig_dev, FILE_LEN);
	struct pst_file *f = stable();
	unsigned seen[PIECES] = { 0 };
	struct pst_done d[PIECES];

	wait_pinned(f, all);
	for (unsigned i = 0; i < PIECES; i++) {
		m[i] = rig_alloc(rig_dev, PIECE);
		prep(f, m[i], 0, i, i % 4 == 1 ? 1 : 0);
	}
	T_EQ(pst_queue_submit(rig_q), PIECES);
	for (unsigned i = 2; i < PIECES; i += 4)
		(void)pst_queue_cancel(rig_q, i);
	T_EQ(pst_queue_reap(rig_q, d, PIECES, PIECES, t_hang()), PIECES);
	for (unsigned i = 0; i < PIECES; i++) {
		unsigned p = (unsigned)d[i].user_data;

		T_EQ(seen[p]++, 0);
		if (p % 4 == 1)
			T_EQ(d[i].res, -ETIMEDOUT);
		else if (d[i].res != -ECANCELED)
			T_EQ(d[i].res, (int64_t)PIECE);
		if (d[i].res >= 0)
			T_EQ(rig_mem_differs(m[p], 0, PIECE, SEED, p * PIECE), PIECE);
		if (p % 2 == 0 && p % 4 == 0)
			T_EQ(d[i].res, (int64_t)PIECE);
	}
	for (unsigned i = 0; i < PIECES; i++) {
		T_OK(pst_mem_drain(m[i], t_hang()));
		pst_mem_free(m[i]);
	}
	pst_file_close(f);
	pst_mem_free(all);
}

/* The file changes in spite of the promise: reads return the new bytes, through the pool. */
static void a_changed_file_is_read_again(void)
{
	struct pst_mem *all = rig_alloc(rig_dev, FILE_LEN);
	struct pst_file *f = stable(), *w;
	struct pst_mem *host = rig_alloc("host", PIECE);
	struct pst_done d;

	wait_pinned(f, all);
	rig_mem_fill(host, 0, PIECE, 99, 0);
	w = rig_open(rig_path("data"), PST_FILE_WRITE);
	T_EQ(rig_write(w, host, 3 * PIECE, 0, PIECE).res, (int64_t)PIECE);
	d = rig_read(f, all, 3 * PIECE, 0, PIECE);
	rig_show(&d);
	T_EQ(d.res, (int64_t)PIECE);
	T_CHECK(!(d.paths & PST_PATH_BIT(PST_PATH_PAGECACHE)));
	T_EQ(rig_mem_differs(all, 0, PIECE, 99, 0), PIECE);
	pst_file_close(w);
	pst_file_close(f);
	pst_mem_free(host);
	pst_mem_free(all);
}

/* Wait until the work queue's thread has ended, and with it all its work. */
static void wait_work(void)
{
	uint64_t end = t_in_ms(RIG_WAIT_MS);

	do
		(void)usleep(1000);
	while (rig_count_tasks() && strstr(rig_task_names, "pst-work") && t_now() < end);
	T_CHECK(!strstr(rig_task_names, "pst-work"));
}

/* Bytes that are read once are not pinned; bytes that are read twice are. */
static void read_once_is_not_pinned(void)
{
	struct pst_mem *all = rig_alloc(rig_dev, FILE_LEN);
	struct pst_file *f = stable();
	uint64_t before;

	wait_work(); /* finish the work of earlier cases */
	before = rig_stats(NULL).pages_bytes;
	T_EQ(rig_read(f, all, 0, 0, PIECE).res, (int64_t)PIECE);
	for (unsigned i = 0; i < PIECES; i++)
		T_EQ(rig_read(f, all, i * PIECE, i * PIECE, PIECE).res, (int64_t)PIECE);
	wait_work();
	T_EQ(rig_stats(NULL).pages_bytes, before);
	wait_pinned(f, all);
	wait_bytes(before + FILE_LEN);
	pst_file_close(f);
	pst_mem_free(all);
}

/* Closing does not wait for the driver.  Pages count as pinned until they are unpinned. */
static void close_does_not_unpin(void)
{
	struct pst_mem *all = rig_alloc(rig_dev, FILE_LEN);
	struct pst_file *f = stable();
	uint64_t before;

	if (!stall)
		T_SKIP("a CUDA library that stalls on demand");
	wait_work(); /* finish the work of earlier cases */
	before = rig_stats(NULL).pages_bytes;
	wait_pinned(f, all);
	wait_bytes(before + FILE_LEN);
	stall("cuMemHostUnregister");
	(void)alarm(60);
	pst_file_close(f);
	(void)alarm(0);
	T_EQ(rig_stats(NULL).pages_bytes, before + FILE_LEN);
	/* The memory that was read into can be drained: the pinned file does not use it. */
	T_OK(pst_mem_drain(all, t_in_ms(RIG_WAIT_MS)));
	stall(NULL);
	wait_bytes(before);
	pst_mem_free(all);
}

/* Close files while their units are being pinned: each unit is pinned and unpinned completely. */
static void close_while_pinning(void)
{
	struct pst_mem *all = rig_alloc(rig_dev, FILE_LEN);
	uint64_t before = rig_stats(NULL).pages_bytes, end;

	for (unsigned i = 0; i < (RIG_TSAN ? 8 : 20); i++) {
		struct pst_file *f = stable();

		for (unsigned k = 0; k < 2 + i % 2; k++)
			T_EQ(rig_read(f, all, 0, 0, FILE_LEN).res, (int64_t)FILE_LEN);
		pst_file_close(f);
	}
	end = t_in_ms(RIG_WAIT_MS);
	while (rig_stats(NULL).pages_bytes != before && t_now() < end)
		(void)usleep(1000);
	T_EQ(rig_stats(NULL).pages_bytes, before);
	pst_mem_free(all);
}

static void ends_here(void)
{
	struct pst_mem *all = rig_alloc(rig_dev, FILE_LEN);
	struct pst_file *f = stable();

	wait_pinned(f, all);
	pst_file_close(f);
	exit(0);
}

/* A process that exits right after closing neither waits nor crashes. */
static int child(void)
{
	rig_init();
	rig_dev = "cuda:0";
	rig_q = rig_queue(0, 0);
	if (!setjmp(t_jump))
		ends_here();
	fprintf(stderr, "%s\n", t_why);
	return 2;
}

static const char *self;

static void the_process_may_end(void)
{
	int status;
	pid_t pid;

	for (unsigned i = 0; i < (RIG_TSAN ? 2 : 5); i++) {
		pid = fork();
		if (pid == 0) {
			(void)execl("/proc/self/exe", self, "child", (char *)NULL);
			_exit(3);
		}
		T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
		T_EQ(status, 0);
	}
}

static void no_cuda(void)
{
	T_SKIP("%s", pst_error_text());
}

/* The device copies pinned pages directly, even while the engine works for another queue. */
static void single_reads_take_pinned_pages(void)
{
	struct pst_file *f = stable(), *other;
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);
	struct pst_queue *q = rig_queue(rig_backend, 0);
	struct pst_done d;
	struct pst_io io;

	if (!stall)
		T_SKIP("needs the library of tests/stub");
	wait_pinned(f, m);
	other = rig_open(rig_path("data"), RIG_R);
	io = rig_io(PST_OP_READ, other, m, 0, 2 * PIECE, 2 * PIECE);
	T_OK(pst_queue_prep(q, &io));
	delay_us(50000);
	T_EQ(pst_queue_submit(q), 1);
	d = rig_read(f, m, 0, 0, PIECE);
	delay_us(0);
	rig_show(&d);
	/* GATHER: one kernel may copy pages that were pinned in several pieces. */
	T_EQ(d.paths & ~PST_PATH_BIT(PST_PATH_GATHER), PST_PATH_BIT(PST_PATH_PAGECACHE));
	T_EQ(rig_reap1(q).res, (int64_t)(2 * PIECE));
	pst_queue_free(q);
	pst_file_close(other);
	pst_file_close(f);
	pst_mem_free(m);
}

/* Limit staging memory to this number of bytes; 0 restores the default. */
static void bound_pool(uint64_t bytes)
{
	struct pst_limits l = { .sz = sizeof(l), .pool_bytes = bytes };

	T_OK(pst_limits_set(&l));
}

static void let_go(void)
{
	stall(NULL);
	bound_pool(0);
}

static uint64_t stalled_at; /* ns: begin_pinning() started the pinning after this time */

/* Start to pin the file, and let the driver stall that.  No thread that makes slots may stall,
 * so the pool cannot grow.  Return the bytes that were pinned before. */
static uint64_t begin_pinning(struct pst_file *f, struct pst_mem *m)
{
	uint64_t before;

	wait_work(); /* finish the work of earlier cases */
	before = rig_stats(NULL).pages_bytes;
	T_EQ(rig_read(f, m, 0, 0, FILE_LEN).res, (int64_t)FILE_LEN);
	bound_pool(rig_stats(NULL).pool_bytes);
	wait_work();
	stalled_at = t_now();
	stall("file pages");
	T_EQ(rig_read(f, m, 0, 0, FILE_LEN).res, (int64_t)FILE_LEN);
	wait_bytes(before + FILE_LEN);
	return before;
}

/* pages_waiting counts bytes that are going to be pinned, so that a program can wait for them. */
static void what_is_about_to_be_pinned_is_counted(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);
	struct pst_file *f = stable(), *closed = stable();
	uint64_t before, end = t_hang();

	if (!stall)
		T_SKIP("needs the library of tests/stub");
	before = begin_pinning(f, m);
	T_EQ(rig_stats(NULL).pages_waiting, FILE_LEN);
	/* A second file waits to be pinned, and is closed before that begins. */
	for (unsigned i = 0; i < 2; i++)
		T_EQ(rig_read(closed, m, 0, 0, FILE_LEN).res, (int64_t)FILE_LEN);
	T_EQ(rig_stats(NULL).pages_waiting, 2 * FILE_LEN);
	pst_file_close(closed);
	let_go();
	while (rig_stats(NULL).pages_waiting && t_now() < end)
		(void)usleep(1000);
	T_EQ(rig_stats(NULL).pages_waiting, 0);
	T_EQ(rig_stats(NULL).pages_bytes, before + FILE_LEN);
	pst_file_close(f);
	wait_bytes(before);
	T_EQ(rig_stats(NULL).pages_waiting, 0);
	pst_mem_free(m);
}

static struct pst_io listed(struct pst_file *f, struct pst_mem *m, uint64_t len)
{
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, len);

	io.policy = PST_POLICY1(PST_PATH_PAGECACHE);
	return io;
}

static void came_from_pages(struct pst_mem *m, const struct pst_done *d, uint64_t len)
{
	rig_show(d);
	T_EQ(d->res, (int64_t)len);
	T_CHECK(d->paths & PST_PATH_BIT(PST_PATH_PAGECACHE));
	T_EQ(rig_mem_differs(m, 0, len, SEED, 0), len);
}

/* A listed read of a file that is not pinned pins it at once, although several workers read
 * parts. */
static void a_listed_read_pins_at_once(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);

	for (unsigned i = 0; i < 5; i++) {
		struct pst_file *f = stable();
		struct pst_io io = listed(f, m, FILE_LEN);
		struct pst_done d = rig_do(rig_q, &io);

		came_from_pages(m, &d, FILE_LEN);
		pst_file_close(f);
	}
	pst_mem_free(m);
}

/* A listed read arrives while the file is being pinned, and waits for that.  Return false if
 * this test was too slow to see it wait. */
static bool listed_read_waits(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);
	struct pst_file *f = stable();
	struct pst_io io = listed(f, m, PIECE);
	struct pst_done d;
	uint64_t took;
	int early;

	(void)begin_pinning(f, m);
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 1);
	(void)usleep(20000);
	early = pst_queue_reap(rig_q, &d, 0, 1, 0);
	let_go();
	took = t_now() - stalled_at;
	if (!early)
		d = rig_reap1(rig_q);
	if (took < GIVES_UP_NS) {
		T_EQ(early, 0);
		came_from_pages(m, &d, PIECE);
	}
	pst_file_close(f);
	pst_mem_free(m);
	return took < GIVES_UP_NS;
}

/* A busy machine may need several tries. */
static void a_listed_read_waits_for_the_pinning(void)
{
	unsigned tries = 0;

	if (!stall)
		T_SKIP("needs the library of tests/stub");
	while (!listed_read_waits())
		T_CHECK(++tries < 20);
}

/* The driver stalls a pinning.  Workers with listed reads of the same file, or of others, must
 * not wait long for it. */
static void pinning_is_kept(bool others)
{
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN), *other = rig_alloc(rig_dev, FILE_LEN);
	struct pst_file *f = stable(), *plain = rig_open(rig_path("data"), RIG_R);
	struct pst_io io = rig_io(PST_OP_READ, plain, other, 0, 0, FILE_LEN);
	struct pst_queue *q = rig_queue(rig_backend, 0);
	struct pst_file *read[PIECES];
	uint64_t before;

	T_EQ(rig_do(q, &io).res, (int64_t)FILE_LEN); /* allocates the slots that this read needs */
	before = begin_pinning(f, m);
	for (unsigned i = 0; i < PIECES; i++) {
		struct pst_io one = rig_io(PST_OP_READ, f, m, i * PIECE, i * PIECE, PIECE);

		one.file = read[i] = others ? stable() : f;
		one.policy = PST_POLICY1(PST_PATH_PAGECACHE);
		T_OK(pst_queue_prep(rig_q, &one));
	}
	T_EQ(pst_queue_submit(rig_q), PIECES);
	T_EQ(rig_do(q, &io).res, (int64_t)FILE_LEN);
	T_EQ(rig_stats(NULL).pages_bytes, before + FILE_LEN); /* the pinning is still stalled */
	for (unsigned i = 0; i < PIECES; i++)
		T_EQ(rig_reap1(rig_q).res, -EOPNOTSUPP);
	let_go();
	for (unsigned i = 0; others && i < PIECES; i++)
		pst_file_close(read[i]);
	pst_queue_free(q);
	pst_file_close(plain);
	pst_file_close(f);
	pst_mem_free(other);
	pst_mem_free(m);
}

static void a_pinning_that_is_kept_keeps_no_workers(void)
{
	if (!stall)
		T_SKIP("needs the library of tests/stub");
	pinning_is_kept(false);
	pinning_is_kept(true);
}

/* Wait until a call of the driver stalls. */
static void wait_stalled(void)
{
	uint64_t end = t_hang();
	struct stub_cuda_state s;

	for (state(&s); !s.stalled && t_now() < end; state(&s))
		(void)usleep(1000);
	if (!s.stalled)
		let_go();
	T_EQ(s.stalled, 1);
}

/* Read the whole file in requests of one copy each, which need no device kernel. */
static void read_one_by_one(struct pst_file *f, struct pst_mem *m)
{
	uint64_t len = PIECE / 8;

	for (uint64_t at = 0; at < FILE_LEN; at += len)
		T_EQ(rig_read(f, m, at, at, len).res, (int64_t)len);
}

/* Read small pieces, which the device gathers if it can.  Return false if no completion came in
 * time. */
static bool read_small(struct pst_file *f, struct pst_mem *m, struct pst_done *ret)
{
	static struct pst_seg segs[8];
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, 0);

	for (unsigned i = 0; i < RIG_NR(segs); i++)
		segs[i] = (struct pst_seg){ .file_off = 2 * i * 4096,
					    .mem_off = 3 * i * 4096,
					    .len = 4096 };
	io.segs = segs;
	io.nr_segs = RIG_NR(segs);
	io.policy = PST_POLICY2(PST_PATH_CACHED, PST_PATH_STAGED);
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 1);
	return pst_queue_reap(rig_q, ret, 1, 1, t_hang()) == 1;
}

/* The driver stalls a pinning, and would stall others.  The first small pieces on a stream must
 * not wait for it; later ones are gathered by a device kernel. */
static void the_first_gather_does_not_wait_for_pinning(void)
{
	struct pst_mem *m;
	struct pst_file *f, *plain;
	struct pst_done d;
	bool came;

	if (!state)
		T_SKIP("needs the library of tests/stub");
	m = rig_alloc(rig_dev, FILE_LEN);
	f = stable();
	plain = rig_open(rig_path("data"), RIG_R);
	wait_work(); /* finish the work of earlier cases */
	read_one_by_one(f, m);
	bound_pool(rig_stats(NULL).pool_bytes);
	wait_work();
	stall("file pages");
	read_one_by_one(f, m);
	wait_stalled();
	came = read_small(plain, m, &d);
	let_go();
	T_CHECK(came);
	rig_show(&d);
	T_EQ(d.res, 8 * 4096);
	T_EQ(d.paths & PST_PATH_BIT(PST_PATH_GATHER), 0);
	T_EQ(rig_mem_differs(m, 0, 4096, SEED, 0), 4096);
	T_EQ(rig_mem_differs(m, 21 * 4096, 4096, SEED, 14 * 4096), 4096);
	wait_work();
	T_CHECK(read_small(plain, m, &d));
	rig_show(&d);
	T_CHECK(d.paths & PST_PATH_BIT(PST_PATH_GATHER));
	pst_file_close(plain);
	pst_file_close(f);
	pst_mem_free(m);
}

/* Open a stable file of this many pieces. */
static struct pst_file *stable_of(const char *name, unsigned pieces)
{
	rig_make(rig_path(name), SEED, pieces * PIECE);
	rig_warm(rig_path(name));
	return rig_open(rig_path(name), PST_FILE_READ | PST_FILE_STABLE);
}

/* Pin one file while a second one waits to be pinned, then submit a listed read of a third.
 * Return the bytes that the next pinning covers, or 0 if the read may have given up before. */
static uint64_t pinned_next(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);
	struct pst_file *f[3];
	uint64_t before, start, took, bytes, end = t_hang();
	struct pst_io io;
	unsigned waits;

	for (unsigned i = 0; i < 3; i++)
		f[i] = stable_of(i == 0 ? "first" : i == 1 ? "second" : "third", i + 1);
	wait_work(); /* finish the work of earlier cases */
	before = rig_stats(NULL).pages_bytes;
	for (unsigned i = 0; i < 2; i++)
		T_EQ(rig_read(f[i], m, 0, 0, (i + 1) * PIECE).res, (int64_t)((i + 1) * PIECE));
	bound_pool(rig_stats(NULL).pool_bytes);
	wait_work();
	start = t_now();
	stall("file pages");
	for (unsigned i = 0; i < 2; i++)
		T_EQ(rig_read(f[i], m, 0, 0, (i + 1) * PIECE).res, (int64_t)((i + 1) * PIECE));
	wait_stalled();
	waits = atomic_load(&worker_waits);
	io = listed(f[2], m, 3 * PIECE);
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 1);
	while (atomic_load(&worker_waits) == waits && t_now() < end)
		(void)usleep(100);
	took = t_now() - start;
	stall("file pages"); /* release the first pinning, and stall the next one */
	do
		bytes = rig_stats(NULL).pages_bytes - before - PIECE;
	while (!bytes && t_now() < end);
	let_go();
	(void)rig_reap1(rig_q);
	wait_work();
	for (unsigned i = 0; i < 3; i++)
		pst_file_close(f[i]);
	pst_mem_free(m);
	return took < GIVES_UP_NS ? bytes : 0;
}

/* A busy machine may need several tries. */
static void a_listed_read_waits_for_one_pinning(void)
{
	uint64_t bytes;
	unsigned tries = 0;

	if (!state)
		T_SKIP("needs the library of tests/stub");
	while (!(bytes = pinned_next()))
		T_CHECK(++tries < 20);
	T_EQ(bytes, 3 * PIECE);
}

static void run(const char *name, void (*fn)(void))
{
	static const char *const backends[] = { "", "uring", "threads" };
	char full[100];

	for (rig_backend = PST_BACKEND_URING; rig_backend <= PST_BACKEND_THREADS; rig_backend++) {
		rig_dev = "cuda:0";
		rig_last = rig_q;
		rig_q = NULL;
		rig_fn = fn;
		(void)snprintf(full, sizeof(full), "%s %s", name, backends[rig_backend]);
		t_run(full, rig_case);
	}
}

#define RUN(fn) run(#fn, fn)

/* Find the functions that only the CUDA stub has. */
static void find_stub(void)
{
	const char *name = getenv("PST_LIBCUDA");
	void *lib = dlopen(name ? name : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *fn;

	fn = lib ? dlsym(lib, "stub_cuda_fail") : NULL;
	memcpy(&fail, &fn, sizeof(fn));
	fn = lib ? dlsym(lib, "stub_cuda_delay_us") : NULL;
	memcpy(&delay_us, &fn, sizeof(fn));
	fn = lib ? dlsym(lib, "stub_cuda_stall") : NULL;
	memcpy(&stall, &fn, sizeof(fn));
	fn = lib ? dlsym(lib, "stub_cuda_state") : NULL;
	memcpy(&state, &fn, sizeof(fn));
}

int main(int argc, char **argv)
{
	struct pst_device dev = { .sz = sizeof(dev) };
	struct pst_mem *keep = NULL;

	self = argv[0];
	if (argc == 2 && !strcmp(argv[1], "child"))
		return child();
	rig_init();
	if (pst_device_find("cuda:0", &dev) < 0) {
		T_RUN(no_cuda);
		return rig_done();
	}
	/* Create a context before counting threads: a real driver has threads as long as one
	 * exists. */
	if (pst_mem_alloc("cuda:0", 1, NULL, &keep) == 0)
		(void)pst_mem_copy_in(keep, 0, "", 1);
	find_stub();
	rig_tasks = rig_count_tasks();
	/* Must come before the case that leaves the device without its kernel. */
	RUN(the_first_gather_does_not_wait_for_pinning);
	RUN(pieces_go_together);
	RUN(a_failed_batch_is_taken_apart);
	RUN(some_end_early);
	RUN(a_changed_file_is_read_again);
	RUN(read_once_is_not_pinned);
	RUN(close_does_not_unpin);
	RUN(close_while_pinning);
	RUN(single_reads_take_pinned_pages);
	RUN(what_is_about_to_be_pinned_is_counted);
	RUN(a_listed_read_pins_at_once);
	RUN(a_listed_read_waits_for_the_pinning);
	RUN(a_pinning_that_is_kept_keeps_no_workers);
	RUN(a_listed_read_waits_for_one_pinning);
	RIG_RUN1(the_process_may_end);
	pst_mem_free(keep);
	return rig_done();
}
