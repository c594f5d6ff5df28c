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

#include "usrbio/mount/file.h"
#include "usrbio/mount/source.h"

#define SET_SCHEME "tier:"

#endif
