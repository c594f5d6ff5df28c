/* SPDX-License-Identifier: MIT */
/* Find and open a file of a set that may be moving. */
#ifndef PST_TIER_LOOKUP_H
#define PST_TIER_LOOKUP_H

#include "tier/set.h"

/*
 * Open a file, without the set's lock.  flags: O_RDONLY, O_WRONLY, O_RDWR or O_PATH. *ret_file: the
 * catalogue's facts about the file.  The descriptor keeps reading the same bytes if the file moves
 * later.
 *
 * A move may remove the file between the look into the catalogue and the open; the lookup is then
 * repeated.  A file that is not where the catalogue says is searched on all roots, the fastest
 * first; *ret_file then has id 0.
 *
 * Return: a descriptor, or with a sentence: -ENOENT, -EINVAL for the name, -ENODEV if the file is
 * on a root that cannot be used, -EREMOTE with *ret_file if it is an object, -EAGAIN for writing
 * while somebody, such as the mover, has a lease.
 */
int lookup_open(struct tier_set *set, const char *name, int flags, struct tier_file *ret_file);

#endif
