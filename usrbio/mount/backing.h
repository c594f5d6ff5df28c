/* SPDX-License-Identifier: MIT */
/*
 * Passthrough: the kernel itself reads, writes and maps an open file of the source (Linux 6.9).
 *
 * The mount then has no page cache, so changes of the source are visible at once.  Only root's
 * server may ask for passthrough.  All open files of an inode must use the same path, so the first
 * open decides.  Without passthrough, bytes go through the server and the kernel's page cache of
 * the mount.
 */
#ifndef MOUNT_BACKING_H
#define MOUNT_BACKING_H

#include <linux/fuse.h>

#include "usrbio/mount/fs.h"

/* Fill in the answer to the kernel for a regular file that was opened as fd. */
void backing_open(struct fs *fs, struct node *n, int fd, struct fuse_open_out *ret);

/* Call this when an open file ends, before closing fd. */
void backing_close(struct fs *fs, struct node *n, int fd);

/* End the node's passthrough because its descriptor is about to be closed (a node_drop).  arg is
 * the struct fs. */
void backing_drop(void *arg, struct node *n);

#endif
