/* SPDX-License-Identifier: MIT */
/* Open regular files. */
#ifndef MOUNT_FILE_H
#define MOUNT_FILE_H

#include <linux/fuse.h>
#include <pthread.h>

#include "usrbio/mount/caller.h"
#include "usrbio/mount/fs.h"

struct broker_file;

/* The kernel's handle of an open file leads to this. */
struct open_file {
	struct list link;          /* fs->files */
	int fd;                    /* of the source */
	uid_t uid;                 /* in whose share of descriptors it is */
	struct broker_file *rings; /* whose may use it */
	pthread_mutex_t lock;      /* of that */
};

static inline struct open_file *file_of(const struct fuse_file_info *fi)
{
	return (struct open_file *)(uintptr_t)fi->fh;
}

/* Rings of that user may use it, once his worker knows: broker_tell(). */
int file_announce(struct fs *fs, uid_t uid, const struct node *n, struct open_file *f);

/*
 * Open a regular file anew with these flags of open(2).  The descriptor; -EWOULDBLOCK while
 * somebody has a lease on it, also without O_NONBLOCK: nobody waits for him here; -errno.
 */
int file_open(const struct fs *fs, const struct node *n, int flags);

struct new_file {
	struct caller caller;
	const char *name; /* in its directory; of one without a name "." */
	int flags, how;   /* of open(2): the caller's, and O_CREAT, O_EXCL, O_TMPFILE */
	mode_t mode;
};

/* The answer, as the kernel takes it. */
struct file_created {
	struct fuse_entry_out entry;
	struct fuse_open_out open;
};

_Static_assert(sizeof(struct file_created) ==
		       sizeof(struct fuse_entry_out) + sizeof(struct fuse_open_out),
	       "FUSE: answer to create");

/* 0 or -errno.  When the kernel has the answer: broker_tell(). */
int file_create(struct fs *fs, const struct node *dir, const struct new_file *f,
		struct file_created *ret);

/* The kernel does not take the answer. */
void file_uncreate(struct fs *fs, const struct file_created *c);

#endif
