/* SPDX-License-Identifier: MIT */
/*
 * The staging pool grows in the background.  Fail the first, second, ... n-th call of that,
 * until a run makes fewer calls: requests use the slots that exist, nothing leaks, and the pool
 * grows later.  The linker's --wrap redirects the calls here.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "fusefs.h"
#include "rig.h"

#include "base/fault.h"

#define NR 24u    /* number of concurrent requests: more than the pool has slots at first */
#define LEN 8192u /* bytes of each request */
#define SEED 11u

enum call { ALIGNED_ALLOC, MALLOC, MMAP, PTHREAD_CREATE, NR_CALLS };

static const char *const names[NR_CALLS] = { "aligned_alloc", "malloc", "mmap", "pthread_create" };

static atomic_int armed = NR_CALLS; /* the function that fails */
static atomic_uint left;            /* calls of that function up to the failing one */
static atomic_uint hits;

static atomic_uint slow_ms; /* ms that an allocation of slots takes */

static bool fails(enum call call)
{
	if (atomic_load(&armed) != (int)call || atomic_fetch_sub(&left, 1) != 1)
		return false;
	atomic_fetch_add(&hits, 1);
	return true;
}

/* Names that the linker's --wrap prescribes. */
#define WRAP(ret, name, params)   \
	ret __real_##name params; \
	ret __wrap_##name params

WRAP(void *, malloc, (size_t len));
WRAP(void *, aligned_alloc, (size_t align, size_t len));
WRAP(void *, mmap, (void *at, size_t len, int prot, int flags, int fd, off_t off));
WRAP(void *, mmap64, (void *at, size_t len, int prot, int flags, int fd, off_t off));
WRAP(int, pthread_create, (pthread_t * t, const pthread_attr_t *a, void *(*fn)(void *), void *arg));

void *__wrap_malloc(size_t len)
{
	return fails(MALLOC) ? NULL : __real_malloc(len);
}

void *__wrap_aligned_alloc(size_t align, size_t len)
{
	return fails(ALIGNED_ALLOC) ? NULL : __real_aligned_alloc(align, len);
}

static void be_slow(size_t len)
{
	if (len >= RIG_MIB(2))
		(void)usleep(1000 * atomic_load(&slow_ms));
}

void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	be_slow(len);
	return fails(MMAP) ? MAP_FAILED : __real_mmap(at, len, prot, flags, fd, off);
}

void *__wrap_mmap64(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	be_slow(len);
	return fails(MMAP) ? MAP_FAILED : __real_mmap64(at, len, prot, flags, fd, off);
}

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
	return fails(PTHREAD_CREATE) ? EAGAIN : __real_pthread_create(t, a, fn, arg);
}

/* ---------------------------------------------------------------- the runs */

static struct pst_queue *q;
static struct pst_mem *mem;
static struct pst_file *file;
static atomic_uint warnings;

/* Start an engine with its first slots. */
static void start_engine(void)
{
	struct pst_io io;

	if (access(rig_path("data"), R_OK) < 0)
		rig_make(rig_path("data"), SEED, NR * LEN);
	file = rig_open(rig_path("data"), RIG_R);
	mem = rig_alloc("soft:0", NR * LEN);
	q = rig_queue(PST_BACKEND_AUTO, 0);
	io = rig_io(PST_OP_READ, file, mem, 0, 0, LEN);
	T_EQ(rig_do(q, &io).res, LEN);
}

/* Submit slow requests, each in a slot of its own. */
static void load(void)
{
	struct pst_done d[NR];

	for (unsigned i = 0; i < NR; i++) {
		struct pst_io io = rig_io(PST_OP_READ, file, mem, i * LEN, i * LEN, LEN);

		T_OK(pst_queue_prep(q, &io));
	}
	T_EQ(pst_queue_submit(q), NR);
	T_EQ(pst_queue_reap(q, d, NR, NR, t_in_ms(RIG_WAIT_MS)), NR);
	for (unsigned i = 0; i < NR; i++)
		T_EQ(d[i].res, LEN);
}

static void stop_engine(void)
{
	T_EQ(rig_mem_differs(mem, 0, NR * LEN, SEED, 0), NR * LEN);
	q = pst_queue_free(q);
	mem = pst_mem_free(mem);
	file = pst_file_close(file);
	T_EQ(fault_set(NULL), 0);
	rig_quiet();
}

/* Make requests until the pool has more bytes than from. */
static void load_until_grown(uint64_t from)
{
	uint64_t until = t_hang();

	while (rig_stats(NULL).pool_bytes <= from && t_now() < until)
		load();
	T_CHECK(rig_stats(NULL).pool_bytes > from);
	T_CHECK(rig_stats(NULL).pool_bytes <= rig_stats(NULL).pool_limit);
}

static void grows(void)
{
	uint64_t first;

	start_engine();
	first = rig_stats(NULL).pool_bytes;
	T_CHECK(first > 0);
	T_EQ(fault_set("mem.copy:0:1ms"), 0);
	load_until_grown(first);
	stop_engine();
}

static atomic_uint growths; /* attempts to grow, good or failed */

static void note_growth(void *arg, int level, const char *line)
{
	(void)arg;
	(void)level;
	growths += strstr(line, "the pool has") != NULL;
}

/* Fail the n-th call.  Return true if there were fewer calls. */
static bool fail_nth(enum call call, unsigned n)
{
	unsigned fds = t_count_fds();
	uint64_t until = t_hang();

	start_engine();
	growths = 0;
	pst_log_set(note_growth, NULL, PST_LOG_DEBUG);
	T_EQ(fault_set("mem.copy:0:1ms"), 0);
	atomic_store(&hits, 0);
	atomic_store(&left, n);
	atomic_store(&armed, call);
	while (!atomic_load(&hits) && !growths && t_now() < until)
		load();
	atomic_store(&armed, NR_CALLS);
	pst_log_set(NULL, NULL, 0);
	stop_engine();
	if (t_count_fds() != fds)
		T_FAIL("%s %u: %u descriptors, %u before", names[call], n, t_count_fds(), fds);
	return !hits;
}

static void each_call_fails(void)
{
	unsigned runs = 0;

	for (int call = 0; call < NR_CALLS; call++)
		for (unsigned n = 1; n < 50 && !fail_nth((enum call)call, n); n++)
			runs++;
	printf("# %u runs met a failure\n", runs);
	/* At least four calls: an arena's struct, its io_buf, its memory, and the thread. */
	T_CHECK(runs >= 4);
}

static void note(void *arg, int level, const char *line)
{
	(void)arg;
	warnings += level == PST_LOG_WARN && strstr(line, "the staging pool stays");
}

/* Pinning that failed is tried again, and logged once. */
static void tries_again(void)
{
	uint64_t first, until = t_hang();

	start_engine();
	first = rig_stats(NULL).pool_bytes;
	warnings = 0;
	pst_log_set(note, NULL, PST_LOG_WARN);
	T_EQ(fault_set("mem.copy:0:1ms,mem.pin:1:ENOMEM,mem.pin:2:EPERM"), 0);
	while (fault_passed(FAULT_MEM_PIN) < 3 && t_now() < until)
		load();
	load_until_grown(first);
	pst_log_set(NULL, NULL, 0);
	T_CHECK(fault_passed(FAULT_MEM_PIN) > 2);
	T_EQ(warnings, 1);
	stop_engine();
}

static struct fusefs fs;

static void stop_fuse(void)
{
	fusefs_stop(&fs);
}

/* Hanging files hold all slots, and pinning fails once: it is retried without another request. */
static void tries_again_by_itself(void)
{
	uint64_t until = t_hang();
	struct pst_file *hang;
	char path[200];
	struct pst_done d;
	struct pst_io io;

	start_engine();
	if (fusefs_start(&fs, rig_dir) < 0) {
		stop_engine();
		T_SKIP("%s", fs.why);
	}
	(void)snprintf(path, sizeof(path), "%s/hang", fs.dir);
	hang = rig_open(path, RIG_R);
	T_EQ(fault_set("mem.pin:1:ENOMEM"), 0);
	for (unsigned i = 1; i < NR; i++) {
		io = rig_io(PST_OP_READ, hang, mem, 0, i * LEN, LEN);
		io.deadline_ns = PST_NO_DEADLINE;
		T_OK(pst_queue_prep(q, &io));
	}
	T_EQ(pst_queue_submit(q), NR - 1);
	while (!fault_passed(FAULT_MEM_PIN) && t_now() < until)
		(void)usleep(1000);
	io = rig_io(PST_OP_READ, file, mem, 0, 0, LEN);
	io.user_data = 1;
	io.deadline_ns = PST_NO_DEADLINE;
	T_OK(pst_queue_prep(q, &io));
	T_EQ(pst_queue_submit(q), 1);
	T_EQ(pst_queue_reap(q, &d, 1, 1, until), 1);
	T_EQ(d.user_data, 1);
	T_EQ(d.res, LEN);
	for (unsigned nr = 1; nr < NR && t_now() < until;) {
		fusefs_release(&fs);
		while (pst_queue_reap(q, &d, 0, 1, 0) == 1)
			nr++;
		(void)usleep(1000);
	}
	hang = pst_file_close(hang);
	fusefs_stop(&fs);
	io = rig_io(PST_OP_READ, file, mem, LEN, LEN, (NR - 1) * LEN);
	T_EQ(rig_do(q, &io).res, (NR - 1) * LEN);
	stop_engine();
}

/* The first slots cannot be allocated: the first request fails, and the next one works. */
static void no_first_slots(void)
{
	static const char *const specs[] = { "mem.pin:1:ENOMEM", "mem.pin:2:ENOMEM" };
	struct pst_io io;

	for (unsigned i = 0; i < RIG_NR(specs); i++) {
		start_engine();
		q = pst_queue_free(q);
		/* a named back end, so that no other one is tried */
		q = rig_queue(PST_BACKEND_THREADS, 0);
		io = rig_io(PST_OP_READ, file, mem, 0, 0, LEN);
		T_EQ(fault_set(specs[i]), 0);
		T_EQ(pst_queue_prep(q, &io), -ENOMEM);
		T_CHECK(strstr(pst_error_text(), "pinning"));
		T_EQ(rig_stats(NULL).pool_bytes, 0);
		T_EQ(fault_set(NULL), 0);
		load();
		stop_engine();
	}
}

/* The pool may grow, but slots take longer to allocate than requests wait for other slots. */
static void slow_slots(void)
{
	slow_ms = 1200;
	start_engine();
	slow_ms = 0;
	load();
	stop_engine();
}

int main(void)
{
	/* Small staged requests must not use a window here. */
	(void)setenv("PST_WINDOW", "off", 1);
	rig_init();
	(void)atexit(stop_fuse);
	RIG_RUN1(grows);
	RIG_RUN1(each_call_fails);
	RIG_RUN1(tries_again);
	RIG_RUN1(tries_again_by_itself);
	RIG_RUN1(no_first_slots);
	RIG_RUN1(slow_slots);
	return rig_done();
}
