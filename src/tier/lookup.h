/* SPDX-License-Identifier: MIT */
/* Find and open a file of a set, while it may move. */
#ifndef PST_TIER_LOOKUP_H
#define PST_TIER_LOOKUP_H

#include "tier/set.h"

/*
 * Open a file, without the set's lock; flags are O_RDONLY, O_WRONLY, O_RDWR or
 * O_PATH.  *ret_file is what
 * the catalogue knows of it.
 * The descriptor reads the same bytes however the file moves later.
 *
 * A move may take the file away between the look at the catalogue and the open; the catalogue is
 * then asked again.  A file that the catalogue does not know, or knows elsewhere, is looked for on
 * all roots, the fastest first; *ret_file then has id 0.
 *
 * Return: a descriptor, or a sentence and -ENOENT, -EINVAL for the name, -ENODEV when the file is
 * on a root that cannot be used, -EAGAIN for writing while somebody has a lease, as the mover has.
 */
int lookup_open(struct tier_set *set, const char *name, int flags, struct tier_file *ret_file);

#endif
