/* SPDX-License-Identifier: MIT */
/*
 * Decide what should move: policies say what may, watermarks say what must.
 *
 * Border N has a policy instance with the capacity of classes 0 to N together.  A file's class is
 * the first whose border rates it hot.  A file that was read only once is not promoted.  When a
 * class is filled above its high watermark, files leave it, coldest first, until it is at the low
 * one.
 */
#ifndef PST_TIER_PLAN_H
#define PST_TIER_PLAN_H

#include "tier/set.h"

struct plan_move {
	char *name;
	uint64_t bytes;
	enum tier_class from, to;
};

struct plan {
	struct plan_move *moves; /* in the order of execution */
	size_t nr;
};

int plan_make(struct tier_set *set, struct plan *ret);
void plan_done(struct plan *plan);

#endif
