/* SPDX-License-Identifier: MIT */
/* Open files; manual page: pst_file(3). */
#ifndef PENSTOCK_FILE_H
#define PENSTOCK_FILE_H

#include <penstock/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Open for reading. */
#define PST_FILE_READ (1u << 0)
/* Open for writing. */
#define PST_FILE_WRITE (1u << 1)
/* Create the file if it is missing. */
#define PST_FILE_CREATE (1u << 2)
/* With PST_FILE_CREATE: fail if the file exists. */
#define PST_FILE_EXCL (1u << 3)
/* Empty the file. */
#define PST_FILE_TRUNC (1u << 4)
/* The caller promises that no program changes the file while it is open, so devices may read its
 * page cache directly. */
#define PST_FILE_STABLE (1u << 5)
/* Never use O_DIRECT.  Completions then give no reason for its absence, unless a policy lists
 * PST_PATH_DIRECT. */
#define PST_FILE_PLAIN (1u << 6)

struct pst_file_opts {
	size_t sz;      /* sizeof(struct pst_file_opts) */
	uint32_t mode;  /* mode of a new file; 0: 0666 & ~umask; must be 0 in pst_file_wrap() */
	uint32_t flags; /* 0 */
};

struct pst_file_info {
	size_t sz;          /* sizeof(struct pst_file_info) */
	uint64_t size;      /* current size in bytes */
	uint32_t flags;     /* PST_FILE_* */
	uint32_t direct;    /* 1 if O_DIRECT is possible, else 0 */
	uint32_t mem_align; /* bytes to which O_DIRECT aligns memory addresses; 0: no O_DIRECT */
	uint32_t off_align; /* bytes to which O_DIRECT aligns offsets and lengths; 0: no O_DIRECT */
	uint32_t why;       /* enum pst_why: why O_DIRECT is not possible */
	int32_t detail;     /* meaning depends on @why: pst_why(3) */
	char fs[16];        /* file system: "ext4", "xfs", "tmpfs", ..., or its magic in hex */
};

/**
 * pst_file_open() - open a regular file or a block device
 * @path:     a path as open(2) takes it, or a URL like scheme://rest
 * @flags:    PST_FILE_READ, PST_FILE_WRITE or both, and other PST_FILE_*
 * @opts:     NULL for the defaults
 * @ret_file: the file, to be closed with pst_file_close()
 *
 * Opens the file twice if the file system supports O_DIRECT: once with and once without O_DIRECT.
 *
 * Return: 0; -EINVAL for flags that exclude each other; -E2BIG for options that this version does
 * not know; -EPROTONOSUPPORT for a scheme that no module serves (pst_file(3) says how to open a
 * path that looks like a URL); -EISDIR, -ENXIO (a FIFO, socket or character device), -ENOENT,
 * -EACCES, -EMFILE, -ENFILE and any other -errno of open(2).
 */
PST_API int pst_file_open(const char *path, uint32_t flags, const struct pst_file_opts *opts,
			  struct pst_file **ret_file);

/**
 * pst_file_wrap() - use a descriptor that the caller opened
 * @fd:       a regular file or block device; the caller still owns and closes @fd
 * @flags:    0 or PST_FILE_STABLE, PST_FILE_PLAIN; the descriptor decides the direction
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
 * @file: the file; if requests are in flight, the file closes with the last of them
 *
 * Does not sync: call pst_file_sync() first if written bytes must be durable.
 *
 * Return: NULL.
 */
PST_API struct pst_file *pst_file_close(struct pst_file *file);

/**
 * pst_file_sync() - make written bytes durable
 * @file: the file; any thread
 *
 * Covers every write that completed before the call, by any process.  Waits for the disk as
 * fsync(2) does.
 *
 * Return: 0; -EIO or another -errno of fsync(2); -ETIMEDOUT after 300 seconds.
 */
PST_API int pst_file_sync(struct pst_file *file);

/**
 * pst_file_drain() - wait until no request uses the file
 * @file:        the file; during the call no thread may prepare requests on it
 * @deadline_ns: when to stop waiting; 0 does not wait
 *
 * A write that completed with PST_DONE_BUSY may still change the file, and may overwrite a newer
 * write.  The call waits for requests of every queue on this handle, even those that are only
 * prepared.  Any thread.
 *
 * Return: 0 if no request uses the file; -EBUSY if one may still use it at the deadline; -EINVAL
 * for NULL.
 */
PST_API int pst_file_drain(struct pst_file *file, uint64_t deadline_ns);

/**
 * pst_file_info() - return facts about a file
 * @file: the file
 * @ret:  filled in
 *
 * Return: 0, -EINVAL for a bad sz, or the -errno of fstat(2).
 */
PST_API int pst_file_info(const struct pst_file *file, struct pst_file_info *ret);

#ifdef __cplusplus
}
#endif
#endif
