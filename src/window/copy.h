/* SPDX-License-Identifier: MIT */
/*
 * Kernels that copy between host memory and a mapping of device memory.
 *
 * A mapping is mostly write combining: stores gather in a few buffers of a line each, and a line
 * that was stored whole goes over the bus in one piece.  Loads are round trips over the
 * bus.  Plain ones go one after the other, whatever their width; non-temporal ones are in
 * flight together, as many lines as the CPU has buffers for.  So the kernels align the
 * mapping's side and use the widest non-temporal instructions.
 *
 * Any kernel takes any alignment of both pointers and any length and touches no byte outside
 * the range; all but memcpy store each byte once.  8, 4, 2 or 1 bytes that are aligned in
 * the mapping and are the whole range are one access.
 *
 *	copy.c		the list, the choice, and kernels in plain C
 *	copy_x86.c	SSE2 to AVX-512, MOVDIR64B
 *	copy_arm.c	NEON pairs
 */
#ifndef PST_WINDOW_COPY_H
#define PST_WINDOW_COPY_H

#include "base/base.h"

struct copy_kernel {
	const char *name;        /* "avx512"; at most 15 bytes */
	const char *needs;       /* of the CPU, in words; NULL: nothing */
	bool (*supported)(void); /* NULL: always */
	bool streams;            /* made for write combining */
	/* NULL: has none for this direction. */
	void (*store)(void *map, const void *src, size_t len);
	void (*load)(void *dst, const void *map, size_t len);
};

/* All kernels of this architecture, supported here or not, the preferred first. */
const struct copy_kernel *const *copy_kernels(unsigned *ret_nr);
bool copy_supported(const struct copy_kernel *k);

/* By name.  -EOPNOTSUPP with a sentence when there is none or this CPU cannot. */
int copy_find(const char *name, const struct copy_kernel **ret);

/* Copies up to COPY_SMALL bytes and longer ones may want different kernels. */
#define COPY_SMALL 256u

struct copy_choice {
	const struct copy_kernel *store_small, *store_large, *load_small, *load_large;
};

/* By caching (enum pst_caching) and what the CPU can, for mappings that must not be written. */
void copy_choose(struct copy_choice *ret, uint32_t caching);

/*
 * By measurement where that matters, on the first 64 KiB of a mapping, which are overwritten;
 * at most 5 ms.
 */
void copy_measure(struct copy_choice *ret, uint32_t caching, void *map);

/*
 * This kernel in the directions that it has, even if others are faster.  -EOPNOTSUPP where the
 * mapping does not bear it: device memory wants strict accesses.
 */
int copy_force(struct copy_choice *c, uint32_t caching, const struct copy_kernel *k);

/* The fences that a mapping needs: stores before are ordered before stores after. */
static inline void copy_fence_stores(void)
{
#if defined(__x86_64__)
	__builtin_ia32_sfence();
#elif defined(__aarch64__)
	/* A barrier of the inner shareable domain says nothing to a device. */
	__asm__ volatile("dsb st" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* Loads of a write-combining mapping are weakly ordered: a fence keeps later accesses behind. */
static inline void copy_fence_all(void)
{
#if defined(__x86_64__)
	__builtin_ia32_mfence();
#elif defined(__aarch64__)
	__asm__ volatile("dsb sy" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

static inline void copy_store_unfenced(const struct copy_choice *c, void *map, const void *src,
				       size_t len)
{
	(len <= COPY_SMALL ? c->store_small : c->store_large)->store(map, src, len);
}

static inline void copy_store(const struct copy_choice *c, void *map, const void *src, size_t len)
{
	copy_store_unfenced(c, map, src, len);
	copy_fence_stores();
}

static inline void copy_load(const struct copy_choice *c, void *dst, const void *map, size_t len)
{
	copy_fence_all();
	(len <= COPY_SMALL ? c->load_small : c->load_large)->load(dst, map, len);
}

/* ------------------------------------------------------ between the kernels' files */

extern const struct copy_kernel copy_avx512, copy_avx2, copy_movdir64b, copy_sse41, copy_sse2,
	copy_neon, copy_strict, copy_memcpy;

/* The kernel "strict": each access aligned in the mapping, and at most 8 bytes. */
void copy_strict_store(void *map, const void *src, size_t len);
void copy_strict_load(void *dst, const void *map, size_t len);

#endif
