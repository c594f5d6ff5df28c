/* SPDX-License-Identifier: MIT */
/*
 * Blocking calls, each of whose steps fails in turn: the n-th call for a file's bytes, the n-th
 * allocation, the n-th pass of each site of PST_FAULT. Each failure gives either -errno and an
 * error text, or all bytes by another path.  The call leaves nothing behind, and the next call
 * works.
 */
#include <malloc.h>
#include <stdatomic.h>

#include "again.h"
#include "calls.h"

#define SEED 17
#define LEN RIG_MIB(1)
#define NR 12u
#define EACH 40000u
#define STEPS_MAX 300u

#if defined(__SANITIZE_ADDRESS__) || RIG_TSAN
/* allocations cannot be made to fail: the sanitizer has its own allocator */
#define OWN_ALLOCATOR 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define OWN_ALLOCATOR 1
#endif
#endif
#ifndef OWN_ALLOCATOR
#define OWN_ALLOCATOR 0
#endif

/* ---------------------------------------------------------------- what fails */

static atomic_uint steps_left; /* steps until one fails; 0: none does */
static atomic_bool has_failed;

/* Count a step.  Return true if it must fail. */
static bool step(void)
{
	unsigned left = atomic_load(&steps_left);

	do
		if (!left)
			return false;
	while (!atomic_compare_exchange_weak(&steps_left, &left, left - 1));
	if (left == 1)
		has_failed = true;
	return left == 1;
}

static void fail_step(unsigned n)
{
	has_failed = false;
	steps_left = n;
}

static ssize_t fails(const struct call *c)
{
	if (!step())
		return call_real(c, c->len);
	errno = EIO;
	return -1;
}

#if !OWN_ALLOCATOR
static atomic_bool memory_fails;

void *__libc_malloc(size_t len);
void *__libc_calloc(size_t nr, size_t len);
void *__libc_realloc(void *p, size_t len);
void *__libc_memalign(size_t align, size_t len);

static bool no_memory(void)
{
	if (!memory_fails || !step())
		return false;
	errno = ENOMEM;
	return true;
}

CALL_SEEN void *malloc(size_t len)
{
	return no_memory() ? NULL : __libc_malloc(len);
}

CALL_SEEN void *calloc(size_t nr, size_t len)
{
	return no_memory() ? NULL : __libc_calloc(nr, len);
}

CALL_SEEN void *realloc(void *p, size_t len)
{
	return no_memory() ? NULL : __libc_realloc(p, len);
}

CALL_SEEN void *aligned_alloc(size_t align, size_t len)
{
	return no_memory() ? NULL : __libc_memalign(align, len);
}
#endif

/* ------------------------------------------------------------------ the calls */

static struct pst_file *from, *to;
static struct pst_mem *host, *soft;
static uint8_t *own; /* memory of the program, not wrapped */
static struct pst_vec ranges[NR];

static void begin(void)
{
	rig_make(rig_path("from"), SEED, LEN);
	rig_make(rig_path("to"), SEED, LEN);
	from = rig_open(rig_path("from"), RIG_R);
	to = rig_open(rig_path("to"), RIG_RW);
	host = rig_alloc("host", LEN);
	soft = rig_alloc("soft:0", LEN);
	own = malloc(LEN);
	T_CHECK(own);
	for (unsigned i = 0; i < NR; i++) {
		uint64_t at = (uint64_t)i * EACH;

		ranges[i] = (struct pst_vec){ .file_off = at, .mem_off = at, .len = EACH };
		if (i % 3 == 2)
			ranges[i].mem_off = (uintptr_t)own + at;
		else
			ranges[i].mem = i % 3 ? soft : host;
	}
}

static void end(void)
{
	from = pst_file_close(from);
	to = pst_file_close(to);
	host = pst_mem_free(host);
	soft = pst_mem_free(soft);
	free(own);
}

/* Overwrite the destination, so that no old byte passes for a new one. */
static void forget(void)
{
	static const uint8_t zero[EACH];

	memset(own, 0, LEN);
	for (unsigned i = 0; i < NR; i++)
		if (ranges[i].mem)
			T_OK(pst_mem_copy_in(ranges[i].mem, ranges[i].mem_off, zero, EACH));
}

/* Put the pattern into the memory, so that a write writes the right bytes. */
static void fill(void)
{
	t_fill(own, SEED, 0, LEN);
	rig_mem_fill(host, 0, LEN, SEED, 0);
	rig_mem_fill(soft, 0, LEN, SEED, 0);
}

/* Check that the first bytes of the ranges, in their order, have arrived. */
static void came(uint64_t bytes)
{
	for (unsigned i = 0; i < NR && bytes; i++) {
		uint64_t n = bytes < EACH ? bytes : EACH, at = ranges[i].file_off;

		if (ranges[i].mem)
			T_EQ(rig_mem_differs(ranges[i].mem, at, n, SEED, at), n);
		else
			T_EQ(t_differs(own + at, SEED, at, n), n);
		bytes -= n;
	}
}

enum what { READ, READV, WRITE, WRITEV, SYNC, NR_CALLS };

static const char *const names[] = { "pst_read", "pst_readv", "pst_write", "pst_writev",
				     "pst_file_sync" };

static int64_t whole(enum what what)
{
	return what == SYNC ? 0 : what == READV || what == WRITEV ? NR * EACH : EACH;
}

static int64_t make(enum what what, struct pst_done *d)
{
	*d = (struct pst_done){ 0 };
	switch (what) {
	case READ:
		return pst_read(from, 0, host, 0, EACH, d);
	case READV:
		return pst_readv(from, ranges, NR, NULL, d);
	case WRITE:
		return pst_write(to, 0, soft, 0, EACH, d);
	case WRITEV:
		return pst_writev(to, ranges, NR, NULL, d);
	default:
		return pst_file_sync(to);
	}
}

/* Fail the n-th step of a call.  The result must be err, or all bytes. */
static int64_t check(enum what what, unsigned n, int err)
{
	bool reads = what == READ || what == READV;
	struct pst_done d;
	int64_t r;

	if (reads)
		forget();
	fail_step(n);
	r = make(what, &d);
	steps_left = 0;
	if (r != whole(what) && r != err)
		T_FAIL("%s gave %" PRId64 ": %s", names[what], r, pst_error_text());
	if (r < 0)
		T_CHECK(pst_error_text()[0]);
	if (r < 0 && d.op)
		T_EQ(d.res, r);
	T_CHECK(d.prefix <= (uint64_t)whole(what));
	if (reads)
		came(r < 0 ? d.prefix : (uint64_t)r);
	return r;
}

/* ---------------------------------------------------------------- what is left */

struct held {
	unsigned fds, maps;
	size_t heap;
};

static struct held held(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	struct held h = { .fds = t_count_fds() };
	int c;

	T_CHECK(f);
	while ((c = fgetc(f)) != EOF)
		h.maps += c == '\n';
	(void)fclose(f);
	h.heap = mallinfo2().uordblks;
	return h;
}

/* Wait until the clock thread has ended: it frees the queue that a call keeps for the next one.
 * Return what the process still holds then. */
static struct held at_rest(void)
{
	uint64_t until = t_hang();

	do {
		(void)usleep(10000);
		(void)rig_count_tasks();
	} while (strstr(rig_task_names, "pst-clock") && t_now() < until);
	T_CHECK(!strstr(rig_task_names, "pst-clock"));
	return held();
}

#define TIMES 24u /* failures of each kind in a round */

#define ROUNDS 8u

static bool no_more(const struct held *before, const struct held *now)
{
	return now->fds <= before->fds && now->maps <= before->maps + 4 &&
	       now->heap < before->heap + 16 * TIMES;
}

/* Fail the first step, then the second, and so on, until the call takes fewer steps. */
static void each_step_of(enum what what, int err)
{
	unsigned n, told = 0;
	struct pst_done d;

	/* Make proofs and start engines first. */
	for (unsigned i = 0; i < 3; i++)
		T_EQ(make(what, &d), whole(what));
	for (n = 1; n < STEPS_MAX; n++) {
		told += check(what, n, err) < 0;
		if (!has_failed)
			break;
		/* The same step fails again, now with an existing queue. */
		for (unsigned i = 1; i < TIMES; i++) {
			T_EQ(make(what, &d), whole(what));
			(void)check(what, n, err);
		}
		T_EQ(make(what, &d), whole(what));
	}
	T_CHECK(n < STEPS_MAX);
	if (err == -EIO)
		T_CHECK(told);
}

/*
 * At least one round of all failures must leave nothing behind.  Other rounds may: the allocator
 * caches memory for each thread, and rings end in the background.  A leak would show in every
 * round.
 */
static void leaves_nothing(enum what what, int err)
{
	struct held before, now = { 0 };
	unsigned i = 0;

	each_step_of(what, err);
	now = at_rest();
	do {
		before = now;
		each_step_of(what, err);
		now = at_rest();
	} while (!no_more(&before, &now) && ++i < ROUNDS);
	if (i == ROUNDS)
		T_FAIL("%s leaves %u descriptors, %u mappings, %zu bytes; before %u, %u, %zu",
		       names[what], now.fds, now.maps, now.heap, before.fds, before.maps,
		       before.heap);
}

static void each_step(int err)
{
	begin();
	fill();
	for (enum what what = 0; what < NR_CALLS; what++)
		leaves_nothing(what, err);
	end();
}

/* Run under a PST_FAULT that forbids io_uring, whose operations calls.h cannot see. */
static void file_calls(void)
{
	call_hook = fails;
	each_step(-EIO);
	call_hook = NULL;
}

static void allocations(void)
{
#if OWN_ALLOCATOR
	T_SKIP("an allocator that is not a sanitizer's");
#else
	memory_fails = true;
	each_step(-ENOMEM);
	memory_fails = false;
#endif
}

/* ------------------------------------------------------------------- PST_FAULT */

/*
 * Sites of PST_FAULT. told: the caller gets the error, because there is no other path.  Requests
 * work without proofs, O_DIRECT, io_uring or registered memory.
 */
static const struct site {
	const char *name;
	bool told;
} sites[] = {
	{ "file.read", true },    { "file.write", true }, { "file.sync", true },
	{ "file.context", true }, { "mem.copy", true },   { "mem.stream", true },
	{ "file.direct", false }, { "file.pin", false },  { "file.uring", false },
	{ "mem.pin", true },
};

static char fault_names[RIG_NR(sites)][40], faults[RIG_NR(sites)][80];

/* Fail the passes that PST_FAULT lists, whichever call makes them. */
static void passings(void)
{
	const char *fault = getenv("PST_FAULT");
	bool want = false;
	unsigned told = 0;
	struct pst_done d;

	for (unsigned i = 0; i < RIG_NR(sites); i++)
		if (!strncmp(fault, sites[i].name, strlen(sites[i].name)))
			want = sites[i].told;
	begin();
	t_fill(own, SEED, 0, LEN);
	for (unsigned round = 0; round < 6; round++)
		for (enum what what = 0; what < NR_CALLS; what++) {
			int64_t r = make(what, &d);

			if (r != whole(what) && r != -EDOM)
				T_FAIL("%s gave %" PRId64 ": %s", names[what], r, pst_error_text());
			if (r < 0)
				T_CHECK(pst_error_text()[0]);
			if (r < 0 && d.op)
				T_EQ(d.res, r);
			if (what == READV)
				came(r < 0 ? d.prefix : (uint64_t)r);
			told += r < 0;
		}
	T_EQ(told > 0, want);
	/* The faults are used up: every call works. */
	for (enum what what = 0; what < NR_CALLS; what++)
		T_EQ(check(what, 0, -EDOM), whole(what));
	end();
}

static struct again cases[1 + RIG_NR(sites)];
static unsigned nr_cases;

static void list_cases(void)
{
	cases[nr_cases++] = (struct again){ "file_calls", file_calls, AGAIN_ONCE,
					    "file.uring:0:EPERM" };
	for (unsigned i = 0; i < RIG_NR(sites); i++) {
		const char *name = sites[i].name;

		(void)snprintf(fault_names[i], sizeof(fault_names[i]), "passings of %s", name);
		(void)snprintf(faults[i], sizeof(faults[i]), "%s:1:EDOM,%s:3:EDOM,%s:5:EDOM", name,
			       name, name);
		cases[nr_cases++] = (struct again){ fault_names[i], passings, AGAIN_ONCE,
						    faults[i] };
	}
}

int main(int argc, char **argv)
{
	/* One malloc() arena: with several, heap sizes depend on which thread gets which. */
	(void)mallopt(M_ARENA_MAX, 1);
	list_cases();
	rig_init();
	if (argc > 1)
		return again_child(cases, nr_cases, argv[1]);
	RIG_RUN1(allocations);
	again_all(cases, nr_cases);
	return rig_done();
}
