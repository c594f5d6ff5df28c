/* SPDX-License-Identifier: MIT */
/* Open regular files. */
#ifndef MOUNT_FILE_H
#define MOUNT_FILE_H

#include <linux/fuse.h>
#include <pthread.h>

#include "usrbio/mount/caller.h"
#include "usrbio/mount/fs.h"

struct broker_file;

/* An open file; the kernel's file handle points to it. */
struct open_file {
	struct list link;          /* on fs->files */
	int fd;                    /* descriptor in the source */
	uid_t uid;                 /* user who is charged for the descriptor */
	struct broker_file *rings; /* users whose rings may name it; under lock */
	pthread_mutex_t lock;      /* protects rings */
};

static inline struct open_file *file_of(const struct fuse_file_info *fi)
{
	return (struct open_file *)(uintptr_t)fi->fh;
}

/* Let rings of that user name the file.  Call broker_tell() next, to tell the user's worker. */
int file_announce(struct fs *fs, uid_t uid, const struct node *n, struct open_file *f);
/* source_ops.announce() and sync() of files with descriptors. */
int file_announce_plain(struct fs *fs, uid_t uid, struct node *n, const struct fuse_file_info *fi);
int file_sync_plain(struct fs *fs, struct node *n, const struct fuse_file_info *fi, bool data);

/*
 * Open a regular file again with these flags of open(2).  Return the descriptor; -EWOULDBLOCK while
 * another process has a lease, even without O_NONBLOCK: this function never waits for it; -errno.
 */
int file_open(struct fs *fs, struct node *n, int flags);

struct new_file {
	struct caller caller;
	const char *name; /* name in the directory; "." for O_TMPFILE */
	int flags, how;   /* flags: open flags of the caller; how: O_CREAT, O_EXCL, O_TMPFILE */
	mode_t mode;
};

/* The answer to FUSE_CREATE, in the kernel's layout. */
struct file_created {
	struct fuse_entry_out entry;
	struct fuse_open_out open;
};

_Static_assert(sizeof(struct file_created) ==
		       sizeof(struct fuse_entry_out) + sizeof(struct fuse_open_out),
	       "FUSE: answer to create");

/* Create a file.  Return 0 or -errno.  Call broker_tell() after answering the kernel. */
int file_create(struct fs *fs, struct node *dir, const struct new_file *f,
		struct file_created *ret);
/* source_ops.create() and created() of a directory. */
int file_create_plain(struct fs *fs, const struct node *dir, const struct new_file *f);
int file_created_plain(struct fs *fs, int fd, struct node *dir, const char *name,
		       struct fuse_entry_param *ret);

/* Undo file_create(), because the answer did not reach the kernel. */
void file_uncreate(struct fs *fs, const struct file_created *c);

#endif
