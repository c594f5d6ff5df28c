/* SPDX-License-Identifier: MIT */
/*
 * CPU mappings of device memory; manual page: pst_window(3).
 *
 * The CPU's stores and loads through a window cross the bus one by one; no device queue is
 * involved.  A small store takes 0.1 us, a load 1 us, and starting a device copy 5 us or more.
 * Device work that starts after the CPU's stores were fenced sees them.
 */
#ifndef PENSTOCK_WINDOW_H
#define PENSTOCK_WINDOW_H

#include <penstock/grant.h>
#include <penstock/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum pst_caching {
	PST_CACHING_WC = 1,     /* write combining: the CPU combines stores and caches no loads */
	PST_CACHING_CACHED = 2, /* cached like host memory; the hardware keeps it coherent */
	PST_CACHING_DEVICE = 3, /* neither combined nor cached */
};

/* Allow loads only. */
#define PST_WINDOW_READ_ONLY (1u << 0)
/* pst_window_store() does not fence; the caller calls pst_window_fence(). */
#define PST_WINDOW_UNFENCED (1u << 1)

struct pst_window_opts {
	size_t sz;           /* sizeof(struct pst_window_opts) */
	uint32_t flags;      /* PST_WINDOW_* */
	uint32_t caching;    /* the enum pst_caching that the window must have; 0: any */
	const char *backend; /* the back end to use; NULL: the first that works */
	const char *kernel;  /* one of pst_window_kernels(); NULL: the fastest one */
};

struct pst_window_info {
	size_t sz;         /* sizeof(struct pst_window_info) */
	uint64_t len;      /* bytes */
	uint32_t caching;  /* enum pst_caching */
	uint32_t rights;   /* PST_RIGHT_* */
	uint32_t state;    /* enum pst_state; PROVEN if bytes were moved in both directions
			    * through a window of this class and compared by the device */
	uint32_t reserved; /* 0 */
	char backend[16];  /* "gdrdrv", "dmabuf", "nvrm", "soft" */
	char store[16];    /* the copy kernel of pst_window_store() for long copies */
	char load[16];     /* the copy kernel of pst_window_load() */
};

/**
 * pst_window_open() - map device memory for the CPU
 * @mem:        device memory: allocated, wrapped or imported
 * @off:        first byte in @mem; any alignment
 * @len:        bytes, at least 1
 * @opts:       NULL for the defaults
 * @ret_window: the window, to be closed with pst_window_close()
 *
 * The first window of a class of memory on a device is proven on separate memory.  The window
 * stays valid after pst_mem_free() of @mem.  A forked child does not inherit the window.
 *
 * Return: 0; -EINVAL for a zero length or an unknown option; -ERANGE past the end of @mem;
 * -EACCES for rights that the grant of the memory does not give; -EOPNOTSUPP if no back end can
 * map the memory (pst_error_text() has the reason of each), or if this CPU or mapping cannot use
 * the kernel; -ENOMEM, -EMFILE.
 */
PST_API int pst_window_open(struct pst_mem *mem, uint64_t off, uint64_t len,
			    const struct pst_window_opts *opts, struct pst_window **ret_window);

/**
 * pst_window_open_grant() - map the memory of a grant, without a device context
 * @grant:      the grant; its uuid may be all zero for CUDA memory on a machine with one GPU
 * @opts:       NULL for the defaults
 * @ret_window: the window on the grant's range, to be closed with pst_window_close()
 *
 * Without a context no bytes can be compared, so the window's state is PST_STATE_POSSIBLE.
 *
 * Return: as pst_window_open(), and -EINVAL for an invalid grant.
 */
PST_API int pst_window_open_grant(const struct pst_grant *grant, const struct pst_window_opts *opts,
				  struct pst_window **ret_window);

/**
 * pst_window_close() - unmap a window
 * @window: no thread may be using its pointer any more
 *
 * Return: NULL.
 */
PST_API struct pst_window *pst_window_close(struct pst_window *window);

/**
 * pst_window_ptr() - return the address by which the CPU uses a window
 * @window: the window
 *
 * Access it with volatile, atomics or non-temporal intrinsics, and call pst_window_fence() after
 * stores.
 *
 * Return: the address of the first byte.
 */
PST_API void *pst_window_ptr(const struct pst_window *window);

/**
 * pst_window_info() - return facts about a window
 * @window: the window
 * @ret:    filled in
 *
 * Return: 0 or -EINVAL for a bad sz.
 */
PST_API int pst_window_info(const struct pst_window *window, struct pst_window_info *ret);

/**
 * pst_window_store() - copy into device memory by the CPU
 * @window: the window; any number of threads may copy at once
 * @off:    first byte in the window; any alignment
 * @src:    host memory, any alignment
 * @len:    bytes
 *
 * The stores are fenced on return, unless the window has PST_WINDOW_UNFENCED.
 *
 * Return: 0; -ERANGE past the end of @window; -EACCES if the window is read-only.
 */
PST_API int pst_window_store(struct pst_window *window, uint64_t off, const void *src,
			     uint64_t len);

/**
 * pst_window_load() - copy out of device memory by the CPU
 * @window: the window; any number of threads may copy at once
 * @off:    first byte in the window; any alignment
 * @dst:    host memory, any alignment
 * @len:    bytes
 *
 * Return: 0; -ERANGE past the end of @window.
 */
PST_API int pst_window_load(struct pst_window *window, uint64_t off, void *dst, uint64_t len);

/**
 * pst_window_fence() - order the calling thread's stores through window pointers
 *
 * Every earlier store reaches the device before any later store.
 */
PST_API void pst_window_fence(void);

/**
 * pst_window_kernels() - list the copy kernels that this CPU supports
 * @ret_names: filled with up to @max constant strings, the preferred first: "avx512",
 *             "avx2", "movdir64b", "sse4.1", "sse2", "neon", "strict", "memcpy"; may be
 *             NULL if @max is 0
 * @max:       room in @ret_names
 *
 * Return: number of kernels, which may be more than @max; -EINVAL if @ret_names is NULL and @max
 * is not 0.
 */
PST_API int pst_window_kernels(const char **ret_names, unsigned max);

struct pst_window_backend {
	size_t sz;      /* sizeof(struct pst_window_backend) */
	char name[16];  /* name of the back end, such as "nvrm" */
	uint32_t state; /* enum pst_state */
	int32_t err;    /* positive errno if impossible, else 0 */
	char text[232]; /* why it is impossible, and the cure; "" if possible */
};

/**
 * pst_window_backends() - list the back ends that could open windows on a device
 * @device: a name as pst_device_find() takes it
 * @ret:    filled with up to @max back ends in the order in which they are tried; may be
 *          NULL if @max is 0
 * @max:    room in @ret
 *
 * Opens and proves a window of each back end on a little memory of the device.
 *
 * Return: number of back ends for this kind of device, which may be more than @max; -ENODEV,
 * -EINVAL.
 */
PST_API int pst_window_backends(const char *device, struct pst_window_backend *ret, unsigned max);

#ifdef __cplusplus
}
#endif
#endif
