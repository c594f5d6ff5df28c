/* SPDX-License-Identifier: MIT */
/*
 * Included by every file: cleanup attributes, small arithmetic, the clock.
 */
#ifndef PST_BASE_H
#define PST_BASE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define _cleanup_(f) __attribute__((cleanup(f), unused))
/* A function that is rarely called.  The function is not inlined, so that its callers save fewer
 * registers. */
#define _cold_ __attribute__((cold, noinline))
/* A function that is called often. The function is not inlined, so that its callers save fewer
 * registers. */
#define _noinline_ __attribute__((noinline))
/* A function that every request uses, and that the compiler would find too long to inline. */
#define _inline_ inline __attribute__((always_inline))
#define _printf_(a, b) __attribute__((format(printf, a, b)))

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)                       \
	({                              \
		__typeof__(a) _a = (a); \
		__typeof__(b) _b = (b); \
		_a < _b ? _a : _b;      \
	})
#define MAX(a, b)                       \
	({                              \
		__typeof__(a) _x = (a); \
		__typeof__(b) _y = (b); \
		_x > _y ? _x : _y;      \
	})
#define container_of(ptr, type, member) ((type *)(((char *)(ptr)) - offsetof(type, member)))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Return the value of a variable, and set the variable to NULL: ownership moves. */
#define TAKE_PTR(p)                     \
	({                              \
		__typeof__(p) _p = (p); \
		(p) = NULL;             \
		_p;                     \
	})
#define TAKE_FD(fd)             \
	({                      \
		int _fd = (fd); \
		(fd) = -1;      \
		_fd;            \
	})

static inline void closep(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
}

static inline void freep(void *p)
{
	free(*(void **)p);
}

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)
#define NSEC_PER_MSEC UINT64_C(1000000)
#define NSEC_PER_SEC UINT64_C(1000000000)

static inline double as_ms(uint64_t ns)
{
	return (double)ns / (double)NSEC_PER_MSEC;
}

#define CACHE_LINE 64

/* Round down to a multiple of a, a power of two. */
static inline uint64_t align_down(uint64_t x, uint64_t a)
{
	return x & ~(a - 1);
}

static inline uint64_t align_up(uint64_t x, uint64_t a)
{
	return (x + a - 1) & ~(a - 1);
}

static inline bool is_pow2(uint64_t x)
{
	return x && !(x & (x - 1));
}

/* calloc() with alignment to a cache line. */
static inline void *calloc_lines(size_t nr, size_t size)
{
	size_t len;
	void *p;

	if (__builtin_mul_overflow(nr, size, &len) || len > SIZE_MAX - CACHE_LINE)
		return NULL;
	p = aligned_alloc(CACHE_LINE, align_up(len, CACHE_LINE));
	return p ? memset(p, 0, len) : NULL;
}

/* Pause in a loop that waits for another CPU. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec ts;

	(void)clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

/* Return CLOCK_MONOTONIC in nanoseconds. */
static inline uint64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/* Return CLOCK_MONOTONIC_COARSE in nanoseconds: cheaper than now_ns(), and exact to a few
 * milliseconds. */
static inline uint64_t about_now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC_COARSE);
}

#endif
