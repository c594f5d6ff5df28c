/* SPDX-License-Identifier: MIT */
/*
 * A set of tiers as the source of a mount: penstock mount DIR --source tier:SET.
 *
 * The tree.  Directories are those of one root, the tree: the last one of the slowest class.  At
 * the start every directory of the other roots is made there.  Other roots get a directory when a
 * file needs it, and lose it when it is removed from the tree.  So nodes of directories are as with
 * any source (node.h).
 *
 * Files.  A file is looked up by its path in the set (tier/lookup.h), on whichever root has it.
 * Its node is known by the file's number in the catalogue (SET_DEV and that number), and so is its
 * inode number: both stay when the file moves.  The node's descriptor is pointed at the file where
 * it lies now (dup3(2)), before each operation that may find it moved.
 *
 * Moves.  Whoever has a file open here, or changes its name or attributes, holds flock(LOCK_SH) on
 * it; the mover takes LOCK_EX from before it names the copy until the source is gone (tier/move.h).
 * So a file does not move while it is open, and descriptors of rings and mappings stay right.  An
 * open that meets the mover in these moments is tried again (loop_again()).
 *
 * The mover and the commands of penstock tier need not know of the mount.
 *
 * What is refused: hard links, symbolic links, devices and pipes with EPERM, since a set has none;
 * rename of a directory that is not empty with EXDEV; rename onto a file that lies on another root
 * with EXDEV, since no rename replaces it in one step; exchanging names, files without a name
 * (O_TMPFILE), removing trees by 3fs-virt/rm-rf and 3FS's ioctls, and a read-only mount.
 *
 * Rights.  The kernel checks them by the attributes that it knows (default_permissions).  Files
 * are looked up and opened with the server's rights, since the directory of a file on another root
 * may be closed to the caller by now, and are created with the caller's.
 *
 * Locks: set_source->lock (names, the catalogue, paths of nodes) -> nodes->lock.
 */
#ifndef MOUNT_SET_H
#define MOUNT_SET_H

#include <dirent.h>
#include <sys/statvfs.h>

#include "usrbio/mount/file.h"
#include "usrbio/mount/fs.h"

#define SET_SCHEME "tier:"

struct set_source;

/* Is a source a set's?  Its name, or NULL. */
const char *set_source_name(const char *source);

/*
 * Open a set, end its interrupted moves, and make the tree.  0, or -errno after a sentence on
 * standard error.  *ret_root_fd (O_PATH) is the tree's.
 */
int set_source_open(const char *name, struct set_source **ret, int *ret_root_fd);
void set_source_close(struct set_source *s); /* NULL: nothing */

/* When there are nodes. */
void set_source_begin(struct fs *fs);

/* fs_lookup(): directories of the tree, and files. */
int set_lookup(struct fs *fs, const struct node *dir, const char *name,
	       struct fuse_entry_param *ret);

/* Point a file's node at where the file lies now, if it has moved.  It is held. */
void set_refresh(struct fs *fs, struct node *n);

/*
 * Keep a file where it is: a descriptor with a shared lock, or -EWOULDBLOCK while the mover changes
 * its names, or -errno.  set_hold_wait() waits for that.
 */
int set_hold(struct fs *fs, struct node *n);
int set_hold_wait(struct fs *fs, struct node *n);

/* file_open(), with the file kept where it is until the descriptor is closed. */
int set_open_file(struct fs *fs, struct node *n, int flags);

/* openat(2) of file_create(), and the entry of what it made. */
int set_create(struct fs *fs, const struct node *dir, const struct new_file *f);
int set_created(struct fs *fs, const struct node *dir, const char *name,
		struct fuse_entry_param *ret);

int set_unlink(struct fs *fs, const struct node *dir, const char *name);
int set_rmdir(struct fs *fs, const struct node *dir, const char *name);
int set_rename(struct fs *fs, const struct node *dir, const char *name, const struct node *to,
	       const char *to_name, unsigned flags);

/* Owner and mode of a directory of the tree, for the other roots. */
void set_dir_attr(struct fs *fs, const struct node *dir);

/* An entry of a directory. */
struct set_entry {
	char name[NAME_MAX + 1];
	uint64_t number; /* on the mount */
	mode_t type;
};

/* All entries of a directory, to be freed. */
int set_list(struct fs *fs, const struct node *dir, struct set_entry **ret, size_t *ret_nr);

/* Room of all roots together. */
int set_statfs(struct fs *fs, struct statvfs *ret);

#endif
