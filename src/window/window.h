/* SPDX-License-Identifier: MIT */
/*
 * CPU mappings of device memory.
 *
 *	window.c	opening by the first backend that succeeds; copies
 *	prove.c		proofs of windows
 *	cost.c		the size up to which the CPU is faster than a copy by the device
 *	gdrdrv.c	backend: the kernel module of gdrcopy
 *	dmabuf.c	backend: mmap() of a dma-buf
 *	nvrm.c		backend: the NVIDIA driver's own interface
 *	soft.c		backend: the software device
 *	copy.h		kernels that copy to and from a mapping
 */
#ifndef PST_WINDOW_H
#define PST_WINDOW_H

#include <penstock.h>

#include "base/base.h"
#include "mem/mem.h"
#include "window/copy.h"

#define WINDOW_BACKENDS_MAX 8
#define WINDOW_COST_MAX KIB(64) /* largest possible store_max and load_max, bytes */

/* The range to map: of an allocation of this process, or of a grant. */
struct window_src {
	const struct mem_alloc *alloc; /* NULL: only the grant is given, without a device context */
	const struct pst_grant *grant; /* NULL: the allocation is given */
	uint64_t off, len;             /* range in the allocation, bytes */
	uint32_t rights;               /* PST_RIGHT_* that the window needs */
	uint32_t caching;              /* enum pst_caching, for backends that can choose; 0: any */
};

/* Alignment of scratch memory: gdrdrv needs a whole page of the GPU at its beginning. */
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

/* First member of a backend's own struct.  The backend sets the members up to rights. */
struct window {
	const struct window_ops *ops;
	char *ptr; /* address of the range's first byte */
	uint64_t len;
	uint32_t caching; /* enum pst_caching */
	uint32_t rights;  /* PST_RIGHT_* */

	/* NULL, or the memory whose provider must be told of each use by the CPU. */
	const struct mem_alloc *told;

	void *map; /* for window_map() */
	uint64_t map_len;

	/* Maximum bytes for which the CPU is faster than a copy by the device, measured by
	 * window_cost(). */
	uint64_t store_max, load_max;

	struct window_verdict *verdict; /* for prove.c; NULL: nothing was proven with data */
	struct copy_choice copy;
};

/*
 * A backend: one method to map.  Any thread may call the members.  Failures leave a sentence by
 * err_set(), which is listed among the reasons if no backend succeeds.
 */
struct window_ops {
	const char *name;
	uint32_t kinds; /* bit set of the kinds (1 << enum pst_kind) that it may serve */
	bool by_dmabuf; /* serves every kind that exports dma-bufs */
	bool by_grant;  /* can map from a grant alone */

	/*
	 * Map the range.  The mapping is MADV_DONTFORK and its descriptors are O_CLOEXEC.  Return
	 * -EOPNOTSUPP or -ENODEV if this is not possible on this machine or for this memory, or if
	 * there is any doubt about what would be mapped.
	 */
	int (*open)(const struct window_src *src, struct window **ret);
	void (*close)(struct window *w);
};

extern const struct window_ops window_dmabuf_ops, window_gdrdrv_ops, window_nvrm_ops,
	window_soft_ops;

/* The functions behind pst_window_open() and pst_window_open_grant().  The caller has checked the
 * range. */
int window_open(const struct window_src *src, const struct pst_window_opts *o, struct window **ret);
void window_close(struct window *w);
int window_backends(const struct mem_ops *ops, unsigned device, struct pst_window_backend *ret,
		    unsigned max);

/*
 * Begin to use the window by the CPU: PST_RIGHT_READ for loads, PST_RIGHT_WRITE for stores.  Return
 * 0 or -errno; if wait is false, -EAGAIN means try again later.  After 0, the caller calls
 * window_end().
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

/* Store or load bytes; any thread may call this.  The caller has checked the bounds.  Return 0, or
 * -errno if nothing was copied. */
static inline int window_store(const struct window *w, uint64_t off, const void *src, uint64_t len)
{
	int r = window_begin(w, PST_RIGHT_WRITE, true);

	if (unlikely(r < 0))
		return r;
	copy_store(&w->copy, w->ptr + off, src, len);
	window_end(w, PST_RIGHT_WRITE);
	return 0;
}

/* window_load() that does not wait unless wait is set: -EAGAIN if the memory is in use. */
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

/* Copy between memory that no device copies and memory of the program, through temporary windows.
 * Return 0 or -errno. */
int window_copy(const struct mem_alloc *a, enum mem_dir dir, uint64_t off, void *host,
		uint64_t len);

/*
 * prove.c: prove that this window shows the memory for which it was opened.  For the first window
 * on a class of memory of a device, scratch memory is written and read in both directions.  Some
 * bytes of the window itself are compared without writing.  Memory that no device copies is not
 * proven, because nothing else can read its bytes.  Also sets w->copy.  Return 0, or -EIO with a
 * sentence.
 */
int window_prove(struct window *w, const struct window_src *src);
/* Drop the proof of a window that is being closed. */
void window_unproven(struct window *w);

/*
 * cost.c: measure up to how many bytes the CPU is faster than a copy by the device, with a window
 * over scratch memory.  Sets store_max and load_max of w.
 */
void window_cost(struct window *w, const struct window_src *src, struct mem_stream *st);

/*
 * For backends: map len bytes at any offset of a descriptor, which the caller keeps.  Return 0, or
 * -errno of mmap(). window_unmap() ends the mapping.
 */
int window_map(const struct window_ops *ops, int fd, uint64_t off, uint64_t len, uint32_t rights,
	       struct window **ret);
void window_unmap(struct window *w);

#endif
