/* SPDX-License-Identifier: MIT */
/*
 * Limits of pinned memory, set by the program or the environment: they hold while requests run
 * and while they change, and an error names a limit that is too small.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "rig.h"

#include "fusefs.h"

#define SEED 21u
#define FILE_LEN RIG_MIB(8)
#define SLOT_MAX RIG_MIB(4)
#define PIECE 4096u
#define HANG_MS 60000u  /* ms; a longer wait means a hang, even on a busy machine */
#define HOG_DEPTH 1024u /* requests that hang, each in a slot */

static const char *self;

static int set(uint64_t pool, uint64_t pages)
{
	struct pst_limits l = { .sz = sizeof(l), .pool_bytes = pool, .pages_bytes = pages };

	return pst_limits_set(&l);
}

static struct pst_limits get(void)
{
	struct pst_limits l = { .sz = sizeof(l) };

	T_OK(pst_limits_get(&l));
	return l;
}

/* ------------------------------------------------------------ who sets them */

static void set_and_get(void)
{
	struct pst_stats st = rig_stats(NULL);

	T_EQ(get().pool_bytes | get().pages_bytes, 0);
	T_EQ(st.pool_limit, RIG_MIB(256));
	T_CHECK(st.pages_limit > 0);
	T_OK(set(RIG_MIB(64), RIG_MIB(1024)));
	T_EQ(get().pool_bytes, RIG_MIB(64));
	T_EQ(get().pages_bytes, RIG_MIB(1024));
	T_EQ(rig_stats(NULL).pool_limit, RIG_MIB(64));
	T_EQ(rig_stats(NULL).pages_limit, RIG_MIB(1024));
	T_OK(set(UINT64_MAX, 1));
	T_EQ(rig_stats(NULL).pool_limit, UINT64_MAX);
	T_EQ(rig_stats(NULL).pages_limit, 1);
	T_OK(pst_limits_set(NULL));
	T_EQ(get().pool_bytes | get().pages_bytes, 0);
	T_EQ(rig_stats(NULL).pool_limit, st.pool_limit);
	T_EQ(rig_stats(NULL).pages_limit, st.pages_limit);
}

/*
 * Run a process with these settings in its environment.  Collect what it prints, errors included.
 */
static void child_says(const char *pool, const char *pages, char *buf, size_t len)
{
	int out[2], status;
	size_t have = 0;
	ssize_t n;
	pid_t pid;

	T_EQ(pipe(out), 0);
	pid = fork();
	if (pid == 0) {
		(void)dup2(out[1], STDOUT_FILENO);
		(void)dup2(out[1], STDERR_FILENO);
		(void)close(out[0]);
		(void)setenv("PST_LOG", "warn", 1);
		(void)(pool ? setenv("PST_POOL", pool, 1) : unsetenv("PST_POOL"));
		(void)(pages ? setenv("PST_PAGES", pages, 1) : unsetenv("PST_PAGES"));
		(void)execl(self, self, "child", (char *)NULL);
		_exit(127);
	}
	(void)close(out[1]);
	while (have < len - 1 && (n = read(out[0], buf + have, len - 1 - have)) > 0)
		have += (size_t)n;
	buf[have] = '\0';
	(void)close(out[0]);
	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	T_EQ(status, 0);
}

/* Print the limits, and whether they can be set to 1 GiB and to one byte. */
static int child(void)
{
	struct pst_stats st = { .sz = sizeof(st) };
	int large, small;

	if (pst_stats(NULL, &st) < 0)
		return 1;
	large = set(RIG_MIB(1024), RIG_MIB(1024));
	if (large < 0)
		(void)fprintf(stderr, "%s\n", pst_error_text());
	small = set(1, 1);
	printf("%" PRIu64 " %" PRIu64 " %d %d", st.pool_limit, st.pages_limit, large, small);
	return set(0, 0) != 0;
}

static void environment(void)
{
	static const struct {
		const char *pool, *pages;
		uint64_t want_pool, want_pages; /* expected limits; 0: the default */
		int large;
		const char *said;
	} cases[] = {
		{ NULL, NULL, 0, 0, 0, NULL },
		{ "", "", 0, 0, 0, NULL },
		{ "2G", "3G", UINT64_C(2) << 30, UINT64_C(3) << 30, 0, NULL },
		{ "64m", NULL, RIG_MIB(64), 0, -EPERM, "PST_POOL in the environment allows: 64m" },
		{ NULL, "128M", 0, RIG_MIB(128), -EPERM, "PST_PAGES in the environment" },
		{ "1048576K", "1073741824", RIG_MIB(1024), RIG_MIB(1024), 0, NULL },
		{ "64GB", NULL, 0, 0, 0, "PST_POOL: \"64GB\" is no number" },
		{ "lots", "-1", 0, 0, 0, "PST_PAGES: \"-1\" is no number" },
		{ "1.5G", NULL, 0, 0, 0, "ignoring" },
		{ "99999999999T", NULL, 0, 0, 0, "PST_POOL: 99999999999T is more" },
	};
	struct pst_stats st = rig_stats(NULL);

	for (unsigned i = 0; i < RIG_NR(cases); i++) {
		char buf[1000], want[200];

		child_says(cases[i].pool, cases[i].pages, buf, sizeof(buf));
		(void)snprintf(want, sizeof(want), "%" PRIu64 " %" PRIu64 " %d 0",
			       cases[i].want_pool ? cases[i].want_pool : st.pool_limit,
			       cases[i].want_pages ? cases[i].want_pages : st.pages_limit,
			       cases[i].large);
		if (!strstr(buf, want) || !strstr(buf, cases[i].said ? cases[i].said : ""))
			T_FAIL("case %u: %s, not %s and %s", i, buf, want,
			       cases[i].said ? cases[i].said : "");
		if (!cases[i].said)
			T_CHECK(!strstr(buf, "penstock:"));
	}
	/* 0 is a valid limit: nothing may be pinned. */
	{
		char buf[1000];

		child_says("0", "0", buf, sizeof(buf));
		T_CHECK(strstr(buf, "0 0 -1 -1"));
	}
}

/* ----------------------------------------------------------------- sampler */

/* Polls the counters.  most: the largest pool_bytes so far.  above: bytes over the limit, which
 * must not change while the thread polls. */
static struct {
	pthread_t thread;
	atomic_bool stop;
	_Atomic uint64_t most, above;
} sampler;

static void *sample(void *arg)
{
	(void)arg;
	while (!sampler.stop) {
		struct pst_stats st = { .sz = sizeof(st) };

		if (pst_stats(NULL, &st) < 0)
			sampler.above = UINT64_MAX;
		if (st.pool_bytes > sampler.most)
			sampler.most = st.pool_bytes;
		if (st.pool_bytes > st.pool_limit)
			sampler.above = st.pool_bytes - st.pool_limit;
		(void)usleep(50);
	}
	return NULL;
}

static void sampler_start(void)
{
	sampler.stop = false;
	sampler.most = sampler.above = 0;
	T_EQ(pthread_create(&sampler.thread, NULL, sample, NULL), 0);
}

static void sampler_end(void)
{
	sampler.stop = true;
	T_EQ(pthread_join(sampler.thread, NULL), 0);
}

/* -------------------------------------------------------------------- load */

#define LOADS 4u

/* Threads that read in a loop, each with a queue of its own, on both back ends. */
static struct load {
	pthread_t thread;
	uint32_t backend;
	char path[200];
	atomic_bool stop;
	_Atomic uint64_t rounds;
	atomic_int failed;
	char why[200];
} loads[LOADS];

static void load_round(struct load *l, struct pst_queue *q, struct pst_file *f, struct pst_mem *m)
{
	enum { NR = 16 };
	struct pst_done d[NR];
	uint64_t len = FILE_LEN / NR;
	unsigned nr = 0;

	for (unsigned i = 0; i < NR; i++) {
		struct pst_io io = rig_io(PST_OP_READ, f, m, i * len, i * len, len);

		nr += pst_queue_prep(q, &io) == 0;
	}
	if (pst_queue_submit(q) != NR || nr != NR ||
	    pst_queue_reap(q, d, NR, NR, t_in_ms(RIG_WAIT_MS)) != NR)
		l->failed = 1;
	for (unsigned i = 0; i < NR && !l->failed; i++)
		l->failed = d[i].res != (int64_t)len;
	l->rounds++;
}

static void *load_main(void *arg)
{
	struct load *l = arg;
	struct pst_queue_opts o = { .sz = sizeof(o), .backend = l->backend };
	struct pst_queue *q = NULL;
	struct pst_file *f = NULL;
	struct pst_mem *m = NULL;
	char *buf = malloc(FILE_LEN);

	if (!buf || pst_queue_new(&o, &q) < 0 || pst_mem_alloc("soft:0", FILE_LEN, NULL, &m) < 0 ||
	    pst_file_open(l->path, PST_FILE_READ, NULL, &f) < 0)
		l->failed = 2;
	while (!l->stop && !l->failed)
		load_round(l, q, f, m);
	if (l->failed)
		(void)snprintf(l->why, sizeof(l->why), "%s", pst_error_text());
	else if (pst_mem_copy_out(m, 0, buf, FILE_LEN) < 0 ||
		 t_differs(buf, SEED, 0, FILE_LEN) != FILE_LEN)
		l->failed = 3;
	pst_queue_free(q);
	pst_file_close(f);
	pst_mem_free(m);
	free(buf);
	return NULL;
}

static void loads_start(void)
{
	bool uring = rig_backend_check(PST_BACKEND_URING) == 0;

	if (access(rig_path("data"), R_OK) < 0)
		rig_make(rig_path("data"), SEED, FILE_LEN);
	for (unsigned i = 0; i < LOADS; i++) {
		struct load *l = &loads[i];

		l->backend = i & 1 && uring ? PST_BACKEND_URING : PST_BACKEND_THREADS;
		(void)snprintf(l->path, sizeof(l->path), "%s", rig_path("data"));
		l->stop = false;
		l->rounds = 0;
		l->failed = 0;
		T_EQ(pthread_create(&l->thread, NULL, load_main, l), 0);
	}
}

/* Wait until each queue has done this many more rounds. */
static void loads_run(uint64_t rounds)
{
	uint64_t end = t_in_ms(HANG_MS);

	for (unsigned i = 0; i < LOADS; i++) {
		uint64_t to = loads[i].rounds + rounds;

		while (loads[i].rounds < to && !loads[i].failed && t_now() < end)
			(void)usleep(500);
	}
}

static void loads_end(void)
{
	for (unsigned i = 0; i < LOADS; i++)
		loads[i].stop = true;
	for (unsigned i = 0; i < LOADS; i++)
		T_EQ(pthread_join(loads[i].thread, NULL), 0);
	for (unsigned i = 0; i < LOADS; i++)
		if (loads[i].failed || !loads[i].rounds)
			T_FAIL("load %u failed with %d: %s", i, loads[i].failed, loads[i].why);
}

static void within(uint64_t bound)
{
	T_OK(set(bound, 0));
	sampler_start();
	loads_start();
	loads_run(3);
	loads_end();
	sampler_end();
	T_EQ(sampler.above, 0);
	T_CHECK(sampler.most > 0 && sampler.most <= bound);
	rig_quiet();
	T_OK(set(0, 0));
}

/* Run with the smallest limit that the queues' reserves allow, and with one above all that they can
 * use. */
static void stays_within(void)
{
	within(2 * LOADS * SLOT_MAX);
	within(RIG_MIB(1024));
}

/* Lower and raise the limit while the queues run. */
static void lowered_while_running(void)
{
	uint64_t low = 2 * LOADS * SLOT_MAX, end;

	T_OK(set(RIG_MIB(512), 0));
	loads_start();
	loads_run(1);
	for (unsigned i = 0; i < 8; i++) {
		T_OK(set(low, 0));
		end = t_in_ms(HANG_MS);
		while (rig_stats(NULL).pool_bytes > low && t_now() < end)
			(void)usleep(200);
		T_CHECK(rig_stats(NULL).pool_bytes <= low);
		loads_run(1);
		T_CHECK(rig_stats(NULL).pool_bytes <= low);
		T_OK(set(RIG_MIB(512), 0));
		loads_run(1);
	}
	loads_end();
	T_OK(set(0, 0));
}

/* --------------------------------------------------------------- too small */

static void too_small(void)
{
	struct pst_mem *m = rig_alloc("soft:0", PIECE);
	struct pst_file *f;
	struct pst_io io;

	rig_make(rig_path("small"), SEED, PIECE);
	f = rig_open(rig_path("small"), RIG_R);
	io = rig_io(PST_OP_READ, f, m, 0, 0, PIECE);
	T_OK(set(100000, 0));
	T_EQ(pst_queue_prep(rig_q, &io), -EBUSY);
	T_CHECK(strstr(pst_error_text(), "PST_POOL"));
	T_EQ(rig_stats(NULL).pool_bytes, rig_before.pool_bytes);
	T_OK(set(2 * SLOT_MAX, 0));
	T_EQ(rig_do(rig_q, &io).res, PIECE);
	T_EQ(rig_mem_differs(m, 0, PIECE, SEED, 0), PIECE);
	/* The queue now has reserved slots: the limit cannot go below them. */
	T_EQ(set(100000, 0), -EBUSY);
	T_CHECK(strstr(pst_error_text(), "sure of"));
	T_EQ(get().pool_bytes, 2 * SLOT_MAX);
	T_EQ(rig_stats(NULL).pool_limit, 2 * SLOT_MAX);
	T_EQ(rig_do(rig_q, &io).res, PIECE);
	rig_q = pst_queue_free(rig_q);
	T_OK(set(100000, 0));
	T_OK(set(0, 0));
	pst_file_close(f);
	pst_mem_free(m);
}

/* Make queues until the limit leaves no room: each that was accepted can move bytes. */
static void a_queue_too_many(void)
{
	enum { MOST = 64 };
	struct pst_mem *m = rig_alloc("soft:0", PIECE);
	struct pst_queue *q[MOST] = { NULL };
	struct pst_file *f;
	struct pst_io io;
	unsigned nr = 0;
	int r = 0;

	rig_make(rig_path("small"), SEED, PIECE);
	f = rig_open(rig_path("small"), RIG_R);
	io = rig_io(PST_OP_READ, f, m, 0, 0, PIECE);
	T_OK(set(2 * SLOT_MAX, 0));
	sampler_start();
	while (nr < MOST && r == 0) {
		q[nr] = rig_queue(rig_backend, 4);
		r = pst_queue_prep(q[nr], &io);
		nr += r == 0;
	}
	if (r < 0)
		T_CHECK(strstr(pst_error_text(), "free a queue"));
	T_CHECK(r == -EBUSY || nr == MOST);
	T_CHECK(nr > 0);
	for (unsigned i = 0; i < nr; i++) {
		T_EQ(pst_queue_submit(q[i]), 1);
		T_EQ(rig_reap1(q[i]).res, PIECE);
	}
	/* Freeing one queue makes room for the one that was refused. */
	if (r < 0) {
		q[0] = pst_queue_free(q[0]);
		T_EQ(rig_do(q[nr], &io).res, PIECE);
	}
	sampler_end();
	T_EQ(sampler.above, 0);
	for (unsigned i = 0; i < MOST; i++)
		pst_queue_free(q[i]);
	T_OK(set(0, 0));
	pst_file_close(f);
	pst_mem_free(m);
}

/* -------------------------------------------------------- requests that hang */

static struct fusefs fs;
static struct pst_file *hang;
static struct pst_mem *mem;
static struct pst_queue *hog;

/* Slot size in bytes, from the library's debug log. */
static _Atomic uint64_t slot_bytes;

static void see_slots(void *arg, int level, const char *line)
{
	const char *at = strstr(line, "slots of ");

	(void)arg, (void)level;
	if (at)
		slot_bytes = strtoull(at + strlen("slots of "), NULL, 10);
}

/* Submit requests that each hold a slot until they are released: the pool grows to its limit. */
static void hog_start(uint64_t bound)
{
	struct pst_queue_opts o = { .sz = sizeof(o), .backend = rig_backend, .depth = HOG_DEPTH };
	uint64_t end = t_in_ms(HANG_MS);
	char path[200];

	fusefs_stop(&fs);
	if (fusefs_start(&fs, rig_dir) < 0)
		T_SKIP("%s", fs.why);
	(void)snprintf(path, sizeof(path), "%s/hang", fs.dir);
	hang = rig_open(path, RIG_R);
	mem = rig_alloc("soft:0", HOG_DEPTH * PIECE);
	T_OK(set(bound, 0));
	sampler_start();
	slot_bytes = 0;
	pst_log_set(see_slots, NULL, PST_LOG_DEBUG);
	T_OK(pst_queue_new(&o, &hog));
	for (unsigned i = 0; i < HOG_DEPTH; i++) {
		struct pst_io io = rig_io(PST_OP_READ, hang, mem, i * PIECE, i * PIECE, PIECE);

		io.deadline_ns = PST_NO_DEADLINE;
		T_OK(pst_queue_prep(hog, &io));
	}
	T_EQ(pst_queue_submit(hog), HOG_DEPTH);
	pst_log_set(NULL, NULL, 0);
	while (rig_stats(NULL).pool_bytes < bound && t_now() < end)
		(void)usleep(500);
	T_EQ(rig_stats(NULL).pool_bytes, bound);
}

/*
 * Wait until a request hangs in every slot.  The pool counts memory before it is allocated, and
 * allocates it before a request uses it.  Only for few slots: all queues together have at most 64
 * threads.
 */
static void hog_has_all(uint64_t bound)
{
	uint64_t end = t_in_ms(HANG_MS);

	T_CHECK(slot_bytes > 0);
	while (fusefs_waiting(&fs) * slot_bytes < bound && t_now() < end)
		(void)usleep(500);
	T_EQ(fusefs_waiting(&fs) * slot_bytes, bound);
}

static void hog_release(void)
{
	uint64_t end = t_in_ms(RIG_WAIT_MS);
	struct pst_done d;
	unsigned nr = 0;

	while (nr < HOG_DEPTH && t_now() < end) {
		fusefs_release(&fs);
		while (pst_queue_reap(hog, &d, 0, 1, 0) == 1) {
			T_EQ(d.res, PIECE);
			nr++;
		}
		(void)usleep(500);
	}
	T_EQ(nr, HOG_DEPTH);
	T_EQ(rig_mem_differs(mem, 0, HOG_DEPTH * PIECE, FUSEFS_SEED, 0), HOG_DEPTH * PIECE);
}

static void hog_end(void)
{
	hog = pst_queue_free(hog);
	sampler_end();
	hang = pst_file_close(hang);
	mem = pst_mem_free(mem);
	fusefs_stop(&fs);
	T_OK(set(0, 0));
}

/* One queue holds the whole pool: a request of another is refused until the limit is raised. */
static void grows_to_the_bound(void)
{
	struct pst_mem *m;
	struct pst_file *f;
	struct pst_io io;

	hog_start(RIG_MIB(16));
	hog_has_all(RIG_MIB(16));
	m = rig_alloc("soft:0", PIECE);
	rig_make(rig_path("small"), SEED, PIECE);
	f = rig_open(rig_path("small"), RIG_R);
	io = rig_io(PST_OP_READ, f, m, 0, 0, PIECE);
	T_EQ(pst_queue_prep(rig_q, &io), -EBUSY);
	T_CHECK(strstr(pst_error_text(), "under way"));
	T_OK(set(RIG_MIB(32), 0));
	T_EQ(rig_do(rig_q, &io).res, PIECE);
	T_EQ(rig_mem_differs(m, 0, PIECE, SEED, 0), PIECE);
	T_EQ(sampler.above, 0);
	pst_file_close(f);
	pst_mem_free(m);
	hog_release();
	hog_end();
}

/* Lower the limit below what is in use: requests continue, and the memory is freed afterwards. */
static void lowered_below_use(void)
{
	uint64_t low = 2 * SLOT_MAX, end;

	hog_start(RIG_MIB(16));
	hog_has_all(RIG_MIB(16));
	T_OK(set(low, 0));
	T_EQ(rig_stats(NULL).pool_limit, low);
	T_EQ(rig_stats(NULL).pool_bytes, RIG_MIB(16)); /* every slot is in use */
	hog_release();
	end = t_in_ms(HANG_MS);
	while (rig_stats(NULL).pool_bytes > low && t_now() < end)
		(void)usleep(500);
	T_CHECK(rig_stats(NULL).pool_bytes <= low);
	T_CHECK(rig_stats(NULL).pool_bytes > 0);
	hog_end();
}

/* An idle engine's slots make room for another engine. */
static void another_engine(void)
{
	uint32_t other = rig_backend == PST_BACKEND_URING ? PST_BACKEND_THREADS : PST_BACKEND_URING;
	struct pst_queue *q = NULL;
	struct pst_done d;
	struct pst_io io;

	if (rig_backend_check(other) < 0)
		T_SKIP("io_uring: %s", pst_error_text());
	hog_start(RIG_MIB(64));
	hog_release();
	T_EQ(rig_stats(NULL).pool_bytes, RIG_MIB(64)); /* the slots are kept for reuse */
	q = rig_queue(other, 0);
	io = rig_io(PST_OP_READ, hang, mem, 0, 0, PIECE);
	T_OK(pst_queue_prep(q, &io));
	T_CHECK(rig_stats(NULL).pool_bytes <= RIG_MIB(48));
	T_EQ(pst_queue_submit(q), 1);
	while (pst_queue_reap(q, &d, 0, 1, 0) == 0) {
		fusefs_release(&fs);
		(void)usleep(500);
	}
	T_EQ(d.res, PIECE);
	T_EQ(sampler.above, 0);
	pst_queue_free(q);
	hog_end();
}

/* ---------------------------------------------------------- pinned page cache */

/* Read the whole file until want bytes are pinned.  Check that this does not change. */
static void pins(struct pst_file *f, struct pst_mem *m, uint64_t len, uint64_t want)
{
	/* Under the thread sanitizer, these reads take longer than everything else here. */
	uint64_t end = t_in_ms(HANG_MS), more = RIG_TSAN ? 1 : 3;
	struct pst_stats st = { 0 };

	while (more && t_now() < end) {
		T_EQ(rig_read(f, m, 0, 0, len).res, (int64_t)len);
		(void)usleep(10000);
		st = rig_stats(NULL);
		T_CHECK(st.pages_bytes <= st.pages_limit);
		more -= st.pages_bytes == want;
	}
	T_EQ(st.pages_bytes, want);
}

static void pages(void)
{
	const uint64_t len = RIG_MIB(160); /* 2.5 units of 64 MiB */
	struct pst_device d = { .sz = sizeof(d) };
	struct pst_file *f;
	struct pst_mem *m;
	uint64_t end;
	char *zero;

	if (pst_device_find("cuda:0", &d) < 0)
		T_SKIP("%s", pst_error_text());
	rig_make(rig_path("pages"), SEED, len);
	rig_warm(rig_path("pages"));
	f = rig_open(rig_path("pages"), RIG_R | PST_FILE_STABLE);
	m = rig_alloc("cuda:0", len);
	T_OK(set(0, RIG_MIB(64) - 1));
	pins(f, m, len, RIG_MIB(32)); /* only the last, half unit fits */
	T_OK(set(0, RIG_MIB(96)));
	pins(f, m, len, RIG_MIB(96));
	T_OK(set(0, 0));
	pins(f, m, len, len);
	/* A lower limit does not unpin pages before their file is closed. */
	T_OK(set(0, 1));
	zero = calloc(1, len);
	T_CHECK(zero);
	T_OK(pst_mem_copy_in(m, 0, zero, len));
	free(zero);
	T_CHECK(rig_read(f, m, 0, 0, len).paths & PST_PATH_BIT(PST_PATH_PAGECACHE));
	T_EQ(rig_mem_differs(m, 0, len, SEED, 0), len);
	pst_file_close(f);
	end = t_in_ms(RIG_WAIT_MS);
	while (rig_stats(NULL).pages_bytes && t_now() < end)
		(void)usleep(1000); /* unpinned in the background */
	T_EQ(rig_stats(NULL).pages_bytes, 0);
	f = rig_open(rig_path("pages"), RIG_R | PST_FILE_STABLE);
	pins(f, m, len, 0);
	pst_file_close(f);
	pst_mem_free(m);
	T_OK(set(0, 0));
	(void)unlink(rig_path("pages"));
}

int main(int argc, char **argv)
{
	self = argv[0];
	if (argc == 2 && !strcmp(argv[1], "child"))
		return child();
	(void)unsetenv("PST_POOL");
	(void)unsetenv("PST_PAGES");
	/* Small staged requests must not use a window here. */
	(void)setenv("PST_WINDOW", "off", 1);
	rig_init();
	RIG_RUN1(set_and_get);
	RIG_RUN1(environment);
	RIG_RUN1(stays_within);
	RIG_RUN1(lowered_while_running);
	RIG_RUN_BACKENDS(too_small);
	RIG_RUN_BACKENDS(a_queue_too_many);
	RIG_RUN_BACKENDS(grows_to_the_bound);
	RIG_RUN_BACKENDS(lowered_below_use);
	RIG_RUN_BACKENDS(another_engine);
	RIG_RUN_BACKENDS(pages);
	fusefs_stop(&fs);
	return rig_done();
}
