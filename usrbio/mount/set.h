/* SPDX-License-Identifier: MIT */
/*
 * A set of tiers as the source of a mount: penstock mount DIR --source tier:SET.
 *
 * The tree.  Directories are those of one root, the last one of the slowest class; this root is the
 * tree.  At the start, every directory of the other roots is made in the tree.  Other roots get a
 * directory when a file needs it, and lose it when it is removed from the tree.  So a directory's
 * node works as with any other source (node.h).
 *
 * Files.  A file is looked up by its path in the set (tier/lookup.h), on whichever root it is.  Its
 * node is identified by SET_DEV and the file's number in the catalogue.  So node and inode number
 * stay the same when the file moves.  Before each operation that may find the file moved, the
 * node's descriptor is pointed at the file's current place (dup3(2)).
 *
 * Moves.  A thread that has a file open here, or changes its name or attributes, holds
 * flock(LOCK_SH) on it.  The mover holds LOCK_EX from before it names the copy until the source
 * file is gone (tier/move.h).  So an open file does not move, and descriptors of rings and mappings
 * stay valid.  An open during such a move is tried again (loop_again()).
 *
 * Neither the mover nor the commands of penstock tier know of the mount.
 *
 * Refused: hard links, symbolic links, devices and pipes with EPERM, because a set has none; rename
 * of a non-empty directory with EXDEV; rename onto a file on another root with EXDEV, because it
 * could not be replaced in one step; RENAME_EXCHANGE, O_TMPFILE, removal of trees by 3fs-virt/rm-rf
 * and 3FS's ioctls, and a read-only mount.
 *
 * Rights.  The kernel checks permissions by the attributes that it has (default_permissions).
 * Files are looked up and opened with the server's rights, because the caller may lack rights on a
 * directory of another root.  Files are created with the caller's rights.
 *
 * Locks: set_source->lock (names, the catalogue, paths of nodes) -> nodes->lock.
 */
#ifndef MOUNT_SET_H
#define MOUNT_SET_H

#include <dirent.h>

#include "usrbio/mount/file.h"
#include "usrbio/mount/source.h"

#define SET_SCHEME "tier:"

#endif
