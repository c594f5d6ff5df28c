/* SPDX-License-Identifier: MIT */
/*
 * CPU mappings of device memory; manual page: pst_window(3).
 *
 * Stores and loads through a window go over the bus, one by one, and no device queue is
 * involved.  Small stores take a tenth of a microsecond, loads one; a device copy takes five
 * or more to start.  Device work sees the CPU's stores if it is started after they were fenced.
 */
#ifndef PENSTOCK_WINDOW_H
#define PENSTOCK_WINDOW_H

#include <penstock/grant.h>
#include <penstock/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum pst_caching {
	PST_CACHING_WC = 1,     /* write combining: stores gather, loads go to the device */
	PST_CACHING_CACHED = 2, /* as ordinary memory; the hardware keeps it coherent */
	PST_CACHING_DEVICE = 3, /* neither gathered nor cached */
};

#define PST_WINDOW_READ_ONLY (1u << 0) /* only loads */
#define PST_WINDOW_UNFENCED (1u << 1)  /* pst_window_store() leaves the fence to the caller */

struct pst_window_opts {
	size_t sz;           /* sizeof(struct pst_window_opts) */
	uint32_t flags;      /* PST_WINDOW_* */
	uint32_t caching;    /* enum pst_caching that it must have; 0: any */
	const char *backend; /* the one to use; NULL: the first that works */
	const char *kernel;  /* one of pst_window_kernels(); NULL: the fastest here */
};

struct pst_window_info {
	size_t sz;        /* sizeof(struct pst_window_info) */
	uint64_t len;     /* bytes */
	uint32_t caching; /* enum pst_caching */
	uint32_t rights;  /* PST_RIGHT_* */
	uint32_t state;   /* enum pst_state: PROVEN when data went through this class of
			   * window both ways and was compared on the device's side */
	uint32_t reserved;
	char backend[16]; /* "gdrdrv", "dmabuf", "nvrm", "soft" */
	char store[16];   /* the kernel of pst_window_store() for long copies */
	char load[16];    /* the one of pst_window_load() */
};

/**
 * pst_window_open() - map device memory for the CPU
 * @mem:        device memory with any history: allocated, wrapped, imported
 * @off:        first byte in @mem; any alignment
 * @len:        bytes, at least 1
 * @opts:       NULL for the defaults
 * @ret_window: the window, to be closed with pst_window_close()
 *
 * The first window of a class of memory on a device is proven on memory of its own.  The
 * window stays valid after pst_mem_free() of @mem.  A forked child does not inherit it.
 *
 * Return: 0; -EINVAL for a zero length or an unknown option; -ERANGE past the end of @mem;
 * -EACCES for rights that the grant of the memory does not give; -EOPNOTSUPP when no
 * backend can (the sentence says why of each) or for a kernel that this CPU or this
 * mapping cannot; -ENOMEM, -EMFILE.
 */
PST_API int pst_window_open(struct pst_mem *mem, uint64_t off, uint64_t len,
			    const struct pst_window_opts *opts, struct pst_window **ret_window);

/**
 * pst_window_open_grant() - map what a grant names, without a device context
 * @grant:      stays the caller's; a uuid of zeros in one of CUDA memory means the machine's
 *              only GPU, and where there are more, there is no window
 * @opts:       NULL for the defaults
 * @ret_window: the window on the grant's range, to be closed with pst_window_close()
 *
 * Nothing can be proven by data without a context, so its state is PST_STATE_POSSIBLE.
 *
 * Return: as pst_window_open(), and -EINVAL for a grant that does not check.
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
 * pst_window_ptr() - where the CPU finds the bytes
 * @window: the window
 *
 * Use volatile, atomics or non-temporal intrinsics, and pst_window_fence() afterwards.
 *
 * Return: the address of the first byte.
 */
PST_API void *pst_window_ptr(const struct pst_window *window);

/**
 * pst_window_info() - facts of a window
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
 * The stores are fenced when it returns, but for PST_WINDOW_UNFENCED.
 *
 * Return: 0; -ERANGE past the end of @window; -EACCES when it is read-only.
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
 * Everything stored before is on its way to the device before anything that is stored after.
 */
PST_API void pst_window_fence(void);

/**
 * pst_window_kernels() - the instructions that windows could copy with on this CPU
 * @ret_names: filled with up to @max constant strings, the preferred first: "avx512",
 *             "avx2", "movdir64b", "sse4.1", "sse2", "neon", "strict", "memcpy"; may be
 *             NULL when @max is 0
 * @max:       room in @ret_names
 *
 * Return: how many there are, which may be more than @max; -EINVAL without room for @max.
 */
PST_API int pst_window_kernels(const char **ret_names, unsigned max);

struct pst_window_backend {
	size_t sz;      /* sizeof(struct pst_window_backend) */
	char name[16];  /* "nvrm" */
	uint32_t state; /* enum pst_state */
	int32_t err;    /* positive errno when impossible, else 0 */
	char text[232]; /* why not, and what to do about it; "" when possible */
};

/**
 * pst_window_backends() - what could open windows on a device
 * @device: a name as pst_device_find() takes it
 * @ret:    filled with up to @max backends in the order in which they are tried; may be
 *          NULL when @max is 0
 * @max:    room in @ret
 *
 * Opens a window of each on a little memory of the device, and proves it.
 *
 * Return: how many there are for this kind of device, which may be more than @max; -ENODEV,
 * -EINVAL.
 */
PST_API int pst_window_backends(const char *device, struct pst_window_backend *ret, unsigned max);

#ifdef __cplusplus
}
#endif
#endif
