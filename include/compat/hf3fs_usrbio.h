/* SPDX-License-Identifier: MIT */
/*
 * libhf3fs_api_shared - rings of file requests over shared memory, for programs written for
 * 3FS's usrbio.
 *
 * Calls, structures and numbers are those of 3FS.  A mount point is either a file system whose
 * daemon speaks 3FS's protocol, or a plain directory that `penstock mount --plain' prepared.  On
 * a plain directory threads of the calling process execute requests with libpenstock.
 *
 * These rules hold for every call:
 *
 *   - int results are 0 or a count on success and -errno on failure.  Three old calls differ,
 *     because programs rely on it: hf3fs_reg_fd() returns 0 or a negative value on success and a
 *     positive errno on failure; hf3fs_hardlink() and hf3fs_punchhole() return a positive errno
 *     on failure.
 *   - NULL, or a structure that no call of this library filled in, gives -EINVAL if the library
 *     can detect it; void calls then do nothing.
 *   - The caller allocates the structures, and the library fills them in.  The structures may be
 *     copied.
 *   - A mount point is a path of less than 256 bytes, as hf3fs_extract_mount_point() returns it.
 *   - Any thread may make any call at any time, with one exception: only one thread at a time may
 *     prepare requests of a ring, and only one at a time may wait for them.
 *   - After fork() a ring belongs to one of the two processes.  On a plain directory the parent
 *     keeps it, and the child gets -EOWNERDEAD.  exec() inherits nothing.
 *   - HF3FS_USRBIO_LIB_LOG in the environment (ERROR, WARN, INFO, DBG or OFF; default WARN) sets
 *     what is printed to standard error.  Set-uid programs ignore it.
 */
#ifndef HF3FS_USRBIO_H
#define HF3FS_USRBIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#ifndef HF3FS_API
#define HF3FS_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

struct timespec; /* strict C99's <time.h> does not declare this type */

#define HF3FS_SUPER_MAGIC 0x8f3f5fff

/* Flag of a ring: ignored on a plain directory. */
#define HF3FS_IOR_ALLOW_READ_UNCOMMITTED 1
/* Flag of a ring: reading a hole before data fails with -ENODATA instead of reading zeros. */
#define HF3FS_IOR_FORBID_READ_HOLES 2

typedef void *hf3fs_iov_handle;
typedef void *hf3fs_ior_handle;

/* Shared memory that requests read into and write from: 312 bytes. */
struct hf3fs_iov {
	uint8_t *base;         /* first byte; never dereference it for device memory */
	hf3fs_iov_handle iovh; /* private to the library; NULL after hf3fs_iovdestroy() */
	char id[16];           /* UUID of the memory */
	char mount_point[256]; /* mount point where the memory is published */
	size_t size;           /* bytes */
	size_t block_size;     /* bytes; no request may cross a multiple of this number; 0: no
			        * limit */
	int numa;              /* NUMA node of the pages; below 0: any */
};

/* A ring: 600 bytes. */
struct hf3fs_ior {
	struct hf3fs_iov iov;  /* the ring's own shared memory */
	hf3fs_ior_handle iorh; /* private to the library */
	char mount_point[256]; /* mount point of the files that the ring serves */
	bool for_read;         /* true: all requests read; false: all write */
	int io_depth;          /* as passed to hf3fs_iorcreate() */
	int priority;          /* below 0 high, 0 normal, above 0 low */
	int timeout;           /* milliseconds, see hf3fs_iorcreate3() */
	uint64_t flags;        /* HF3FS_IOR_* */
};

/* A completion: 24 bytes. */
struct hf3fs_cqe {
	int32_t index;        /* as hf3fs_prep_io() returned it */
	int32_t reserved;     /* always 0 */
	int64_t result;       /* bytes moved, or -errno */
	const void *userdata; /* as passed to hf3fs_prep_io() */
};

/* ------------------------------------------------------------ mount points */

/**
 * hf3fs_is_hf3fs() - check whether usrbio serves the mount of an open file or directory
 * @fd: any descriptor
 *
 * Return: true if @fd is on a 3FS mount or below a plain directory.
 */
HF3FS_API bool hf3fs_is_hf3fs(int fd);

/**
 * hf3fs_extract_mount_point() - find the mount point of a path
 * @hf3fs_mount_point: receives the mount point and its terminating 0, if they fit
 * @size:              bytes at @hf3fs_mount_point
 * @path:              an existing file or directory
 *
 * Finds the deepest mount point: a plain directory, or a mount of type fuse.hf3fs (of any type if
 * HF3FS_USRBIO_DONT_CHECKFS_FOR_MP is "yes").
 *
 * Return: length of the mount point with its terminating 0; if that is more than @size, nothing is
 * copied.  -1 if there is no mount point, with errno set.
 */
HF3FS_API int hf3fs_extract_mount_point(char *hf3fs_mount_point, int size, const char *path);

/* ----------------------------------------------------------- shared memory */

/**
 * hf3fs_iovcreate() - allocate shared memory and publish it
 * @iov:               filled in on success
 * @hf3fs_mount_point: where to publish it
 * @size:              bytes, at least 1
 * @block_size:        see struct hf3fs_iov; at most @size
 * @numa:              NUMA node to bind the pages to; below 0: any
 *
 * The memory is page-aligned and fully allocated on return: writing to it never raises SIGBUS.
 *
 * Return: 0; -EINVAL for a size of 0, @block_size above @size, or a mount point that is too
 * long; -ENOENT if @hf3fs_mount_point is no mount point; -ENOSPC, -ENOMEM if shared memory is
 * exhausted; -EACCES, -EPERM, -EMFILE or another -errno of symlink(2); -EIO.
 */
HF3FS_API int hf3fs_iovcreate(struct hf3fs_iov *iov, const char *hf3fs_mount_point, size_t size,
			      size_t block_size, int numa);

/**
 * hf3fs_iovopen() - attach to shared memory that another process published
 * @iov:               filled in on success
 * @id:                its UUID
 * @hf3fs_mount_point: where it is published
 * @size:              bytes to map, at most the size of the memory
 * @block_size:        as passed by its creator
 * @numa:              stored but not applied
 *
 * hf3fs_iovdestroy() only detaches; the memory stays published by its creator.
 *
 * Return: 0; -ENOENT if nothing is published under @id; -EPERM if it is another user's; -EINVAL if
 * it is not shared memory, or smaller than @size; -EIO.
 */
HF3FS_API int hf3fs_iovopen(struct hf3fs_iov *iov, const uint8_t id[16],
			    const char *hf3fs_mount_point, size_t size, size_t block_size,
			    int numa);

/**
 * hf3fs_iovwrap() - use memory that the caller mapped and publishes itself
 * @iov:               filled in on success
 * @base:              first byte
 * @id:                UUID under which the memory is, or will be, published
 * @hf3fs_mount_point: where it is published
 * @size:              bytes, at least 1
 * @block_size:        see struct hf3fs_iov; at most @size
 * @numa:              NUMA node to bind the pages to; below 0: any
 *
 * Only records the memory: the caller owns memory and publication, and the library checks neither.
 * On a plain directory @block_size holds only if the memory is published with it.  Wrapping other
 * memory under the same UUID replaces the earlier memory.  Wrapping the same memory again returns
 * the same handle, which is valid until the last hf3fs_iovdestroy().
 *
 * Return: 0; -EINVAL for an argument out of range; -ENOENT if @hf3fs_mount_point is no mount point;
 * -EPERM if it is another user's; -ENOMEM.
 */
HF3FS_API int hf3fs_iovwrap(struct hf3fs_iov *iov, void *base, const uint8_t id[16],
			    const char *hf3fs_mount_point, size_t size, size_t block_size,
			    int numa);

/**
 * hf3fs_iovunlink() - remove the name of shared memory
 * @iov: memory that this process created; any other is ignored
 *
 * The memory exists until its last mapping ends, and stays published until hf3fs_iovdestroy().
 */
HF3FS_API void hf3fs_iovunlink(struct hf3fs_iov *iov);

/**
 * hf3fs_iovdestroy() - release shared memory
 * @iov: created, opened or wrapped; no request on it may be in flight.  Its iovh is NULL
 *       afterwards, and a second call does nothing.
 *
 * Removes the publication and the mapping if this process made them, and nothing else.
 */
HF3FS_API void hf3fs_iovdestroy(struct hf3fs_iov *iov);

/* ------------------------------------------------------------------- rings */

/**
 * hf3fs_ior_size() - return the bytes of shared memory that a ring needs
 * @entries: maximum requests in flight
 *
 * Return: bytes; 0 if @entries is not positive.
 */
HF3FS_API size_t hf3fs_ior_size(int entries);

/**
 * hf3fs_iorcreate() - create a ring
 * @ior:               filled in on success
 * @hf3fs_mount_point: mount point of the files that the ring serves
 * @entries:           maximum requests in flight, at least 1
 * @for_read:          true: all requests read; false: all write
 * @io_depth:          0: start each request at once.  Above 0: wait for batches of exactly
 *                     @io_depth requests.  Below 0: start batches of at most -@io_depth
 * @numa:              NUMA node to bind its memory to; below 0: any
 *
 * Return: 0; -EINVAL for an argument out of range; -errno as hf3fs_iovcreate(), or of reading the
 * daemon's semaphore links.  A failure leaves nothing behind.
 */
HF3FS_API int hf3fs_iorcreate(struct hf3fs_ior *ior, const char *hf3fs_mount_point, int entries,
			      bool for_read, int io_depth, int numa);

/**
 * hf3fs_iorcreate2() - create a ring with a priority, as hf3fs_iorcreate()
 * @priority: below 0 high, 0 normal, above 0 low
 */
HF3FS_API int hf3fs_iorcreate2(struct hf3fs_ior *ior, const char *hf3fs_mount_point, int entries,
			       bool for_read, int io_depth, int priority, int numa);

/**
 * hf3fs_iorcreate3() - create a ring with a timeout, as hf3fs_iorcreate2()
 * @timeout: if @io_depth is below 0, milliseconds that a partial batch waits; 0: it does not wait
 */
HF3FS_API int hf3fs_iorcreate3(struct hf3fs_ior *ior, const char *hf3fs_mount_point, int entries,
			       bool for_read, int io_depth, int priority, int timeout, int numa);

/**
 * hf3fs_iorcreate4() - create a ring with flags and normal priority, as hf3fs_iorcreate3()
 * @flags: HF3FS_IOR_*; others are refused with -EINVAL
 */
HF3FS_API int hf3fs_iorcreate4(struct hf3fs_ior *ior, const char *hf3fs_mount_point, int entries,
			       bool for_read, int io_depth, int timeout, int numa, uint64_t flags);

/**
 * hf3fs_iorwrap() - create a ring in memory that the caller published as a ring
 * @ior:      filled in on success
 * @buf:      the ring's memory, zeroed and mapped shared, aligned to 8 bytes
 * @size:     bytes, as hf3fs_ior_size() returns
 *
 * The other arguments are as in hf3fs_iorcreate3() and hf3fs_iorcreate4().  3FS declares this call
 * in its header but does not export it for C.
 *
 * Return: as hf3fs_iorcreate().
 */
HF3FS_API int hf3fs_iorwrap(struct hf3fs_ior *ior, void *buf, const char *hf3fs_mount_point,
			    size_t size, bool for_read, int io_depth, int priority, int timeout,
			    uint64_t flags);

/**
 * hf3fs_iordestroy() - destroy a ring
 * @ior: the ring; its iorh is NULL afterwards, and a second call does nothing
 *
 * On a plain directory the call cancels requests in flight, which do not touch their memory
 * afterwards.  With a daemon, reap all requests first.
 */
HF3FS_API void hf3fs_iordestroy(struct hf3fs_ior *ior);

/* ------------------------------------------------------------------- files */

/**
 * hf3fs_reg_fd() - let rings use an open file
 * @fd:    open on the mount; its access mode limits what rings may do
 * @flags: ignored
 *
 * Rings may use the file until hf3fs_dereg_fd(), even after @fd was closed.
 *
 * Return: -h, where h is a descriptor of the library; hf3fs_prep_io() accepts both @fd and h.  On
 * failure a positive errno: EBADF if @fd is not open or not on a mount that usrbio serves; EINVAL
 * if this open file is already registered by this number; EMFILE or another errno of dup(2) and
 * statx(2); on a plain directory also ENXIO if it is not a regular file, and EINVAL if it was
 * opened with O_APPEND.
 */
HF3FS_API int hf3fs_reg_fd(int fd, uint64_t flags);

/**
 * hf3fs_dereg_fd() - end a registration
 * @fd: the descriptor that was registered, closed or not, or the descriptor h of hf3fs_reg_fd()
 *
 * Requests that were prepared before are not affected.
 */
HF3FS_API void hf3fs_dereg_fd(int fd);

/* ---------------------------------------------------------------- requests */

/**
 * hf3fs_io_entries() - return the number of requests that a ring can hold
 * @ior: the ring
 *
 * Return: the number; 0 for an invalid ring.
 */
HF3FS_API int hf3fs_io_entries(const struct hf3fs_ior *ior);

/**
 * hf3fs_prep_io() - add a request to a ring
 * @ior:      the ring
 * @iov:      shared memory: created, opened or wrapped
 * @read:     must be the ring's direction
 * @ptr:      first byte, within @iov
 * @fd:       a registered descriptor, or the descriptor h of hf3fs_reg_fd()
 * @off:      first byte in the file
 * @len:      bytes, at least 1
 * @userdata: returned in the completion
 *
 * Never blocks.  The request may start before hf3fs_submit_ios().
 *
 * Return: the request's index, as in its completion; -EAGAIN if the ring is full: reap first;
 * -EINVAL for a wrong direction, length 0, or a range outside @iov or beyond off_t; -EBADF for a
 * file that is not registered, or on the other kind of mount; -EACCES if the file is not open for
 * the direction; -ENOTCONN if the ring's daemon has ended.
 */
HF3FS_API int hf3fs_prep_io(const struct hf3fs_ior *ior, const struct hf3fs_iov *iov, bool read,
			    void *ptr, int fd, size_t off, uint64_t len, const void *userdata);

/**
 * hf3fs_submit_ios() - start prepared requests
 * @ior: the ring
 *
 * Never blocks.  Any thread and any signal handler may call it.
 *
 * Return: 0 or -EINVAL.
 */
HF3FS_API int hf3fs_submit_ios(const struct hf3fs_ior *ior);

/**
 * hf3fs_wait_for_ios() - take completions
 * @ior:         the ring
 * @cqes:        room for @cqec completions
 * @cqec:        at least 1
 * @min_results: wait for this many completions, at most @cqec; below 1 does not wait
 * @abs_timeout: when to stop waiting, CLOCK_REALTIME; NULL: never
 *
 * The call takes available completions before it looks at the time, so a time in the past means
 * not to wait.  Signals do not end the wait.  If the daemon has ended, the call notices it after
 * 200 ms without a completion; the ring's requests then complete with -EREMOTEIO.
 *
 * Return: number of completions, 0 after the timeout; -EINVAL.
 */
HF3FS_API int hf3fs_wait_for_ios(const struct hf3fs_ior *ior, struct hf3fs_cqe *cqes, int cqec,
				 int min_results, const struct timespec *abs_timeout);

/* ------------------------------------------------------------ other things */

/**
 * hf3fs_hardlink() - create a hard link on the same mount
 * @target:    existing file
 * @link_name: new name, the last part at most 254 bytes
 *
 * Return: 0 or a positive errno: EINVAL if @link_name does not end in a name, EXDEV if it is on
 * another mount, ENOTTY if usrbio does not serve @target, or an errno of link(2).
 */
HF3FS_API int hf3fs_hardlink(const char *target, const char *link_name);

/**
 * hf3fs_punchhole() - free ranges of a file
 * @fd:    open for writing
 * @n:     number of ranges, 1 to 1000
 * @start: first byte of each range
 * @end:   first byte after each range
 * @flags: ignored
 *
 * On 3FS, start and end must be multiples of the file's chunk size.
 *
 * Return: 0 or a positive errno: EINVAL for an invalid range, and then no range is freed; EBADF if
 * @fd is not open for writing; ENOTTY if usrbio does not serve it; or an errno of fallocate(2).
 */
HF3FS_API int hf3fs_punchhole(int fd, int n, const size_t *start, const size_t *end, size_t flags);

/* ----------------------------------------------------------- device memory */

enum hf3fs_mem_type {
	HF3FS_MEM_HOST = 0,
	HF3FS_MEM_DEVICE = 1,
	HF3FS_MEM_MANAGED = 2, /* never returned: managed memory is refused */
};

/*
 * Device memory as an iov.  Every call that takes a struct hf3fs_iov accepts device memory.
 * Device numbers are CUDA's, after CUDA_VISIBLE_DEVICES.  With PST_USRBIO_DEVICE=soft in the
 * environment they are libpenstock's software devices; set-uid programs ignore the variable.  No
 * call falls back to host memory, and none changes the calling thread's current device.  On a
 * plain directory the memory is not shared with other processes.
 */

/**
 * hf3fs_gdr_available() - check whether rings can use device memory on this machine
 */
HF3FS_API bool hf3fs_gdr_available(void);

/**
 * hf3fs_gdr_device_count() - return the number of usable devices
 */
HF3FS_API int hf3fs_gdr_device_count(void);

/**
 * hf3fs_iovcreate_device() - allocate device memory and publish it
 * @iov:               filled in on success
 * @hf3fs_mount_point: where to publish it
 * @size:              bytes, at least 1
 * @block_size:        0
 * @device_id:         CUDA's number of the device
 *
 * Return: 0; -EINVAL for an argument out of range; -ENOTSUP without CUDA; -ENODEV for an unknown
 * device; -ENOMEM; -errno of publishing, as hf3fs_iovcreate().
 */
HF3FS_API int hf3fs_iovcreate_device(struct hf3fs_iov *iov, const char *hf3fs_mount_point,
				     size_t size, size_t block_size, int device_id);

/**
 * hf3fs_iovopen_device() - use device memory that another process published
 * @id: its UUID
 *
 * Return: as hf3fs_iovcreate_device(); -ENOENT if nothing is published under @id, as always on a
 * plain directory; -EINVAL if the device or size differs.
 */
HF3FS_API int hf3fs_iovopen_device(struct hf3fs_iov *iov, const uint8_t id[16],
				   const char *hf3fs_mount_point, size_t size, size_t block_size,
				   int device_id);

/**
 * hf3fs_iovwrap_device() - publish device memory that the caller allocated
 * @device_ptr: first byte, which may lie inside an allocation; the caller owns the memory
 * @id:         UUID to publish it under
 *
 * Return: as hf3fs_iovcreate_device(); -EINVAL if the range is not memory of that device; -EEXIST
 * if the UUID is in use.
 */
HF3FS_API int hf3fs_iovwrap_device(struct hf3fs_iov *iov, void *device_ptr, const uint8_t id[16],
				   const char *hf3fs_mount_point, size_t size, size_t block_size,
				   int device_id);

/**
 * hf3fs_iov_mem_type() - return the kind of memory of an iov
 */
HF3FS_API enum hf3fs_mem_type hf3fs_iov_mem_type(const struct hf3fs_iov *iov);

/**
 * hf3fs_iov_device_id() - return the device of an iov, or -1 for host memory
 */
HF3FS_API int hf3fs_iov_device_id(const struct hf3fs_iov *iov);

/**
 * hf3fs_iovsync() - order device work with requests
 * @iov:       the memory; the call does nothing for host memory
 * @direction: 0 before requests that write results of device work; 1 after reads completed
 *
 * Waits for all work on the device, of every thread and stream.
 *
 * Return: 0; -EINVAL; -EBUSY while a stream is captured into a graph, because CUDA would
 * invalidate the capture; -EIO if the device failed.
 */
HF3FS_API int hf3fs_iovsync(const struct hf3fs_iov *iov, int direction);

#ifdef __cplusplus
}
#endif
#endif
