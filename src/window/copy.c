/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include <penstock.h>

#include "base/err.h"
#include "window/copy.h"
#include "window/copy_ends.h"

/* Kernels by preference: the first of equally fast ones is chosen. */
static const struct copy_kernel *const kernels[] = {
#if defined(__x86_64__)
	&copy_avx512, &copy_avx2,   &copy_movdir64b, &copy_sse41, &copy_sse2,
#elif defined(__AARCH64EL__)
	&copy_neon,
#endif
	&copy_strict, &copy_memcpy,
};

const struct copy_kernel *const *copy_kernels(unsigned *ret_nr)
{
	*ret_nr = ARRAY_SIZE(kernels);
	return kernels;
}

bool copy_supported(const struct copy_kernel *k)
{
	return !k->supported || k->supported();
}

/* --------------------------------------------------------- kernels in plain C */

typedef uint64_t map8 __attribute__((may_alias));
typedef uint32_t map4 __attribute__((may_alias));
typedef uint16_t map2 __attribute__((may_alias));

/* Return the widest access that is aligned at map and not longer than len, which is not 0. */
static inline size_t widest(const void *map, size_t len)
{
	size_t n = (uintptr_t)map | 8;

	for (n &= -n; n > len; n /= 2)
		;
	return n;
}

/* volatile, so that the compiler neither merges nor splits accesses. */
void copy_strict_store(void *map, const void *src, size_t len)
{
	const char *s = src;
	char *m = map;

	for (size_t n; len; m += n, s += n, len -= n) {
		n = widest(m, len);
		if (n == 8)
			*(volatile map8 *)m = *(const any8 *)s;
		else if (n == 4)
			*(volatile map4 *)m = *(const any4 *)s;
		else if (n == 2)
			*(volatile map2 *)m = *(const any2 *)s;
		else
			*(volatile char *)m = *s;
	}
}

void copy_strict_load(void *dst, const void *map, size_t len)
{
	const char *m = map;
	char *d = dst;

	for (size_t n; len; m += n, d += n, len -= n) {
		n = widest(m, len);
		if (n == 8)
			*(any8 *)d = *(const volatile map8 *)m;
		else if (n == 4)
			*(any4 *)d = *(const volatile map4 *)m;
		else if (n == 2)
			*(any2 *)d = *(const volatile map2 *)m;
		else
			*d = *(const volatile char *)m;
	}
}

const struct copy_kernel copy_strict = {
	.name = "strict",
	.store = copy_strict_store,
	.load = copy_strict_load,
};

static void memcpy_store(void *map, const void *src, size_t len)
{
	memcpy(map, src, len);
}

static void memcpy_load(void *dst, const void *map, size_t len)
{
	memcpy(dst, map, len);
}

const struct copy_kernel copy_memcpy = {
	.name = "memcpy",
	.store = memcpy_store,
	.load = memcpy_load,
};

/* ------------------------------------------------------------- by caching */

enum dir { STORE, LOAD };

static bool can_stream(const struct copy_kernel *k, enum dir dir)
{
	return k->streams && (dir == STORE ? k->store != NULL : k->load != NULL) &&
	       copy_supported(k);
}

static const struct copy_kernel *first_that_streams(enum dir dir)
{
	for (unsigned i = 0; i < ARRAY_SIZE(kernels); i++)
		if (can_stream(kernels[i], dir))
			return kernels[i];
	return &copy_memcpy;
}

void copy_choose(struct copy_choice *ret, uint32_t caching)
{
	/* "strict" is correct for every mapping, but slow on most. */
	const struct copy_kernel *store = &copy_strict, *load = &copy_strict;

	if (caching == PST_CACHING_CACHED) {
		store = load = &copy_memcpy;
	} else if (caching == PST_CACHING_WC) {
		store = first_that_streams(STORE);
		load = first_that_streams(LOAD);
	}
	*ret = (struct copy_choice){ store, store, load, load };
}

/* ---------------------------------------------------------- by measurement */

#define MEASURED KIB(64)               /* bytes of the mapping that are used to measure */
#define MEASURE_NS (2 * NSEC_PER_MSEC) /* ns after which no further copy is started */
#define ROUNDS 8u
#define SAME_PERCENT 3u

/*
 * A copy to be timed.  The small load is a part of a line, because kernels differ there; a whole
 * line takes one round trip with every kernel.  If loads do not stream, the large load takes 16 KiB
 * / 16 B * 2 us = 2 ms, and at most one more starts before MEASURE_NS have passed.
 */
struct trial {
	enum dir dir;
	size_t off, len;
	unsigned times;
};

static const struct trial small_store = { STORE, 0, 64, 32 },
			  large_store = { STORE, 0, MEASURED, 1 }, small_load = { LOAD, 4, 60, 1 },
			  large_load = { LOAD, 0, KIB(16), 1 };

static uint64_t time_once(const struct trial *t, const struct copy_kernel *k, char *map, char *buf)
{
	struct copy_choice c = { k, k, k, k };
	uint64_t began = now_ns();

	for (unsigned i = 0; i < t->times; i++) {
		if (t->dir == STORE)
			copy_store_unfenced(&c, map + t->off, buf, t->len);
		else
			copy_load(&c, buf, map + t->off, t->len);
	}
	/* Fence once: a fence costs more than a small store, and equally for every kernel. */
	if (t->dir == STORE)
		copy_fence_stores();
	return now_ns() - began;
}

/* Return the shortest time of some rounds.  A kernel much slower than best_ns gets no further
 * rounds. */
static uint64_t time_best(const struct trial *t, const struct copy_kernel *k, char *map, char *buf,
			  uint64_t best_ns, uint64_t until)
{
	uint64_t ns = UINT64_MAX;

	for (unsigned i = 0; i < ROUNDS && now_ns() < until; i++) {
		ns = MIN(ns, time_once(t, k, map, buf));
		if (ns / 2 > best_ns)
			break;
	}
	return ns;
}

static const struct copy_kernel *fastest(const struct trial *t, char *map, char *buf,
					 uint64_t until)
{
	uint64_t ns[ARRAY_SIZE(kernels)], best_ns = UINT64_MAX;

	for (unsigned i = 0; i < ARRAY_SIZE(kernels); i++) {
		ns[i] = UINT64_MAX;
		if (can_stream(kernels[i], t->dir))
			ns[i] = time_best(t, kernels[i], map, buf, best_ns, until);
		best_ns = MIN(best_ns, ns[i]);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(kernels) && best_ns < UINT64_MAX; i++)
		if (ns[i] <= best_ns + best_ns * SAME_PERCENT / 100)
			return kernels[i];
	return first_that_streams(t->dir);
}

void copy_measure(struct copy_choice *ret, uint32_t caching, void *map)
{
	uint64_t until = now_ns() + MEASURE_NS;
	_cleanup_(freep) char *buf = NULL;

	copy_choose(ret, caching);
	/* Only write-combining mappings leave a choice.  Without memory, keep the kernels of
	 * copy_choose(). */
	if (caching == PST_CACHING_WC)
		buf = calloc(1, MEASURED);
	if (!buf)
		return;
	ret->store_small = fastest(&small_store, map, buf, until);
	ret->store_large = fastest(&large_store, map, buf, until);
	ret->load_small = fastest(&small_load, map, buf, until);
	ret->load_large = fastest(&large_load, map, buf, until);
}

/* ----------------------------------------------------------------- by name */

int copy_find(const char *name, const struct copy_kernel **ret)
{
	const struct copy_kernel *found = NULL;
	char list[128] = "";
	size_t used = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(kernels); i++) {
		if (strcmp(kernels[i]->name, name) == 0)
			found = kernels[i];
		if (copy_supported(kernels[i]))
			used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
						 used ? ", " : "", kernels[i]->name);
		used = MIN(used, sizeof(list) - 1);
	}
	if (!found)
		return err_set(EOPNOTSUPP, "there is no copy kernel %s; there are %s", name, list);
	if (!copy_supported(found))
		return err_set(EOPNOTSUPP, "copy kernel %s needs a CPU with %s; there are %s", name,
			       found->needs, list);
	*ret = found;
	return 0;
}

int copy_force(struct copy_choice *c, uint32_t caching, const struct copy_kernel *k)
{
	if (caching != PST_CACHING_WC && caching != PST_CACHING_CACHED && k != &copy_strict)
		return err_set(EOPNOTSUPP,
			       "copy kernel %s is not for mappings of device caching; "
			       "only strict is",
			       k->name);
	if (k->store)
		c->store_small = c->store_large = k;
	if (k->load)
		c->load_small = c->load_large = k;
	return 0;
}
