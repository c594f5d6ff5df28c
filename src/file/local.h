/* SPDX-License-Identifier: MIT */
/*
 * Local files have a path and a descriptor.  The built-in provider (local.c) opens them.  The
 * system's back ends, uring and threads, accept only files of this provider.
 *
 * cuFile and the page cache path need a descriptor, and get it here.  All other code uses file.h.
 */
#ifndef PST_FILE_LOCAL_H
#define PST_FILE_LOCAL_H

#include "file/file.h"
#include "file/io.h"

/* After open, only the members cufile and forget change. */
struct local_file {
	struct file file;
	int fd;            /* descriptor without O_DIRECT; always open */
	int fd_direct;     /* the same file with O_DIRECT, or -1 */
	uint32_t idx;      /* index in I/O contexts' tables: 2 * idx is fd, 2 * idx + 1 fd_direct */
	uint32_t gen;      /* generation of this use of idx */
	uint32_t fs_magic; /* f_type of statfs(2) */
	bool block_device;
	uint64_t fs_id; /* f_fsid of statfs(2); 0 for a block device */
	dev_t dev;      /* device number of the file system, or of the block device itself */
	ino_t ino;
	struct cufile_file *cufile;           /* owned by gds/cufile/file.c, under its lock */
	void (*forget)(struct local_file *f); /* called before the file is closed; may be NULL */
};

/* Return the local file that contains f; f must be one. */
static inline struct local_file *local_of(const struct file *f)
{
	return container_of((struct file *)f, struct local_file, file);
}

/* Return the local file, or NULL for a file of another provider. */
static inline struct local_file *file_local(const struct file *f)
{
	return f->ops == &local_file_ops ? local_of(f) : NULL;
}

static inline int io_op_fd(const struct io_op *op)
{
	const struct local_file *f = local_of(op->file);

	return op->flags & IO_OP_DIRECT ? f->fd_direct : f->fd;
}

/* Create a file from a descriptor, which is duplicated.  flags: PST_FILE_STABLE and
 * PST_FILE_PLAIN. */
int local_file_wrap(int fd, uint32_t flags, struct file **ret);

/* Return a new descriptor of the file for reading, or -1. */
int local_file_reopen(const struct local_file *f);

/* Return true if the file has fewer blocks than its size needs.  Does not block. */
bool local_file_has_holes(const struct local_file *f);

/* Members of local.c's table, defined in peek.c and resident.c. */
int64_t local_file_peek(const struct file *f, void *buf, uint64_t off, uint64_t len);
int local_file_resident(const struct file *f, uint64_t off, uint64_t len);
bool local_file_ends_at(const struct file *f, uint64_t off);

#endif
