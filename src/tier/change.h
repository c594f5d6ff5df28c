/* SPDX-License-Identifier: MIT */
/*
 * Remove and rename files of a set, while they may move.
 *
 * The caller alone uses the set's catalogue meanwhile.  Calls return -errno, and not all of them
 * leave a sentence.  -EWOULDBLOCK: the mover changes names of the file just now; again in some
 * milliseconds, without the lock.
 */
#ifndef PST_TIER_CHANGE_H
#define PST_TIER_CHANGE_H

#include "tier/set.h"

/* Open a file (O_PATH) where it lies now; it has a number in the catalogue then.  -ENOENT for what
 * is no regular file. */
int change_find(struct tier_set *set, const char *name, struct tier_file *ret);

/* Remove every copy of a file.  ret is what it was. */
int change_unlink(struct tier_set *set, const char *name, struct tier_file *ret);

/*
 * Give a file another name in its root.
 * @flags:   0 or RENAME_NOREPLACE
 * @ret:     the file
 * @ret_old: the file that had the name; its id is 0 if there was none
 * Return: 0; -EXDEV where the file that has the name lies in another root.
 */
int change_rename(struct tier_set *set, const char *name, const char *to, unsigned flags,
		  struct tier_file *ret, struct tier_file *ret_old);

/* Remove a name from all roots but one; flags are those of unlinkat(2). */
int change_unlink_all(struct tier_set *set, const char *name, int flags, unsigned except);

#endif
