/* SPDX-License-Identifier: MIT */
/*
 * libgdrapi - CPU mappings of GPU memory, for programs written for gdrcopy.
 *
 * Calls, types and numbers are those of gdrcopy 2.6, served by libpenstock.  The library uses
 * the kernel module gdrdrv if it is loaded, and works without it.
 *
 * These rules hold for every call:
 *
 *   - int results are 0 on success and a positive errno on failure; errno itself does not
 *     change.  Set GDRCOPY_ENABLE_LOGGING in the environment to any value to print the cause
 *     to standard error; GDRCOPY_LOG_LEVEL is the lowest level that is printed: 1 debug, 2 info,
 *     3 warn, 4 error (the default).  Set-uid programs ignore both.
 *   - Outputs are written on success only.
 *   - An invalid handle gives EINVAL, even a closed one after new objects were created.
 *   - Any thread may make any call at any time.  gdr_unmap(), gdr_unpin_buffer() and gdr_close()
 *     wait for running gdr_copy calls.  They cannot wait for a thread that uses the mapping's
 *     pointer itself: the program must do so.
 *   - After fork() the child gets EACCES for every handle of its parent, inherits no mapping,
 *     and gets NULL from gdr_open() if the parent has pinned memory.
 *   - GPU memory is any memory of the CUDA driver or of libpenstock's software device.
 */
#ifndef GDRAPI_H
#define GDRAPI_H

#include <stddef.h>
#include <stdint.h>

#define MAJOR_VERSION_SHIFT 16
#define MINOR_VERSION_MASK (((uint32_t)1 << MAJOR_VERSION_SHIFT) - 1)

#define GDR_API_MAJOR_VERSION 2
#define GDR_API_MINOR_VERSION 6
#define GDR_API_VERSION ((GDR_API_MAJOR_VERSION << MAJOR_VERSION_SHIFT) | GDR_API_MINOR_VERSION)

/* The oldest supported version of the module gdrdrv. */
#define MINIMUM_GDRDRV_MAJOR_VERSION 2
#define MINIMUM_GDRDRV_MINOR_VERSION 0
#define MINIMUM_GDRDRV_VERSION \
	((MINIMUM_GDRDRV_MAJOR_VERSION << MAJOR_VERSION_SHIFT) | MINIMUM_GDRDRV_MINOR_VERSION)
/* The GPU's page of 64 KiB; sizes of mappings are multiples of it. */
#define GPU_PAGE_SHIFT 16
#define GPU_PAGE_SIZE (1UL << GPU_PAGE_SHIFT)
#define GPU_PAGE_OFFSET (GPU_PAGE_SIZE - 1)
#define GPU_PAGE_MASK (~GPU_PAGE_OFFSET)

#ifndef GDR_API
#define GDR_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

struct gdr;
typedef struct gdr *gdr_t;

/*
 * Define GDRAPI_V1 before this header to build a program that was written for gdrcopy 1.x.  Then
 * the handle is a number, gdr_info_t has five members, and gdr_copy_to_bar() is declared.
 */
#ifdef GDRAPI_V1
typedef unsigned long gdr_mh_t;
#else
typedef struct gdr_mh_s {
	unsigned long h; /* never 0 for a handle */
} gdr_mh_t;
#endif

typedef enum gdr_pin_flags {
	GDR_PIN_FLAG_DEFAULT = 0,
	GDR_PIN_FLAG_FORCE_PCIE = 1, /* bypass a coherent link; not supported */
} gdr_pin_flags_t;

typedef enum gdr_map_flags {
	GDR_MAP_FLAG_DEFAULT = 0, /* the back end chooses */
	GDR_MAP_FLAG_REQ_WC_MAPPING = 1,
	GDR_MAP_FLAG_REQ_CACHE_MAPPING = 2,
	GDR_MAP_FLAG_REQ_DEVICE_MAPPING = 3,
} gdr_map_flags_t;

typedef enum gdr_mapping_type {
	GDR_MAPPING_TYPE_NONE = 0,    /* not mapped */
	GDR_MAPPING_TYPE_WC = 1,      /* write combining: the CPU combines stores; loads are slow */
	GDR_MAPPING_TYPE_CACHING = 2, /* cached like host memory */
	GDR_MAPPING_TYPE_DEVICE = 3,  /* neither combined nor cached */
	GDR_MAPPING_TYPE_MAX = 4,
} gdr_mapping_type_t;

typedef enum gdr_attr {
	GDR_ATTR_USE_PERSISTENT_MAPPING = 1,      /* 1: a mapping stays after its memory is freed */
	GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE = 2, /* 0: GDR_PIN_FLAG_FORCE_PCIE is not supported */
	GDR_ATTR_USING_DMA_BUF_MMAP = 3,          /* 0: each mapping chooses its back end */
	GDR_ATTR_MAX = 4,
} gdr_attr_t;

/*
 * A pinned buffer.  The byte at device address a is at (char *)mapping + (a - va).
 */
typedef struct gdr_info_v2 {
	uint64_t va;                     /* device address of the mapping's first byte, as pinned */
	uint64_t mapped_size;            /* maximum bytes of gdr_map(): whole GPU pages */
	uint32_t page_size;              /* GPU_PAGE_SIZE */
	uint64_t tm_cycles;              /* always 0 */
	uint32_t cycles_per_ms;          /* always 0 */
	unsigned mapped : 1;             /* 1 if the buffer is mapped */
	unsigned wc_mapping : 1;         /* 1 if the mapping is write combining */
	gdr_mapping_type_t mapping_type; /* kind of the mapping */
} gdr_info_v2_t;

/* The structure of gdrcopy before 2.4, which the symbol gdr_get_info fills in. */
typedef struct gdr_info_v1 {
	uint64_t va;
	uint64_t mapped_size;
	uint32_t page_size;
	uint64_t tm_cycles;
	uint32_t cycles_per_ms;
	unsigned mapped : 1;
	unsigned wc_mapping : 1;
} gdr_info_v1_t;

#ifdef GDRAPI_V1
/* gdr_get_info() also writes two bits into the padding after the last member. */
typedef struct gdr_info {
	uint64_t va;
	uint64_t mapped_size;
	uint32_t page_size;
	uint64_t tm_cycles;
	uint32_t cycles_per_ms;
} gdr_info_t;
#else
typedef gdr_info_v2_t gdr_info_t;
#endif

/**
 * gdr_open() - open the library
 *
 * If the calling thread has a current CUDA context, the call maps a little memory of its device
 * and proves the mapping, so that a program learns at once if its machine cannot map GPU memory.
 *
 * Return: a handle for the other calls, to be closed with gdr_close(); NULL if GPU memory cannot
 * be mapped (the log says why), if 1,024 handles are open, or without memory.
 */
GDR_API gdr_t gdr_open(void);

/**
 * gdr_close() - unmap and unpin all buffers of a handle, and close it
 * @g: invalid afterwards, also for other threads
 *
 * Return: 0; EINVAL.
 */
GDR_API int gdr_close(gdr_t g);

/**
 * gdr_pin_buffer() - choose a range of GPU memory
 * @g:         as returned by gdr_open()
 * @addr:      device address, of any alignment
 * @size:      bytes, at least 1; need not be a multiple of a page
 * @p2p_token: 0
 * @va_space:  0
 * @handle:    the buffer, to be ended with gdr_unpin_buffer()
 *
 * Clients often round a range to whole GPU pages.  If a range exceeds its allocation by less than a
 * page at an end, the call cuts the range: info.va stays as requested, and bytes outside of the
 * allocation are not mapped.  A range of whole pages that could belong to one of several small
 * allocations is refused; pass the exact address and length instead.
 *
 * The memory must stay allocated until it is mapped.  Ranges may overlap.
 *
 * Return: 0; EINVAL for an unknown handle, a token, size 0, or memory that is not a GPU's; ENOMEM;
 * EMFILE.
 */
GDR_API int gdr_pin_buffer(gdr_t g, unsigned long addr, size_t size, uint64_t p2p_token,
			   uint32_t va_space, gdr_mh_t *handle);

/**
 * gdr_pin_buffer_v2() - choose a range of GPU memory, as gdr_pin_buffer()
 * @g:      as returned by gdr_open()
 * @addr:   device address
 * @size:   bytes
 * @flags:  GDR_PIN_FLAG_DEFAULT
 * @handle: the buffer
 *
 * Return: as gdr_pin_buffer(); EINVAL for GDR_PIN_FLAG_FORCE_PCIE, see gdr_get_attribute().
 */
GDR_API int gdr_pin_buffer_v2(gdr_t g, unsigned long addr, size_t size, uint32_t flags,
			      gdr_mh_t *handle);

/**
 * gdr_unpin_buffer() - unpin a buffer, and unmap it if it is mapped
 * @g:      as returned by gdr_open()
 * @handle: invalid afterwards
 *
 * Return: 0; EINVAL.
 */
GDR_API int gdr_unpin_buffer(gdr_t g, gdr_mh_t handle);

/**
 * gdr_get_callback_flag() - ask whether the driver has revoked the memory
 * @g:      as returned by gdr_open()
 * @handle: the buffer
 * @flag:   always 0: mappings stay after their memory is freed
 *
 * Return: 0; EINVAL.
 */
GDR_API int gdr_get_callback_flag(gdr_t g, gdr_mh_t handle, int *flag);

/**
 * gdr_get_info_v2() - return facts about a buffer
 * @g:      as returned by gdr_open()
 * @handle: the buffer
 * @info:   filled in
 *
 * Return: 0; EINVAL.
 */
GDR_API int gdr_get_info_v2(gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info);

#ifdef GDRAPI_V1
GDR_API int gdr_get_info(gdr_t g, gdr_mh_t handle, gdr_info_t *info);
#else
#define gdr_get_info gdr_get_info_v2
#endif

/**
 * gdr_map() - map a buffer for the CPU
 * @g:      as returned by gdr_open()
 * @handle: the buffer; it may have one mapping at a time
 * @va:     address of the byte at info.va
 * @size:   bytes to map, up to info.mapped_size; rounded up to pages of the host
 *
 * The CPU combines stores through the pointer until a store fence (sfence on x86) sends them.
 * gdr_copy_to_mapping() includes a fence.  GPU work that was launched before the stores may see any
 * of them, in any order.
 *
 * Return: 0; EINVAL for a size out of range, or memory that was freed after it was pinned; EAGAIN
 * if the buffer is mapped; EOPNOTSUPP if no back end can map this memory; ENOMEM; EMFILE; EIO if
 * the mapping showed wrong bytes.
 */
GDR_API int gdr_map(gdr_t g, gdr_mh_t handle, void **va, size_t size);

/**
 * gdr_map_v2() - map a buffer with one kind of mapping, as gdr_map()
 * @g:      as returned by gdr_open()
 * @handle: the buffer
 * @va:     address of the byte at info.va
 * @size:   bytes
 * @flags:  enum gdr_map_flags
 *
 * Return: as gdr_map(); EINVAL for unknown flags; EOPNOTSUPP if this kind of mapping is not
 * supported.
 */
GDR_API int gdr_map_v2(gdr_t g, gdr_mh_t handle, void **va, size_t size, int flags);

/**
 * gdr_unmap() - unmap a buffer
 * @g:      as returned by gdr_open()
 * @handle: the buffer
 * @va:     as returned by gdr_map()
 * @size:   as passed to gdr_map(); the whole mapping is unmapped in any case
 *
 * Return: 0; EINVAL if the buffer is not mapped at @va, or its mapping is smaller than @size.
 */
GDR_API int gdr_unmap(gdr_t g, gdr_mh_t handle, void *va, size_t size);

/**
 * gdr_copy_to_mapping() - copy into GPU memory by the CPU
 * @handle:    the buffer
 * @map_d_ptr: any byte in its mapping
 * @h_ptr:     host memory, of any alignment
 * @size:      bytes; may be 0
 *
 * The stores are fenced on return.
 *
 * Return: 0; EINVAL if the buffer is not mapped, or for bytes outside its mapping.
 */
GDR_API int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr, const void *h_ptr, size_t size);

/**
 * gdr_copy_from_mapping() - copy out of GPU memory by the CPU
 * @handle:    the buffer
 * @h_ptr:     host memory, of any alignment
 * @map_d_ptr: any byte in its mapping
 * @size:      bytes; may be 0
 *
 * Return: as gdr_copy_to_mapping().
 */
GDR_API int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr, const void *map_d_ptr, size_t size);

/**
 * gdr_runtime_get_version() - return the version of gdrcopy that this library implements
 * @major: 2
 * @minor: 6
 */
GDR_API void gdr_runtime_get_version(int *major, int *minor);

/**
 * gdr_driver_get_version() - return the version of gdrdrv whose features work
 * @g:     as returned by gdr_open()
 * @major: 2
 * @minor: 6, whichever back end maps the memory
 *
 * Return: 0; EINVAL.
 */
GDR_API int gdr_driver_get_version(gdr_t g, int *major, int *minor);

/**
 * gdr_get_attribute() - return a fact about mappings
 * @g:    as returned by gdr_open()
 * @attr: enum gdr_attr, whose comments list the values
 * @v:    the value
 *
 * Return: 0; EINVAL for an unknown attribute.
 */
GDR_API int gdr_get_attribute(gdr_t g, gdr_attr_t attr, int *v);

/**
 * gdr_get_mapping_type_string() - describe a kind of mapping in words
 * @type: enum gdr_mapping_type, without MAX
 * @ret:  a constant string
 *
 * Return: 0; EINVAL.
 */
GDR_API int gdr_get_mapping_type_string(gdr_mapping_type_t type, const char **ret);

#ifdef GDRAPI_V1
/**
 * gdr_copy_to_bar() - copy into GPU memory, for programs of gdrcopy 1.x
 * @bar_ptr: any byte in any mapping of the process
 * @h_ptr:   host memory
 * @size:    bytes; may be 0
 *
 * Searches all mappings; gdr_copy_to_mapping() is faster.
 *
 * Return: 0; EINVAL for bytes that are not in one mapping.
 */
GDR_API int gdr_copy_to_bar(void *bar_ptr, const void *h_ptr, size_t size);

/**
 * gdr_copy_from_bar() - copy out of GPU memory, for programs of gdrcopy 1.x
 * @h_ptr:   host memory
 * @bar_ptr: any byte in any mapping of the process
 * @size:    bytes; may be 0
 *
 * Return: as gdr_copy_to_bar().
 */
GDR_API int gdr_copy_from_bar(void *h_ptr, const void *bar_ptr, size_t size);
#endif

#ifdef __cplusplus
}
#endif
#endif
