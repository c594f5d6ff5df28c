/* SPDX-License-Identifier: MIT */
/* Removing a directory with everything in it, at once. */
#ifndef MOUNT_RMTREE_H
#define MOUNT_RMTREE_H

#include "usrbio/mount/fs.h"

/*
 * A call that removes or moves begins.  Such calls take long, and wait for locks of directories
 * that others' operations hold, so a user has a few of them under way, and some threads are left.
 * 0, and then remover_end(); -EBUSY.
 */
int remover_begin(struct fs *fs, uid_t uid);
void remover_end(struct fs *fs, uid_t uid);

/*
 * Remove the file, link or directory that an absolute path beneath the mount names.  The thread has
 * the caller's rights.  No link is followed, and no other file system is entered.
 *
 * Return: 0; -EINVAL for a path that is not beneath the mount, or names it itself; -EPERM in the
 * virtual tree; -EXDEV for another file system; -ELOOP for a link on the way, or directories
 * nested too deep; -EMFILE when the user has his share of descriptors; -EINTR; what unlink(2) and
 * rmdir(2) say: then a part of it may be gone.
 */
int rmtree(fuse_req_t req, const char *path);

/*
 * Remove an entry of a directory, whose descriptor may be O_PATH.  Without @tree only a file or an
 * empty directory is removed.
 */
int rmtree_at(fuse_req_t req, int dir, const char *name, bool tree);

/* Remove an open directory, wherever it lies by now.  -EPERM for the root of the mount. */
int rmtree_node(fuse_req_t req, const struct node *n);

/* The kernel forgets a name in a directory: it is another one's, or nobody's. */
void rmtree_forget(struct fs *fs, int dir, const char *name);

#endif
