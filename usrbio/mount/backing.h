/* SPDX-License-Identifier: MIT */
/*
 * The kernel reads, writes and maps an open file of the source by itself (FUSE passthrough, Linux
 * 6.9).  Then the mount has no page cache of its own: what anybody writes to the source is seen at
 * once.  It is root's to ask for that.
 *
 * All open files of an inode have to agree, so that the first one decides.  Where the kernel cannot
 * pass bytes on, they go through the server and the kernel's cache of the mount.
 */
#ifndef MOUNT_BACKING_H
#define MOUNT_BACKING_H

#include <linux/fuse.h>

#include "usrbio/mount/fs.h"

/* A regular file was opened by that descriptor.  What to tell the kernel of it. */
void backing_open(struct fs *fs, struct node *n, int fd, struct fuse_open_out *ret);

/* It is closed; the descriptor still is open. */
void backing_close(struct fs *fs, struct node *n, int fd);

/* The node's descriptor is about to be closed (node_drop); arg is the struct fs. */
void backing_drop(void *arg, struct node *n);

#endif
