/* SPDX-License-Identifier: MIT */
/* Choose the root of a new file. */
#ifndef PST_TIER_PLACE_H
#define PST_TIER_PLACE_H

#include "tier/set.h"

/*
 * Return the root of the fastest class that stays below its high watermark after adding this many
 * bytes; -ENOSPC with a sentence.
 */
int place_root(struct tier_set *set, uint64_t bytes);

/*
 * Create the directory of a name in a root, if another root has it.  Return its descriptor, with
 * *ret_base as from name_parent(); -ENOENT with a sentence if no root has the directory.
 */
int place_dir(const struct tier_set *set, unsigned root, const char *name, const char **ret_base);

#endif
