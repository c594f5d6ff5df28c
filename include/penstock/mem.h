/* SPDX-License-Identifier: MIT */
/* Ranges of memory on one device; manual page: pst_mem(3). */
#ifndef PENSTOCK_MEM_H
#define PENSTOCK_MEM_H

#include <penstock/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PST_MEM_SHARED (1u << 0) /* may be exported to another process */
#define PST_MEM_PINNED (1u << 1) /* wrap: the caller promises that the pages stay */
#define PST_MEM_LATER (1u << 2)  /* wrap with kind HOST: memory that need not be there yet */

struct pst_mem_opts {
	size_t sz;      /* sizeof(struct pst_mem_opts) */
	uint32_t flags; /* PST_MEM_* */
	uint32_t kind;  /* enum pst_kind; 0: wrap finds it out; alloc: 0 or the device's own */
};

struct pst_mem_info {
	size_t sz;          /* sizeof(struct pst_mem_info) */
	uint32_t kind;      /* enum pst_kind */
	uint32_t flags;     /* PST_MEM_* in force */
	uint64_t addr;      /* address of the first byte, as the device's API knows it */
	uint64_t len;       /* bytes */
	uint64_t base;      /* of the allocation that holds the range */
	uint64_t size;      /* of that allocation */
	uint64_t buffer_id; /* of that allocation; never used twice in a process */
	char device[PST_DEVICE_NAME_MAX];
};

/**
 * pst_mem_alloc() - allocate memory on a device
 * @device:  a name as pst_device_find() takes it
 * @len:     bytes, at least 1; rounded up to pages inside
 * @opts:    NULL for the defaults
 * @ret_mem: the memory, to be freed with pst_mem_free()
 *
 * Host memory is zeroed and page aligned; device memory is as the device gives it.
 *
 * Return: 0; -EINVAL for zero length or an unknown option; -ENODEV when there is no such
 * device; -ENOMEM when device, address space or RLIMIT_AS is exhausted; -EMFILE without
 * a free descriptor.
 */
PST_API int pst_mem_alloc(const char *device, uint64_t len, const struct pst_mem_opts *opts,
			  struct pst_mem **ret_mem);

/**
 * pst_mem_wrap() - use memory that the caller allocated
 * @addr:    address of the first byte.  A number and not a pointer, because for an
 *           accelerator it must never be dereferenced.  It may lie inside an allocation.
 * @len:     bytes, at least 1
 * @opts:    NULL for the defaults
 * @ret_mem: the memory, to be given back with pst_mem_free()
 *
 * The memory stays the caller's and must stay allocated until pst_mem_free() and the end
 * of every request on it.  Host memory that vanishes earlier makes requests fail with
 * -EFAULT, without a signal, as long as nothing else is mapped at its addresses.  The kernel gives
 * free addresses to what is mapped next, a thread's stack for example, the library's own threads
 * included: such requests read and write that.  PST_MEM_PINNED makes requests on host memory
 * cheaper.
 *
 * Return: 0; -EINVAL for address 0, zero length or an overflow; -EFAULT when no device
 * knows the range and the CPU may not access all of it; -ERANGE when it reaches past its
 * allocation.
 */
PST_API int pst_mem_wrap(uint64_t addr, uint64_t len, const struct pst_mem_opts *opts,
			 struct pst_mem **ret_mem);

/**
 * pst_mem_free() - give memory back
 * @mem: may have requests in flight: the last of them frees it then
 *
 * While a stream of the program waits for a read (PST_IO_STREAM_WAIT) memory of CUDA stays
 * allocated, and it is freed at any time after that.  Calls that free it wait for all streams, and
 * all other calls wait for them: measured with NVIDIA's driver 580.159.
 *
 * Wrapped memory is the caller's: call pst_mem_drain() before freeing it.
 *
 * Return: NULL.
 */
PST_API struct pst_mem *pst_mem_free(struct pst_mem *mem);

/**
 * pst_mem_drain() - wait until nothing can touch the memory any more
 * @mem:         the memory; no other thread may prepare requests on it meanwhile
 * @deadline_ns: when to stop waiting; 0 only looks
 *
 * Counts requests of every queue on this handle, prepared ones and those that completed with
 * PST_DONE_BUSY too.  Any thread.
 *
 * Return: 0 when quiet, -EBUSY when a request may still touch it at the deadline; -EINVAL for
 * NULL.
 */
PST_API int pst_mem_drain(struct pst_mem *mem, uint64_t deadline_ns);

/**
 * pst_mem_info() - facts of a piece of memory
 * @mem: the memory
 * @ret: filled in
 *
 * Return: 0 or -EINVAL for a bad sz.
 */
PST_API int pst_mem_info(const struct pst_mem *mem, struct pst_mem_info *ret);

/**
 * pst_mem_ptr() - the pointer through which the CPU may use the memory
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
 * Blocks until the bytes are there.  For set-up and checks; requests are the fast way.
 *
 * Return: 0; -ERANGE past the end of @mem; -EACCES for a right that the grant of the memory
 * does not give; -EFAULT when host memory that it needs is not there any more; -EIO when
 * the device failed.
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
 * pst_mem_sync() - wait for what the memory's device was given to do
 * @mem: memory of any kind; the host's needs no waiting
 *
 * For CUDA this is all work of the memory's context.  A program that can name its stream
 * waits for less: see pst_io.stream.  Any thread.
 *
 * Return: 0; -EFAULT when wrapped memory was freed by its owner; -EBUSY while a stream is
 * captured; -EIO when the device failed.
 */
PST_API int pst_mem_sync(struct pst_mem *mem);

#ifdef __cplusplus
}
#endif
#endif
