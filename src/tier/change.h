/* SPDX-License-Identifier: MIT */
/*
 * Remove and rename files of a set that may be moving.
 *
 * The caller must be the only user of the set's catalogue object.  Calls return -errno, not always
 * with a sentence.  -EWOULDBLOCK means that the mover is renaming the file: retry in some
 * milliseconds, without the lock.
 */
#ifndef PST_TIER_CHANGE_H
#define PST_TIER_CHANGE_H

#include "tier/set.h"

/* Open a file (O_PATH) in its current root, and add it to the catalogue if needed.  Return a
 * descriptor; -ENOENT for anything but a regular file. */
int change_find(struct tier_set *set, const char *name, struct tier_file *ret);

/* Remove every copy of a file.  *ret: the file as it was. */
int change_unlink(struct tier_set *set, const char *name, struct tier_file *ret);

/*
 * Rename a file within its root.
 * @flags: 0 or RENAME_NOREPLACE
 * @ret: the file
 * @ret_old: the file that had the new name; id 0 if there was none
 *
 * Return: 0; -EXDEV if the file that had the new name lies in another root.
 */
int change_rename(struct tier_set *set, const char *name, const char *to, unsigned flags,
		  struct tier_file *ret, struct tier_file *ret_old);

/* Remove a name from all roots except one; flags as of unlinkat(2). */
int change_unlink_all(struct tier_set *set, const char *name, int flags, unsigned except);

#endif
