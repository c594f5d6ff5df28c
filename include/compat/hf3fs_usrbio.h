/* SPDX-License-Identifier: MIT */
/*
 * libhf3fs_api_shared - rings of file requests over shared memory, for programs written for
 * 3FS's usrbio.
 *
 * Calls, structures and numbers are those of 3FS.  A mount point belongs either to a file system
 * daemon that speaks 3FS's protocol, or to a plain directory that was prepared with
 * `penstock mount --plain': there, threads of the calling process do the work with libpenstock.
 *
 * Rules that hold for every call below, so that they are not repeated:
 *
 *   - int results are 0 or a count on success and -errno on failure.  The exceptions are old and
 *     programs rely on them: hf3fs_reg_fd() succeeds with a value that is not positive and
 *     fails with a positive errno; hf3fs_hardlink() and hf3fs_punchhole() fail with a positive
 *     errno.
 *   - NULL, or a structure that no call of this library filled in, gives -EINVAL where it can be
 *     noticed, and void calls then do nothing.
 *   - The caller allocates the structures, the library fills them in.  They may be copied.
 *   - A mount point is a path of less than 256 bytes, as hf3fs_extract_mount_point() gives it.
 *   - Any thread may make any call at any time, but: of one ring, one thread at a time prepares,
 *     and one thread at a time waits; these may be two.
 *   - After fork() a ring belongs to one of the two processes.  On a plain directory it stays the
 *     parent's: the child gets -EOWNERDEAD.  exec() inherits nothing.
 *   - HF3FS_USRBIO_LIB_LOG in the environment (ERROR, WARN, INFO, DBG; OFF) says what is printed
 *     to standard error, WARN without it.  It is ignored in set-uid programs.
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

struct timespec; /* <time.h> of a strict C99 has none */

#define HF3FS_SUPER_MAGIC 0x8f3f5fff

/* Flags of a ring. */
#define HF3FS_IOR_ALLOW_READ_UNCOMMITTED 1 /* of no meaning on a plain directory */
#define HF3FS_IOR_FORBID_READ_HOLES 2      /* a hole before data gives -ENODATA, not zeros */

typedef void *hf3fs_iov_handle;
typedef void *hf3fs_ior_handle;

/* Shared memory that requests read into and write from: 312 bytes. */
struct hf3fs_iov {
	uint8_t *base;         /* its first byte; for device memory never to be dereferenced */
	hf3fs_iov_handle iovh; /* the library's; NULL when there is none, or none any more */
	char id[16];           /* its UUID */
	char mount_point[256];
	size_t size;       /* bytes */
	size_t block_size; /* no request may cross a multiple of it; 0: no such rule */
	int numa;          /* node that its pages are bound to; below 0: none */
};

/* A ring: 600 bytes. */
struct hf3fs_ior {
	struct hf3fs_iov iov;  /* the ring's own shared memory */
	hf3fs_ior_handle iorh; /* the library's */
	char mount_point[256];
	bool for_read;  /* its requests read, else they write */
	int io_depth;   /* as given when it was made */
	int priority;   /* below 0 high, 0 normal, above 0 low */
	int timeout;    /* milliseconds */
	uint64_t flags; /* HF3FS_IOR_* */
};

/* A completion: 24 bytes. */
struct hf3fs_cqe {
	int32_t index;        /* what hf3fs_prep_io() returned */
	int32_t reserved;     /* 0 */
	int64_t result;       /* bytes moved, or -errno */
	const void *userdata; /* as given to hf3fs_prep_io() */
};

/* ------------------------------------------------------------ mount points */

/**
 * hf3fs_is_hf3fs() - is this an open file or directory of a mount that usrbio serves?
 * @fd: any descriptor
 *
 * Return: true on a 3FS mount and beneath a plain directory.
 */
HF3FS_API bool hf3fs_is_hf3fs(int fd);

/**
 * hf3fs_extract_mount_point() - the mount point that a path lies beneath
 * @hf3fs_mount_point: receives it with its terminating 0, if that fits
 * @size:              bytes at @hf3fs_mount_point
 * @path:              of a file or directory that exists
 *
 * The deepest one counts.  Mounts of type fuse.hf3fs are looked at, of any type where
 * HF3FS_USRBIO_DONT_CHECKFS_FOR_MP is "yes", and plain directories.
 *
 * Return: length of the mount point and its terminating 0, which may be more than @size:
 * nothing is copied then; -1 when there is none, with errno saying why.
 */
HF3FS_API int hf3fs_extract_mount_point(char *hf3fs_mount_point, int size, const char *path);

/* ----------------------------------------------------------- shared memory */

/**
 * hf3fs_iovcreate() - allocate shared memory and publish it
 * @iov:               filled in on success
 * @hf3fs_mount_point: where it is published
 * @size:              bytes, at least 1
 * @block_size:        see struct hf3fs_iov; at most @size
 * @numa:              node to bind it to; below 0: none
 *
 * The memory is there when the call returns: writing to it never raises SIGBUS.  It is page
 * aligned.
 *
 * Return: 0; -EINVAL for a size of 0, @block_size above @size, or a mount point that is too
 * long; -ENOENT when @hf3fs_mount_point is none; -ENOSPC, -ENOMEM when shared memory is
 * exhausted; -EACCES, -EPERM, -EMFILE and what symlink(2) says else; -EIO.
 */
HF3FS_API int hf3fs_iovcreate(struct hf3fs_iov *iov, const char *hf3fs_mount_point, size_t size,
			      size_t block_size, int numa);

/**
 * hf3fs_iovopen() - attach to shared memory that another process published
 * @iov:               filled in on success
 * @id:                its UUID
 * @hf3fs_mount_point: where it is published
 * @size:              bytes to map, at most what there is
 * @block_size:        as its creator gave it
 * @numa:              kept and not applied
 *
 * hf3fs_iovdestroy() of it detaches; the publication stays its creator's.
 *
 * Return: 0; -ENOENT when there is no such publication; -EPERM when it is another user's;
 * -EINVAL when it is not shared memory, or smaller than @size; -EIO.
 */
HF3FS_API int hf3fs_iovopen(struct hf3fs_iov *iov, const uint8_t id[16],
			    const char *hf3fs_mount_point, size_t size, size_t block_size,
			    int numa);

/**
 * hf3fs_iovwrap() - use memory that the caller mapped and publishes itself
 * @iov:               filled in on success
 * @base:              first byte
 * @id:                UUID under which it is, or will be, published
 * @hf3fs_mount_point: where
 * @size:              bytes, at least 1
 * @block_size:        see struct hf3fs_iov; at most @size
 * @numa:              node to bind it to; below 0: none
 *
 * Pure bookkeeping: publication and memory are not looked at, and stay the caller's; only, on a
 * plain directory, requests heed @block_size if the memory is published with it.  Wrapping other
 * memory under the same UUID replaces the former memory there.  The same again costs nothing and
 * has the same handle, which goes with the last hf3fs_iovdestroy().
 *
 * Return: 0; -EINVAL for an argument out of range; -ENOENT when @hf3fs_mount_point is none;
 * -EPERM when it is another user's; -ENOMEM.
 */
HF3FS_API int hf3fs_iovwrap(struct hf3fs_iov *iov, void *base, const uint8_t id[16],
			    const char *hf3fs_mount_point, size_t size, size_t block_size,
			    int numa);

/**
 * hf3fs_iovunlink() - remove the shared memory's name
 * @iov: created by this process; others are left alone
 *
 * The memory stays until the last mapping of it is gone, and its publication until
 * hf3fs_iovdestroy().
 */
HF3FS_API void hf3fs_iovunlink(struct hf3fs_iov *iov);

/**
 * hf3fs_iovdestroy() - give shared memory back
 * @iov: created, opened or wrapped; no request on it may be in flight.  Its iovh is NULL
 *       afterwards, and a second call does nothing.
 *
 * Removes the publication and the mapping if this process made them, and nothing else.
 */
HF3FS_API void hf3fs_iovdestroy(struct hf3fs_iov *iov);

/* ------------------------------------------------------------------- rings */

/**
 * hf3fs_ior_size() - bytes of shared memory that a ring needs
 * @entries: requests in flight
 *
 * Return: bytes; 0 when @entries is not positive.
 */
HF3FS_API size_t hf3fs_ior_size(int entries);

/**
 * hf3fs_iorcreate() - make a ring
 * @ior:               filled in on success
 * @hf3fs_mount_point: whose files it serves
 * @entries:           requests in flight, at least 1
 * @for_read:          it reads, else it writes
 * @io_depth:          above 0: requests are started in batches of exactly so many, and wait until
 *                     there are; 0: as they come; below 0: in batches of at most -@io_depth
 * @numa:              node to bind its memory to; below 0: none
 *
 * Return: 0; -EINVAL for an argument out of range; otherwise as hf3fs_iovcreate(), and what
 * reading the daemon's semaphore links says.  A ring that was not made leaves nothing behind.
 */
HF3FS_API int hf3fs_iorcreate(struct hf3fs_ior *ior, const char *hf3fs_mount_point, int entries,
			      bool for_read, int io_depth, int numa);

/**
 * hf3fs_iorcreate2() - as hf3fs_iorcreate(), with a priority
 * @priority: below 0 high, 0 normal, above 0 low
 */
HF3FS_API int hf3fs_iorcreate2(struct hf3fs_ior *ior, const char *hf3fs_mount_point, int entries,
			       bool for_read, int io_depth, int priority, int numa);

/**
 * hf3fs_iorcreate3() - as hf3fs_iorcreate2(), with a timeout
 * @timeout: milliseconds that a batch which is not full waits, where @io_depth is below 0;
 *           0: it does not
 */
HF3FS_API int hf3fs_iorcreate3(struct hf3fs_ior *ior, const char *hf3fs_mount_point, int entries,
			       bool for_read, int io_depth, int priority, int timeout, int numa);

/**
 * hf3fs_iorcreate4() - as hf3fs_iorcreate3(), with flags and of normal priority
 * @flags: HF3FS_IOR_*; others are refused with -EINVAL
 */
HF3FS_API int hf3fs_iorcreate4(struct hf3fs_ior *ior, const char *hf3fs_mount_point, int entries,
			       bool for_read, int io_depth, int timeout, int numa, uint64_t flags);

/**
 * hf3fs_iorwrap() - make a ring in memory that the caller published as one
 * @ior:      filled in on success
 * @buf:      its memory, zeroed and mapped shared, aligned to 8 bytes
 * @size:     bytes, as hf3fs_ior_size() says
 *
 * The others are as in hf3fs_iorcreate3() and _4().  3FS names this call in its header and does
 * not export it for C.
 *
 * Return: as hf3fs_iorcreate().
 */
HF3FS_API int hf3fs_iorwrap(struct hf3fs_ior *ior, void *buf, const char *hf3fs_mount_point,
			    size_t size, bool for_read, int io_depth, int priority, int timeout,
			    uint64_t flags);

/**
 * hf3fs_iordestroy() - end a ring
 * @ior: its iorh is NULL afterwards, and a second call does nothing
 *
 * On a plain directory, requests in flight are cancelled, and do not touch their memory
 * when the call returns.  With a daemon, reap them first.
 */
HF3FS_API void hf3fs_iordestroy(struct hf3fs_ior *ior);

/* ------------------------------------------------------------------- files */

/**
 * hf3fs_reg_fd() - let rings use an open file
 * @fd:    open on the mount; its access mode now is what rings may do
 * @flags: not looked at
 *
 * The file stays usable until hf3fs_dereg_fd(), also when @fd was closed.
 *
 * Return: -h, not positive, where both @fd and h name the file in hf3fs_prep_io(), and h is a
 * descriptor of the library's; EBADF when @fd is not open or not on a mount that usrbio
 * serves; EINVAL when this open file is registered already by this number; EMFILE and what dup(2)
 * and statx(2) say else; on a plain directory ENXIO for what is no regular file, and EINVAL for
 * one that was opened with O_APPEND.
 */
HF3FS_API int hf3fs_reg_fd(int fd, uint64_t flags);

/**
 * hf3fs_dereg_fd() - end a registration
 * @fd: the descriptor that was registered, closed or not, or the handle that hf3fs_reg_fd()
 *      returned
 *
 * Requests that were prepared before end as they would have.
 */
HF3FS_API void hf3fs_dereg_fd(int fd);

/* ---------------------------------------------------------------- requests */

/**
 * hf3fs_io_entries() - requests that a ring takes
 * @ior: the ring
 *
 * Return: the number; 0 for none.
 */
HF3FS_API int hf3fs_io_entries(const struct hf3fs_ior *ior);

/**
 * hf3fs_prep_io() - put a request into a ring
 * @ior:      the ring
 * @iov:      shared memory of any origin
 * @read:     must be the ring's direction
 * @ptr:      first byte, within @iov
 * @fd:       a registered descriptor, or the handle that hf3fs_reg_fd() returned
 * @off:      in the file, bytes
 * @len:      bytes, at least 1
 * @userdata: comes back in the completion
 *
 * Never blocks.  The request may start before hf3fs_submit_ios().
 *
 * Return: the request's index, which its completion carries; -EAGAIN when the ring is full:
 * reap first; -EINVAL for a wrong direction, length 0, a range outside @iov, or one that reaches
 * beyond what an off_t can say; -EBADF for a file that is not registered, or on the other kind of
 * mount; -EACCES when it was not opened for the direction; -ENOTCONN when the ring's daemon is
 * gone.
 */
HF3FS_API int hf3fs_prep_io(const struct hf3fs_ior *ior, const struct hf3fs_iov *iov, bool read,
			    void *ptr, int fd, size_t off, uint64_t len, const void *userdata);

/**
 * hf3fs_submit_ios() - have prepared requests started
 * @ior: the ring
 *
 * Never blocks; any thread, and signal handlers.
 *
 * Return: 0 or -EINVAL.
 */
HF3FS_API int hf3fs_submit_ios(const struct hf3fs_ior *ior);

/**
 * hf3fs_wait_for_ios() - take completions
 * @ior:         the ring
 * @cqes:        room for @cqec completions
 * @cqec:        at least 1
 * @min_results: wait until there are so many; more than @cqec means @cqec; below 1 only looks
 * @abs_timeout: when to stop waiting, CLOCK_REALTIME; NULL: never
 *
 * The call takes completions that are there before it looks at the time, so that a time in the
 * past makes it not wait.  Signals do not end it.  A daemon that is gone is noticed within 200 ms
 * without a completion: the ring's requests complete with -EREMOTEIO then, and no call waits.
 *
 * Return: how many were taken, 0 when it was too late for any; -EINVAL.
 */
HF3FS_API int hf3fs_wait_for_ios(const struct hf3fs_ior *ior, struct hf3fs_cqe *cqes, int cqec,
				 int min_results, const struct timespec *abs_timeout);

/* ------------------------------------------------------------ other things */

/**
 * hf3fs_hardlink() - give a file another name on the same mount
 * @target:    existing file
 * @link_name: new name, the last part at most 254 bytes
 *
 * Return: 0 or a positive errno: EINVAL when @link_name does not end in a name, EXDEV when it is on
 * another mount, ENOTTY when usrbio does not serve @target, and what the system says else.
 */
HF3FS_API int hf3fs_hardlink(const char *target, const char *link_name);

/**
 * hf3fs_punchhole() - free ranges of a file
 * @fd:    open for writing
 * @n:     ranges, 1 to 1000
 * @start: first byte of each
 * @end:   first byte behind each
 * @flags: not looked at
 *
 * On 3FS each must be a multiple of the file's chunk size.
 *
 * Return: 0 or a positive errno: EINVAL for ranges that are none, of which then none is freed;
 * EBADF when @fd is not open for writing; ENOTTY when usrbio does not serve it, and what the
 * system says else.
 */
HF3FS_API int hf3fs_punchhole(int fd, int n, const size_t *start, const size_t *end, size_t flags);

/* ----------------------------------------------------------- device memory */

enum hf3fs_mem_type {
	HF3FS_MEM_HOST = 0,
	HF3FS_MEM_DEVICE = 1,
	HF3FS_MEM_MANAGED = 2, /* never the answer: managed memory is refused */
};

/*
 * Device memory as an iov.  Device numbers are CUDA's, as CUDA_VISIBLE_DEVICES leaves them; with
 * PST_USRBIO_DEVICE=soft in the environment, which set-uid programs do not look at, they are
 * libpenstock's software devices.  There is no fallback to host memory.  Everything that takes a
 * struct hf3fs_iov takes one of these; the calling thread's current device stays as it was.  On a
 * plain directory the memory stays in the process.
 */

/**
 * hf3fs_gdr_available() - can rings move data to and from device memory here?
 */
HF3FS_API bool hf3fs_gdr_available(void);

/**
 * hf3fs_gdr_device_count() - devices that can be named; 0 when there are none
 */
HF3FS_API int hf3fs_gdr_device_count(void);

/**
 * hf3fs_iovcreate_device() - allocate device memory and publish it
 * @iov:               filled in on success
 * @hf3fs_mount_point: where
 * @size:              bytes, at least 1
 * @block_size:        0
 * @device_id:         CUDA's number of the device
 *
 * Return: 0; -EINVAL for an argument out of range; -ENOTSUP without CUDA; -ENODEV when there is
 * no such device; -ENOMEM; and what publishing says, as in hf3fs_iovcreate().
 */
HF3FS_API int hf3fs_iovcreate_device(struct hf3fs_iov *iov, const char *hf3fs_mount_point,
				     size_t size, size_t block_size, int device_id);

/**
 * hf3fs_iovopen_device() - use device memory that another process published
 * @id: its UUID
 *
 * Return: as hf3fs_iovcreate_device(), and -ENOENT when there is no such publication, -EINVAL
 * when it names another device or size.  Plain directories carry none.
 */
HF3FS_API int hf3fs_iovopen_device(struct hf3fs_iov *iov, const uint8_t id[16],
				   const char *hf3fs_mount_point, size_t size, size_t block_size,
				   int device_id);

/**
 * hf3fs_iovwrap_device() - publish device memory that the caller allocated
 * @device_ptr: may lie inside an allocation; memory and allocation stay the caller's
 * @id:         UUID to publish it under
 *
 * Return: as hf3fs_iovcreate_device(), and -EINVAL when the range is not memory of that device,
 * -EEXIST for a UUID that is in use.
 */
HF3FS_API int hf3fs_iovwrap_device(struct hf3fs_iov *iov, void *device_ptr, const uint8_t id[16],
				   const char *hf3fs_mount_point, size_t size, size_t block_size,
				   int device_id);

/**
 * hf3fs_iov_mem_type() - what kind of memory an iov is
 */
HF3FS_API enum hf3fs_mem_type hf3fs_iov_mem_type(const struct hf3fs_iov *iov);

/**
 * hf3fs_iov_device_id() - the device of an iov; -1 for host memory
 */
HF3FS_API int hf3fs_iov_device_id(const struct hf3fs_iov *iov);

/**
 * hf3fs_iovsync() - order device work with requests
 * @iov:       the memory; on host memory the call does nothing
 * @direction: 0 before requests that write what device work made; 1 after completions of reads
 *
 * Waits for all work that was given to the device, by whichever thread and on whichever stream.
 *
 * Return: 0; -EINVAL; -EBUSY while a stream is captured into a graph, which CUDA spoils by that;
 * -EIO when the device failed.
 */
HF3FS_API int hf3fs_iovsync(const struct hf3fs_iov *iov, int direction);

#ifdef __cplusplus
}
#endif
#endif
