/* SPDX-License-Identifier: MIT */
/*
 * Passthrough: the kernel reads, writes and maps an open file of the source by itself (FUSE
 * passthrough, Linux 6.9).
 *
 * Then the mount has no page cache of its own: what anybody writes to the source is visible at
 * once.  Only root may ask for passthrough.  All open files of an inode must use the same way, so
 * the first one decides.  If the kernel cannot pass bytes on, they go through the server and the
 * kernel's cache of the mount.
 */
#ifndef MOUNT_BACKING_H
#define MOUNT_BACKING_H

#include <linux/fuse.h>

#include "usrbio/mount/fs.h"

/* Fill in what the kernel must know of a regular file that was opened by that descriptor. */
void backing_open(struct fs *fs, struct node *n, int fd, struct fuse_open_out *ret);

/* Call when an open file ends, before fd is closed. */
void backing_close(struct fs *fs, struct node *n, int fd);

/* The node's descriptor is about to be closed (node_drop); arg is the struct fs. */
void backing_drop(void *arg, struct node *n);

#endif
