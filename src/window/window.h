/* SPDX-License-Identifier: MIT */
/*
 * CPU mappings of device memory.
 *
 *	window.c	opening by the first backend that can, copying
 *	prove.c		scratch memory of the same class, written and read both ways
 *	cost.c		up to which size the CPU is faster than a copy of the device
 *	gdrdrv.c	by the kernel module of gdrcopy, where it is loaded
 *	dmabuf.c	by mmap() of a dma-buf, where its driver allows that
 *	nvrm.c		by the NVIDIA driver's own interface, without a further module
 *	soft.c		of the software device
 *	copy.h		kernels that copy to and from a mapping
 */
#ifndef PST_WINDOW_H
#define PST_WINDOW_H

#include <penstock.h>

#include "base/base.h"
#include "mem/mem.h"
#include "window/copy.h"

#define WINDOW_BACKENDS_MAX 8
#define WINDOW_COST_MAX KIB(64) /* the longest that store_max and load_max can be */

/* What to map: a range of an allocation that this process holds, or of a grant. */
struct window_src {
	const struct mem_alloc *alloc; /* NULL: only the grant is known, and no device context */
	const struct pst_grant *grant; /* NULL: the allocation is */
	uint64_t off, len;             /* of the range in the allocation */
	uint32_t rights;               /* PST_RIGHT_* that the window shall have */
	uint32_t caching;              /* enum pst_caching for backends with a choice; 0: any */
};

/* Scratch memory begins with a whole page of the GPU, as gdrdrv needs it. */
#define WINDOW_SCRATCH_ALIGN KIB(64)

static inline uint64_t window_scratch_off(const struct mem_alloc *a)
{
	return align_up(a->base.va, WINDOW_SCRATCH_ALIGN) - a->base.va;
}

static inline uint32_t window_src_kind(const struct window_src *s)
{
	return s->alloc ? s->alloc->ops->kind : s->grant->kind;
}

struct window_ops;

/* A backend's own struct begins with this; the backend fills the first group. */
struct window {
	const struct window_ops *ops;
	char *ptr; /* of the range's first byte */
	uint64_t len;
	uint32_t caching; /* enum pst_caching */
	uint32_t rights;  /* PST_RIGHT_* */

	/* NULL, or: the memory, whose provider is told of each use by the CPU. */
	const struct mem_alloc *told;

	void *map; /* window_map()'s */
	uint64_t map_len;

	/* Most bytes for which the CPU is faster than a copy of the device; measured. */
	uint64_t store_max, load_max;

	struct window_verdict *verdict; /* prove.c's; NULL: nothing was proven with data */
	struct copy_choice copy;
};

/*
 * One way to map.  Calls come from any thread.  Failures leave a sentence by err_set(), which
 * ends up in the list of why no backend could.
 */
struct window_ops {
	const char *name;
	uint32_t kinds; /* bits 1 << enum pst_kind of memory that it may serve */
	bool by_dmabuf; /* it serves every kind that exports dma-bufs */
	bool by_grant;  /* a grant is enough */

	/*
	 * Map the range.  The mapping is MADV_DONTFORK and its descriptors O_CLOEXEC.
	 * -EOPNOTSUPP or -ENODEV: not here or not for this memory; any doubt about what
	 * would be mapped is a refusal too.
	 */
	int (*open)(const struct window_src *src, struct window **ret);
	void (*close)(struct window *w);
};

extern const struct window_ops window_dmabuf_ops, window_gdrdrv_ops, window_nvrm_ops,
	window_soft_ops;

/* As pst_window_open() and pst_window_open_grant() say; the caller checked the range. */
int window_open(const struct window_src *src, const struct pst_window_opts *o, struct window **ret);
void window_close(struct window *w);
int window_backends(const struct mem_ops *ops, unsigned device, struct pst_window_backend *ret,
		    unsigned max);

/*
 * The CPU is about to use the window, with PST_RIGHT_READ for loads and PST_RIGHT_WRITE for stores:
 * 0 or -errno.  Without wait, -EAGAIN: later.  After 0, window_end() follows.
 */
static inline int window_begin(const struct window *w, uint32_t rights, bool wait)
{
	return likely(!w->told) ? 0 : mem_cpu_begin(w->told, rights, wait);
}

static inline void window_end(const struct window *w, uint32_t rights)
{
	if (unlikely(w->told))
		mem_cpu_end(w->told, rights);
}

/* Any thread; bounds are the caller's matter.  0, or -errno and nothing was copied. */
static inline int window_store(const struct window *w, uint64_t off, const void *src, uint64_t len)
{
	int r = window_begin(w, PST_RIGHT_WRITE, true);

	if (unlikely(r < 0))
		return r;
	copy_store(&w->copy, w->ptr + off, src, len);
	window_end(w, PST_RIGHT_WRITE);
	return 0;
}

/* As window_load(); without wait, -EAGAIN says that the memory is in use. */
static inline int window_load_if(const struct window *w, uint64_t off, void *dst, uint64_t len,
				 bool wait)
{
	int r = window_begin(w, PST_RIGHT_READ, wait);

	if (unlikely(r < 0))
		return r;
	copy_load(&w->copy, dst, w->ptr + off, len);
	window_end(w, PST_RIGHT_READ);
	return 0;
}

static inline int window_load(const struct window *w, uint64_t off, void *dst, uint64_t len)
{
	return window_load_if(w, off, dst, len, true);
}

/* Copy between memory that no device copies and memory of the program, through a window for that
 * purpose: 0 or -errno. */
int window_copy(const struct mem_alloc *a, enum mem_dir dir, uint64_t off, void *host,
		uint64_t len);

/*
 * prove.c: does this window show the memory it was opened on?  Of a class of memory on a
 * device that no window was proven for yet, scratch memory is written and read both ways;
 * of the window itself some bytes are compared, read-only.  0, or -EIO with a sentence.
 * Nothing is proven of memory that no device copies, since nobody else tells its bytes.
 * Also chooses w->copy.
 */
int window_prove(struct window *w, const struct window_src *src);
/* The window closes: it needs no proof any more. */
void window_unproven(struct window *w);

/*
 * cost.c: up to how many bytes is the CPU faster than a copy of the device?  On a window over
 * scratch memory; sets w's store_max and load_max.
 */
void window_cost(struct window *w, const struct window_src *src, struct mem_stream *st);

/*
 * For backends: map len bytes at an offset of any alignment of a descriptor, which stays the
 * caller's.  -errno as mmap() says.  window_unmap() is its end.
 */
int window_map(const struct window_ops *ops, int fd, uint64_t off, uint64_t len, uint32_t rights,
	       struct window **ret);
void window_unmap(struct window *w);

#endif
