/* SPDX-License-Identifier: MIT */
/*
 * Fail the first, second, ... n-th call of malloc(), mmap(), eventfd(), pthread_create() and so
 * on, anywhere in the library, until a run makes fewer calls.  Each run must end with the right
 * bytes, or with an error and its text, and must not leak.
 *
 * The linker's --wrap redirects the calls here.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "scenario.h"

enum call {
	MALLOC,
	CALLOC,
	REALLOC,
	REALLOCARRAY,
	ALIGNED_ALLOC,
	MMAP,
	EVENTFD,
	PTHREAD_CREATE,
	OPEN,
	MEMFD_CREATE,
	NR_CALLS
};

static const char *const names[NR_CALLS] = { "malloc",       "calloc",         "realloc",
					     "reallocarray", "aligned_alloc",  "mmap",
					     "eventfd",      "pthread_create", "open",
					     "memfd_create" };

static atomic_int armed = NR_CALLS; /* the kind of call that fails */
static atomic_uint left;            /* calls of the armed kind up to the one that fails; then 0 */
static atomic_uint hits;

/* Count a call.  Return true if it must fail. */
static bool fails(enum call call)
{
	if (atomic_load(&armed) != (int)call)
		return false;
	if (atomic_fetch_sub(&left, 1) != 1)
		return false;
	atomic_fetch_add(&hits, 1);
	return true;
}

/* Names that the linker's --wrap prescribes. */
#define WRAP(ret, name, params)   \
	ret __real_##name params; \
	ret __wrap_##name params
#define FAIL_WITH(call, err, value)   \
	do {                          \
		if (fails(call)) {    \
			errno = err;  \
			return value; \
		}                     \
	} while (0)

WRAP(void *, malloc, (size_t len));
WRAP(void *, calloc, (size_t nr, size_t len));
WRAP(void *, realloc, (void *p, size_t len));
WRAP(void *, reallocarray, (void *p, size_t nr, size_t len));
WRAP(void *, aligned_alloc, (size_t align, size_t len));
WRAP(void *, mmap, (void *at, size_t len, int prot, int flags, int fd, off_t off));
WRAP(void *, mmap64, (void *at, size_t len, int prot, int flags, int fd, off_t off));
WRAP(int, eventfd, (unsigned v, int flags));
WRAP(int, pthread_create, (pthread_t * t, const pthread_attr_t *a, void *(*fn)(void *), void *arg));
WRAP(int, open, (const char *path, int flags, ...));
WRAP(int, open64, (const char *path, int flags, ...));
WRAP(int, memfd_create, (const char *name, unsigned flags));

void *__wrap_malloc(size_t len)
{
	FAIL_WITH(MALLOC, ENOMEM, NULL);
	return __real_malloc(len);
}

void *__wrap_calloc(size_t nr, size_t len)
{
	FAIL_WITH(CALLOC, ENOMEM, NULL);
	return __real_calloc(nr, len);
}

void *__wrap_realloc(void *p, size_t len)
{
	FAIL_WITH(REALLOC, ENOMEM, NULL);
	return __real_realloc(p, len);
}

void *__wrap_reallocarray(void *p, size_t nr, size_t len)
{
	FAIL_WITH(REALLOCARRAY, ENOMEM, NULL);
	return __real_reallocarray(p, nr, len);
}

void *__wrap_aligned_alloc(size_t align, size_t len)
{
	FAIL_WITH(ALIGNED_ALLOC, ENOMEM, NULL);
	return __real_aligned_alloc(align, len);
}

void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	FAIL_WITH(MMAP, ENOMEM, MAP_FAILED);
	return __real_mmap(at, len, prot, flags, fd, off);
}

void *__wrap_mmap64(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	FAIL_WITH(MMAP, ENOMEM, MAP_FAILED);
	return __real_mmap(at, len, prot, flags, fd, off);
}

int __wrap_eventfd(unsigned v, int flags)
{
	FAIL_WITH(EVENTFD, EMFILE, -1);
	return __real_eventfd(v, flags);
}

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
	return fails(PTHREAD_CREATE) ? EAGAIN : __real_pthread_create(t, a, fn, arg);
}

static int open_mode(const char *path, int flags, va_list ap)
{
	return __real_open(path, flags, flags & O_CREAT ? va_arg(ap, mode_t) : 0);
}

int __wrap_open(const char *path, int flags, ...)
{
	va_list ap;
	int fd;

	FAIL_WITH(OPEN, EMFILE, -1);
	va_start(ap, flags);
	fd = open_mode(path, flags, ap);
	va_end(ap);
	return fd;
}

int __wrap_open64(const char *path, int flags, ...)
{
	va_list ap;
	int fd;

	FAIL_WITH(OPEN, EMFILE, -1);
	va_start(ap, flags);
	fd = open_mode(path, flags, ap);
	va_end(ap);
	return fd;
}

int __wrap_memfd_create(const char *name, unsigned flags)
{
	FAIL_WITH(MEMFD_CREATE, EMFILE, -1);
	return __real_memfd_create(name, flags);
}

/* --------------------------------------------------------------- the runs */

static unsigned runs, survived;

/* Fail the n-th call.  Return true if there were fewer calls. */
static bool fail_nth(enum call call, unsigned n)
{
	unsigned fds = t_count_fds();
	bool hit;
	int r;

	atomic_store(&hits, 0);
	atomic_store(&left, n);
	atomic_store(&armed, call);
	r = scenario(rig_backend, rig_dev);
	atomic_store(&armed, NR_CALLS);
	hit = atomic_load(&hits) > 0;
	runs += hit;
	survived += hit && r == 0;
	if (r == -EBADE || r == -ELIBBAD || r == -ENOMSG || r == -ETIMEDOUT || (r < 0 && !hit))
		T_FAIL("%s %u: %d (%s)", names[call], n, r, scenario_why);
	/* -EBUSY: pst_queue_prep() got no thread for an engine. */
	if (call == PTHREAD_CREATE && r == -EBUSY)
		r = -EAGAIN;
	if (hit && r < 0 && r != -ENOMEM && r != -EMFILE && r != -EAGAIN)
		T_FAIL("%s %u: an odd error, %d (%s)", names[call], n, r, scenario_why);
	rig_quiet();
	if (t_count_fds() != fds)
		T_FAIL("%s %u: %u descriptors, %u before", names[call], n, t_count_fds(), fds);
	return !hit;
}

static void every_call(void)
{
	rig_q = pst_queue_free(rig_q);
	runs = survived = 0;
	for (int call = 0; call < NR_CALLS; call++)
		for (unsigned n = 1; n < 300 && !fail_nth((enum call)call, n); n++)
			;
	printf("# %u runs met a failure, %u went on in spite of it\n", runs, survived);
	T_CHECK(runs > 10);
}

int main(void)
{
	rig_init();
	t_fill(scenario_bytes, 5, 0, SCENARIO_LEN);
	RIG_RUN(every_call);
	return rig_done();
}
