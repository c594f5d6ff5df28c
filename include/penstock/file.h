/* SPDX-License-Identifier: MIT */
/* Open files; manual page: pst_file(3). */
#ifndef PENSTOCK_FILE_H
#define PENSTOCK_FILE_H

#include <penstock/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PST_FILE_READ (1u << 0)   /* open for reading */
#define PST_FILE_WRITE (1u << 1)  /* open for writing */
#define PST_FILE_CREATE (1u << 2) /* create it if it is missing, mode 0666 less umask */
#define PST_FILE_EXCL (1u << 3)   /* with CREATE: fail if it exists */
#define PST_FILE_TRUNC (1u << 4)  /* empty it */
/* nobody changes it while it is open here, so that devices may read its page cache directly */
#define PST_FILE_STABLE (1u << 5)
/* never O_DIRECT; its lack is no `why' on such a file, unless a list names it */
#define PST_FILE_PLAIN (1u << 6)

struct pst_file_opts {
	size_t sz;      /* sizeof(struct pst_file_opts) */
	uint32_t mode;  /* of a created file; 0 means 0666 less umask; wrap: 0 */
	uint32_t flags; /* 0 */
};

struct pst_file_info {
	size_t sz;          /* sizeof(struct pst_file_info) */
	uint64_t size;      /* bytes now */
	uint32_t flags;     /* PST_FILE_* */
	uint32_t direct;    /* 1 when O_DIRECT is possible */
	uint32_t mem_align; /* O_DIRECT: of the memory address, bytes; 0 without */
	uint32_t off_align; /* O_DIRECT: of file offset and length, bytes; 0 without */
	uint32_t why;       /* enum pst_why: why O_DIRECT is not possible */
	int32_t detail;     /* of why */
	char fs[16];        /* file system: "ext4", "xfs", "tmpfs", "fuse", ... or hex magic */
};

/**
 * pst_file_open() - open a regular file or a block device
 * @path:     as open(2) takes it, but for names like scheme://rest, which are of services
 * @flags:    PST_FILE_*; READ, WRITE or both
 * @opts:     NULL for the defaults
 * @ret_file: the file, to be closed with pst_file_close()
 *
 * Opens the file twice where the file system takes O_DIRECT, once with and once without.
 *
 * Return: 0; -EINVAL for flags that make no sense; -E2BIG for options that this
 * version does not know; -EPROTONOSUPPORT for a scheme that nothing here opens, see pst_file(3) for
 * a path that is called so; -EISDIR, -ENXIO (a FIFO, socket or character device), -ENOENT, -EACCES,
 * -EMFILE, -ENFILE and what open(2) says else.
 */
PST_API int pst_file_open(const char *path, uint32_t flags, const struct pst_file_opts *opts,
			  struct pst_file **ret_file);

/**
 * pst_file_wrap() - use a descriptor that the caller opened
 * @fd:       a regular file or block device; it is duplicated and stays the caller's
 * @flags:    PST_FILE_STABLE and PST_FILE_PLAIN or 0; direction comes from the descriptor
 * @opts:     NULL for the defaults
 * @ret_file: the file, to be closed with pst_file_close()
 *
 * Return: 0; -EBADF; -EISDIR, -ENXIO for anything but a regular file or block device; -EINVAL
 * for a descriptor opened with O_APPEND or O_PATH; -EINVAL, -E2BIG for options; -EMFILE.
 */
PST_API int pst_file_wrap(int fd, uint32_t flags, const struct pst_file_opts *opts,
			  struct pst_file **ret_file);

/**
 * pst_file_close() - close a file
 * @file: may have requests in flight: the last of them closes it then
 *
 * Does not sync: see pst_file_sync().
 *
 * Return: NULL.
 */
PST_API struct pst_file *pst_file_close(struct pst_file *file);

/**
 * pst_file_sync() - make what was written to a file durable
 * @file: the file; any thread
 *
 * Covers every write that completed before the call, whoever wrote.  It waits for the disk
 * as fsync(2) does.
 *
 * Return: 0; what fsync(2) says, -EIO for one; -ETIMEDOUT after 300 seconds.
 */
PST_API int pst_file_sync(struct pst_file *file);

/**
 * pst_file_drain() - wait until nothing uses the file any more
 * @file:        the file; no other thread may prepare requests on it meanwhile
 * @deadline_ns: when to stop waiting; 0 only looks
 *
 * A write that completed with PST_DONE_BUSY may still change the file, and an older one may
 * overwrite a newer one.  Counts requests of every queue on this handle, prepared ones too.  Any
 * thread.
 *
 * Return: 0 when quiet, -EBUSY when a request may still use it at the deadline; -EINVAL for NULL.
 */
PST_API int pst_file_drain(struct pst_file *file, uint64_t deadline_ns);

/**
 * pst_file_info() - facts of a file
 * @file: the file
 * @ret:  filled in
 *
 * Return: 0, -EINVAL for a bad sz, or what fstat(2) says.
 */
PST_API int pst_file_info(const struct pst_file *file, struct pst_file_info *ret);

#ifdef __cplusplus
}
#endif
#endif
