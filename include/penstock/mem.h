/* SPDX-License-Identifier: MIT */
/* Ranges of memory on one device; manual page: pst_mem(3). */
#ifndef PENSTOCK_MEM_H
#define PENSTOCK_MEM_H

#include <penstock/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* pst_mem_alloc(): the memory may be exported to another process. */
#define PST_MEM_SHARED (1u << 0)
/* pst_mem_wrap(): the caller promises that the pages stay mapped. */
#define PST_MEM_PINNED (1u << 1)
/* pst_mem_wrap() of PST_KIND_HOST: the addresses are reserved, and mapped later. */
#define PST_MEM_LATER (1u << 2)
/* Fail with -EOPNOTSUPP unless the memory can become a dma-buf, by which other devices reach it.
 * If neither this flag nor PST_MEM_NO_DMABUF is set, the variable PST_DMABUF decides. */
#define PST_MEM_DMABUF (1u << 3)
/* The memory never becomes a dma-buf. */
#define PST_MEM_NO_DMABUF (1u << 4)

struct pst_mem_opts {
	size_t sz;      /* sizeof(struct pst_mem_opts) */
	uint32_t flags; /* PST_MEM_* */
	uint32_t kind;  /* enum pst_kind; 0: that of the device, or found by pst_mem_wrap() */
};

struct pst_mem_info {
	size_t sz;                        /* sizeof(struct pst_mem_info) */
	uint32_t kind;                    /* enum pst_kind */
	uint32_t flags;                   /* PST_MEM_* that apply */
	uint64_t addr;                    /* address of the first byte, in the device's API */
	uint64_t len;                     /* bytes of the range */
	uint64_t base;                    /* address of the allocation that contains the range */
	uint64_t size;                    /* bytes of that allocation */
	uint64_t buffer_id;               /* number of that allocation, unique in the process */
	char device[PST_DEVICE_NAME_MAX]; /* name for pst_device_find() */
};

/**
 * pst_mem_alloc() - allocate memory on a device
 * @device:  a name as pst_device_find() takes it
 * @len:     bytes, at least 1
 * @opts:    NULL for the defaults
 * @ret_mem: the memory, to be freed with pst_mem_free()
 *
 * Host memory is zeroed and page-aligned; device memory holds whatever the device left there.
 *
 * Return: 0; -EINVAL for zero length or an unknown option; -ENODEV for an unknown device; -ENOMEM
 * if device, address space or RLIMIT_AS is exhausted; -EMFILE without a free descriptor.
 */
PST_API int pst_mem_alloc(const char *device, uint64_t len, const struct pst_mem_opts *opts,
			  struct pst_mem **ret_mem);

/**
 * pst_mem_wrap() - use memory that the caller allocated
 * @addr:    address of the first byte, which may lie inside an allocation.  A number and not a
 *           pointer, because the CPU must never dereference the address of an accelerator.
 * @len:     bytes, at least 1
 * @opts:    NULL for the defaults
 * @ret_mem: the memory, to be released with pst_mem_free()
 *
 * The caller owns the memory and must keep it allocated until pst_mem_free() and the end of every
 * request on it.  Requests on host memory that is unmapped earlier fail with -EFAULT, without a
 * signal.  If other memory, such as a thread's stack, has been mapped at the same addresses, these
 * requests read and write that memory.  PST_MEM_PINNED makes requests on host memory
 * cheaper.
 *
 * Return: 0; -EINVAL for address 0, zero length or an overflow; -EFAULT if no device knows the
 * range and the CPU may not access all of it; -ERANGE if the range reaches past its allocation.
 */
PST_API int pst_mem_wrap(uint64_t addr, uint64_t len, const struct pst_mem_opts *opts,
			 struct pst_mem **ret_mem);

/**
 * pst_mem_free() - release memory
 * @mem: the memory; if requests are in flight, the last of them frees it
 *
 * CUDA memory is freed later while a stream of the program waits for a read (PST_IO_STREAM_WAIT):
 * the driver's free waits for all streams, and other driver calls wait for the free (NVIDIA
 * driver 580.159).
 *
 * Before you free wrapped memory, call pst_mem_drain().
 *
 * Return: NULL.
 */
PST_API struct pst_mem *pst_mem_free(struct pst_mem *mem);

/**
 * pst_mem_drain() - wait until no request can touch the memory
 * @mem:         the memory; during the call no thread may prepare requests on it
 * @deadline_ns: when to stop waiting; 0 does not wait
 *
 * Waits for requests of every queue on this handle, even those that are only prepared, and those
 * that completed with PST_DONE_BUSY.  Any thread.
 *
 * Return: 0 if no request can touch the memory; -EBUSY if one still may at the deadline; -EINVAL
 * for NULL.
 */
PST_API int pst_mem_drain(struct pst_mem *mem, uint64_t deadline_ns);

/**
 * pst_mem_info() - return facts about memory
 * @mem: the memory
 * @ret: filled in
 *
 * Return: 0 or -EINVAL for a bad sz.
 */
PST_API int pst_mem_info(const struct pst_mem *mem, struct pst_mem_info *ret);

/**
 * pst_mem_ptr() - return the pointer by which the CPU may use the memory
 * @mem: the memory
 *
 * Return: the pointer for host memory, NULL for every other kind.
 */
PST_API void *pst_mem_ptr(const struct pst_mem *mem);

/**
 * pst_mem_copy_in() - copy from a caller's buffer into memory of any kind
 * @mem: the target
 * @off: first byte in @mem
 * @src: host memory
 * @len: bytes
 *
 * Blocks until the bytes are copied.  Use it for set-up and checks; requests are faster.
 *
 * Return: 0; -ERANGE past the end of @mem; -EACCES for a right that the grant of the memory
 * does not give; -EFAULT if host memory is no longer mapped; -EIO if the device failed.
 */
PST_API int pst_mem_copy_in(struct pst_mem *mem, uint64_t off, const void *src, uint64_t len);

/**
 * pst_mem_copy_out() - copy from memory of any kind into a caller's buffer
 * @mem: the source
 * @off: first byte in @mem
 * @dst: host memory
 * @len: bytes
 *
 * Return: as pst_mem_copy_in().
 */
PST_API int pst_mem_copy_out(struct pst_mem *mem, uint64_t off, void *dst, uint64_t len);

/**
 * pst_mem_sync() - wait for all work of the memory's device
 * @mem: memory of any kind; returns at once for host memory
 *
 * For CUDA this waits for all work of the memory's context.  To wait for one stream only, use
 * pst_io.stream.  Any thread.
 *
 * Return: 0; -EFAULT if the owner freed the wrapped memory; -EBUSY while a stream is captured;
 * -EIO if the device failed.
 */
PST_API int pst_mem_sync(struct pst_mem *mem);

#ifdef __cplusplus
}
#endif
#endif
