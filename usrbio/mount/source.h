/* SPDX-License-Identifier: MIT */
/*
 * The kinds of sources of a mount: a directory, a set of tiers (set.h), a directory of a storage
 * service (service.h).
 *
 * This table has all differences between them: names.c, attr.c, dir.c and file.c do not know kinds
 * by name.  Members may be NULL only if their comment says so.
 */
#ifndef MOUNT_SOURCE_H
#define MOUNT_SOURCE_H

#include <limits.h>
#include <sys/statvfs.h>

#include "usrbio/mount/fs.h"

struct new_file;

/* An entry of a directory. */
struct source_entry {
	char name[NAME_MAX + 1];
	uint64_t number; /* inode number on the mount */
	mode_t type;
};

struct source_ops {
	/* Return true if a name given as --source is of this kind. */
	bool (*owns)(const char *name);
	bool has_links;  /* supports hard links, symbolic links, devices and pipes */
	bool has_fds;    /* nodes have descriptors of the source */
	bool can_be_ro;  /* supports read-only mounts */
	bool only_cache; /* no passthrough: bytes always go through the kernel's cache */

	/*
	 * Open the source of fs->opts.  *ret_root_fd: an O_PATH descriptor of its root, or -1; with
	 * -1, *ret_root has the root's attributes.  Return 0 or -errno.  Kinds other than
	 * directories print the error first.
	 */
	int (*open)(struct fs *fs, int *ret_root_fd, struct stat *ret_root);
	/* Called when nodes exist.  May be NULL. */
	void (*begin)(struct fs *fs);
	/* Called when the mount ends: make calls that wait for the source return soon.  May be
	 * NULL. */
	void (*stop)(struct fs *fs);
	/* Close everything that the kernel left open, after its last request. */
	void (*close_files)(struct fs *fs);
	void (*close)(struct fs *fs); /* Close the source.  May be NULL. */

	/* Called when an operation on the node begins; the node is held.  May be NULL. */
	void (*refresh)(struct fs *fs, struct node *n);

	int (*stat)(struct fs *fs, struct node *n, struct stat *ret);
	/* Look up a name: see fs_lookup(). */
	int (*lookup)(struct fs *fs, struct node *dir, const char *name,
		      struct fuse_entry_param *ret);
	int (*remove)(struct fs *fs, struct node *dir, const char *name, int flags);
	int (*rename)(struct fs *fs, struct node *dir, const char *name, struct node *to,
		      const char *to_name, unsigned flags);
	/* List a directory; the caller frees *ret.  NULL: read the directory's descriptor. */
	int (*list)(struct fs *fs, struct node *dir, struct source_entry **ret, size_t *ret_nr);
	int (*statfs)(struct fs *fs, const struct node *n, struct statvfs *ret);

	/* Open a file: see file_open().  Only for sources with descriptors. */
	int (*open_file)(struct fs *fs, struct node *n, int flags);
	/* Create a file by openat(2), for file_create(); then fill in its entry. */
	int (*create)(struct fs *fs, const struct node *dir, const struct new_file *f);
	int (*created)(struct fs *fs, int fd, struct node *dir, const char *name,
		       struct fuse_entry_param *ret);
	/* Keep a file on its root while its attributes change, until the returned descriptor is
	 * closed.  May be NULL. */
	int (*hold)(struct fs *fs, struct node *n);
	/* Called after owner or mode of a directory changed.  May be NULL. */
	void (*dir_changed)(struct fs *fs, const struct node *n);

	/* Called before a ring writes to a file, and with ends after the write.  May be NULL. */
	void (*written)(struct fs *fs, struct node *n, bool ends);

	/* Let rings of that user name an open file.  Call broker_tell() next. */
	int (*announce)(struct fs *fs, uid_t uid, struct node *n, const struct fuse_file_info *fi);
	/* Make the file durable, as fsync(2). */
	int (*sync)(struct fs *fs, struct node *n, const struct fuse_file_info *fi, bool data);

	/* Replace some operations.  May be NULL. */
	void (*replace)(struct fuse_lowlevel_ops *ops);
};

extern const struct source_ops source_dir, source_set, source_service;

/* Return the kind of a source, by its name. */
const struct source_ops *source_of(const char *name);

#endif
