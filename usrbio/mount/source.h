/* SPDX-License-Identifier: MIT */
/*
 * The kinds of sources of a mount: a directory, a set of tiers (set.h), a directory of a storage
 * service (service.h).
 *
 * What differs between them is in this table.  The files of the operations (names.c, attr.c,
 * dir.c, file.c) know no kind by name.  Members that are marked may be NULL.
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
	uint64_t number; /* on the mount */
	mode_t type;
};

struct source_ops {
	/* Return true if a name given as --source is of this kind. */
	bool (*owns)(const char *name);
	bool has_links;  /* can have hard links, symbolic links, devices and pipes */
	bool has_fds;    /* a node has a descriptor of the source */
	bool can_be_ro;  /* serves a mount with ro */
	bool only_cache; /* the kernel cannot pass its bytes on by itself */

	/*
	 * Open the source of fs->opts.  *ret_root_fd: an O_PATH descriptor of its root, or -1 and
	 * *ret_root: the attributes of the root.  Return 0 or -errno; kinds other than directories
	 * print a sentence first.
	 */
	int (*open)(struct fs *fs, int *ret_root_fd, struct stat *ret_root);
	/* There are nodes now.  NULL: nothing to do. */
	void (*begin)(struct fs *fs);
	/* The mount ends: calls that wait for the source return soon.  NULL: none waits. */
	void (*stop)(struct fs *fs);
	/* Close what the kernel still has open, after its last request. */
	void (*close_files)(struct fs *fs);
	void (*close)(struct fs *fs); /* or NULL */

	/* An operation on the node begins, which is held.  NULL: nothing to do. */
	void (*refresh)(struct fs *fs, struct node *n);

	int (*stat)(struct fs *fs, struct node *n, struct stat *ret);
	/* As fs_lookup(). */
	int (*lookup)(struct fs *fs, struct node *dir, const char *name,
		      struct fuse_entry_param *ret);
	int (*remove)(struct fs *fs, struct node *dir, const char *name, int flags);
	int (*rename)(struct fs *fs, struct node *dir, const char *name, struct node *to,
		      const char *to_name, unsigned flags);
	/* Return all entries of a directory, to be freed.  NULL: those of the descriptor. */
	int (*list)(struct fs *fs, struct node *dir, struct source_entry **ret, size_t *ret_nr);
	int (*statfs)(struct fs *fs, const struct node *n, struct statvfs *ret);

	/* For sources with descriptors: as file_open(). */
	int (*open_file)(struct fs *fs, struct node *n, int flags);
	/* openat(2) of file_create(), and the entry of what it made. */
	int (*create)(struct fs *fs, const struct node *dir, const struct new_file *f);
	int (*created)(struct fs *fs, int fd, struct node *dir, const char *name,
		       struct fuse_entry_param *ret);
	/* Keep a file as it is while its attributes change, until the descriptor that is returned
	 * is closed; or NULL. */
	int (*hold)(struct fs *fs, struct node *n);
	/* Owner and mode of a directory have changed; or NULL. */
	void (*dir_changed)(struct fs *fs, const struct node *n);

	/* A ring writes to a file, or has written to it (ends); or NULL. */
	void (*written)(struct fs *fs, struct node *n, bool ends);

	/* Let rings of that user use an open file.  Call broker_tell() next. */
	int (*announce)(struct fs *fs, uid_t uid, struct node *n, const struct fuse_file_info *fi);
	/* Make the file durable, as fsync(2). */
	int (*sync)(struct fs *fs, struct node *n, const struct fuse_file_info *fi, bool data);

	/* Replace operations of the kernel; or NULL. */
	void (*replace)(struct fuse_lowlevel_ops *ops);
};

extern const struct source_ops source_dir, source_set, source_service;

/* The kind of a source, by its name. */
const struct source_ops *source_of(const char *name);

#endif
