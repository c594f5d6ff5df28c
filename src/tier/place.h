/* SPDX-License-Identifier: MIT */
/* Where a new file of a set goes. */
#ifndef PST_TIER_PLACE_H
#define PST_TIER_PLACE_H

#include "tier/set.h"

/*
 * The root of the fastest class that stays below its high watermark with so many bytes more.
 * -ENOSPC with a sentence.
 */
int place_root(struct tier_set *set, uint64_t bytes);

/*
 * See that a root has the directory of a name, which another root may have so far.  A descriptor of
 * the directory, with *ret_base as name_parent() has it; -ENOENT with a sentence if no root has it.
 */
int place_dir(const struct tier_set *set, unsigned root, const char *name, const char **ret_base);

#endif
