/* SPDX-License-Identifier: MIT */
/* Remove a directory with everything in it, within one request. */
#ifndef MOUNT_RMTREE_H
#define MOUNT_RMTREE_H

#include "usrbio/mount/fs.h"

/*
 * Begin a call that removes or moves.  Such calls take long, and wait for directories that other
 * operations have locked, so their number is limited for each user, and some threads stay free.
 * Return 0, and later call remover_end(); or -EBUSY.
 */
int remover_begin(struct fs *fs, uid_t uid);
void remover_end(struct fs *fs, uid_t uid);

/*
 * Remove the file, link or directory that an absolute path beneath the mount names.  The thread has
 * the caller's rights.  No link is followed, and no other file system is entered.
 *
 * Return: 0; -EINVAL for a path that is not beneath the mount, or is the mount point; -EPERM in the
 * virtual tree; -EXDEV for another file system; -ELOOP for a link inside the path, or for
 * directories nested too deep; -EMFILE if the user has used up the share of descriptors; -EINTR;
 * errors of unlink(2) and rmdir(2). After an error a part of the tree may be removed.
 */
int rmtree(fuse_req_t req, const char *path);

/*
 * Remove an entry of a directory, whose descriptor may be O_PATH.  Without @tree only a file or an
 * empty directory is removed.
 */
int rmtree_at(fuse_req_t req, int dir, const char *name, bool tree);

/* Remove an open directory under its current name.  Return -EPERM for the root of the mount. */
int rmtree_node(fuse_req_t req, const struct node *n);

/* Make the kernel forget a name in a directory, because the name was removed or refers to another
 * file now. */
void rmtree_forget(struct fs *fs, int dir, const char *name);

#endif
