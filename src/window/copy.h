/* SPDX-License-Identifier: MIT */
/*
 * Kernels that copy between host memory and a mapping of device memory.
 *
 * Mappings are mostly write combining: stores gather in a few buffers of a cache line each,
 * and a line that was stored whole goes over the bus in one piece; every load is a round
 * trip over the bus, as wide as the instruction at most.  So the kernels align the mapping's side,
 * use the widest non-temporal instructions, and touch no byte outside the range.
 * Either pointer may have any alignment, the length any value.
 */
#ifndef PST_WINDOW_COPY_H
#define PST_WINDOW_COPY_H

#include "base/base.h"

struct copy_kernel {
	const char *name; /* "avx512", "movdir64b", "sse2", "memcpy" */
	bool (*supported)(void);
	/* NULL: has none for this direction. */
	void (*store)(void *map, const void *src, size_t len);
	void (*load)(void *dst, const void *map, size_t len);
};

/* All kernels of this machine's architecture, supported here or not; the last is memcpy. */
const struct copy_kernel *const *copy_kernels(unsigned *ret_nr);

/* By name, NULL when there is none or this CPU cannot. */
const struct copy_kernel *copy_kernel_find(const char *name);

/* Copies up to COPY_SMALL bytes and longer ones may want different kernels. */
#define COPY_SMALL 256u

struct copy_choice {
	const struct copy_kernel *store_small, *store_large, *load_small, *load_large;
};

/* By what the CPU can, without measuring: for mappings that must not be written. */
void copy_choose(struct copy_choice *ret, uint32_t caching);

/*
 * By measurement on len bytes of a mapping that may be overwritten, at most 5 ms.  len is at
 * least 64 KiB.
 */
void copy_measure(struct copy_choice *ret, uint32_t caching, void *map, size_t len);

/* The fences that a mapping needs: stores before are ordered before stores after. */
static inline void copy_fence_stores(void)
{
#if defined(__x86_64__)
	__builtin_ia32_sfence();
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* Loads of a write-combining mapping are weakly ordered; what follows must not pass them. */
static inline void copy_fence_all(void)
{
#if defined(__x86_64__)
	__builtin_ia32_mfence();
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

static inline void copy_store(const struct copy_choice *c, void *map, const void *src, size_t len)
{
	(len <= COPY_SMALL ? c->store_small : c->store_large)->store(map, src, len);
	copy_fence_stores();
}

static inline void copy_load(const struct copy_choice *c, void *dst, const void *map, size_t len)
{
	copy_fence_all();
	(len <= COPY_SMALL ? c->load_small : c->load_large)->load(dst, map, len);
}

#endif
