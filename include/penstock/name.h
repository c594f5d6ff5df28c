/* SPDX-License-Identifier: MIT */
/* Look up, list and change files by name, without opening them; manual page: pst_name(3). */
#ifndef PENSTOCK_NAME_H
#define PENSTOCK_NAME_H

#include <penstock/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of things that a name refers to. */
enum pst_name_kind {
	PST_NAME_FILE = 1,  /* a regular file, or an object */
	PST_NAME_DIR = 2,   /* a directory; in an object store: a common prefix of keys */
	PST_NAME_OTHER = 3, /* a device, FIFO or socket; in a list also a symbolic link */
};

/* Bits of pst_name_info.has: the members that are valid. */
#define PST_NAME_HAS_SIZE (1u << 0)
#define PST_NAME_HAS_MTIME (1u << 1)

struct pst_name_info {
	size_t sz;        /* sizeof(struct pst_name_info) */
	uint32_t kind;    /* enum pst_name_kind */
	uint32_t has;     /* PST_NAME_HAS_* */
	uint64_t size;    /* bytes of a file */
	int64_t mtime_ns; /* last change, nanoseconds since 1970 */
};

/**
 * typedef pst_name_fn - take one entry of a list
 * @arg:  as passed to pst_name_list()
 * @name: the entry's name in the directory, valid until the function returns
 * @info: facts about it, valid until the function returns; @info->has tells which members
 *
 * Runs on the thread that called pst_name_list(), and may call the library.
 *
 * Return: 0 to continue; any other number ends the list.
 */
typedef int (*pst_name_fn)(void *arg, const char *name, const struct pst_name_info *info);

/* Get size and time of every file, even if that costs a request for each.  A symbolic link to a
 * file is listed as that file. */
#define PST_NAME_FACTS (1u << 0)
/* List the files of the whole tree, with slashes in their names, but no directories.
 * Symbolic links to directories are not followed. */
#define PST_NAME_TREE (1u << 1)

/**
 * pst_name_stat() - get what a name refers to
 * @name: a name for pst_file_open(), a directory, or the root of a service
 * @ret:  filled in
 *
 * Follows symbolic links.  Any thread; waits no longer than pst_file_open().
 *
 * Return: 0; -ENOENT, -EACCES and other errors of stat(2); -EINVAL for a bad sz; -EOPNOTSUPP if
 * names of this kind do not support this call; -EPROTONOSUPPORT as pst_file_open().
 */
PST_API int pst_name_stat(const char *name, struct pst_name_info *ret);

/**
 * pst_name_list() - list a directory
 * @name:  a directory, or the root of a service: scheme://SERVER/
 * @flags: PST_NAME_FACTS, PST_NAME_TREE
 * @fn:    called for each entry except "." and "..", in any order
 * @arg:   passed to @fn
 *
 * An entry that exists during the whole call is listed once.  Names are bytes, and may have every
 * character except NUL.
 *
 * Return: 0; the result of @fn if it was not 0; -ENOTDIR for a file; -ELOOP for a tree of more
 * than 128 levels; the errors of pst_name_stat().
 */
PST_API int pst_name_list(const char *name, uint32_t flags, pst_name_fn fn, void *arg);

/**
 * pst_name_unlink() - remove a file
 * @name: a file; not a directory
 *
 * A process that has a local file open can still read it; reads of a file in a service fail with
 * -ESTALE or -ENOENT.
 *
 * Return: 0; -EISDIR for a directory; -EROFS if the service is read-only; the errors of
 * pst_name_stat().  After -ETIMEDOUT, -ECONNRESET or -EIO it is not known whether the file
 * still exists.
 */
PST_API int pst_name_unlink(const char *name);

/**
 * pst_name_rename() - rename a file
 * @name: a file
 * @to:   the new name, in the same service; a file with that name is replaced atomically
 *
 * Return: 0; -EXDEV if the two names are not in one service or file system; -EOPNOTSUPP if the
 * service cannot rename atomically, such as object stores; the errors of pst_name_unlink().
 */
PST_API int pst_name_rename(const char *name, const char *to);

/**
 * pst_name_truncate() - set the size of a file
 * @name: a file
 * @size: bytes, at most 2^63 - 1; new bytes are 0
 *
 * Return: 0; -EFBIG; -EOPNOTSUPP if files are written only as a whole; the errors of
 * pst_name_unlink().
 */
PST_API int pst_name_truncate(const char *name, uint64_t size);

#ifdef __cplusplus
}
#endif
#endif
