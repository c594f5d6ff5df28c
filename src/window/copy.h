/* SPDX-License-Identifier: MIT */
/*
 * Kernels that copy between host memory and a mapping of device memory.
 *
 * A mapping is mostly write combining: stores are collected in a few buffers of one line each,
 * and a line that was stored completely crosses the bus as one transfer.  Loads are round trips
 * over the bus.  Plain loads run one after the other, whatever their width.  Non-temporal loads
 * are in flight together, up to as many lines as the CPU has buffers.  So the kernels align the
 * mapping's side and use the widest non-temporal instructions.
 *
 * Any kernel accepts any alignment of both pointers and any length, and touches no byte outside
 * the range.  All kernels except memcpy store each byte once.  If the whole range is 8, 4, 2 or 1
 * bytes and aligned in the mapping, it is one access.
 *
 *	copy.c		list and choice of kernels, and kernels in plain C
 *	copy_x86.c	SSE2 to AVX-512, MOVDIR64B
 *	copy_arm.c	NEON pairs
 */
#ifndef PST_WINDOW_COPY_H
#define PST_WINDOW_COPY_H

#include "base/base.h"

struct copy_kernel {
	const char *name;        /* such as "avx512"; at most 15 bytes */
	const char *needs;       /* what the CPU must support, in words; NULL: nothing */
	bool (*supported)(void); /* NULL: always */
	bool streams;            /* made for write-combining mappings */
	/* NULL: the kernel does not copy in this direction. */
	void (*store)(void *map, const void *src, size_t len);
	void (*load)(void *dst, const void *map, size_t len);
};

/* Return all kernels of this architecture, by preference, even those that this CPU does not
 * support. */
const struct copy_kernel *const *copy_kernels(unsigned *ret_nr);
bool copy_supported(const struct copy_kernel *k);

/* Find a kernel by its name.  Return -EOPNOTSUPP with a sentence if there is none, or this CPU does
 * not support it. */
int copy_find(const char *name, const struct copy_kernel **ret);

/* Maximum bytes of a small copy.  Small and large copies have separate kernels. */
#define COPY_SMALL 256u

struct copy_choice {
	const struct copy_kernel *store_small, *store_large, *load_small, *load_large;
};

/* Choose kernels without writing to the mapping, by its caching (enum pst_caching) and by the
 * CPU. */
void copy_choose(struct copy_choice *ret, uint32_t caching);

/*
 * Choose kernels by measuring them on the first 64 KiB of a mapping, which are overwritten.  Takes
 * at most 5 ms.
 */
void copy_measure(struct copy_choice *ret, uint32_t caching, void *map);

/*
 * Use this kernel in its directions, even if others are faster.  Return -EOPNOTSUPP if the mapping
 * does not allow it: device memory requires strict accesses.
 */
int copy_force(struct copy_choice *c, uint32_t caching, const struct copy_kernel *k);

/* Order stores to a mapping: earlier stores are visible before later ones. */
static inline void copy_fence_stores(void)
{
#if defined(__x86_64__)
	__builtin_ia32_sfence();
#elif defined(__aarch64__)
	/* A barrier of the inner shareable domain does not order accesses to a device. */
	__asm__ volatile("dsb st" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* Order loads from a write-combining mapping, which are weakly ordered, before later accesses. */
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

/* The kernel "strict": each access is aligned in the mapping, and at most 8 bytes long. */
void copy_strict_store(void *map, const void *src, size_t len);
void copy_strict_load(void *dst, const void *map, size_t len);

#endif
