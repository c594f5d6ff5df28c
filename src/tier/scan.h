/* SPDX-License-Identifier: MIT */
/* Bring the catalogue up to what the roots hold. */
#ifndef PST_TIER_SCAN_H
#define PST_TIER_SCAN_H

#include "tier/set.h"

struct scan_counts {
	uint64_t files, bytes; /* that the set has */
	uint64_t twice; /* names in more than one root: conflicts that somebody has to solve */
	uint64_t links,
		special; /* files with several names; symbolic links, devices and the like */
	char twice_name[TIER_NAME_SIZE]; /* the first of them */
};

/*
 * Walk all roots that can be used, with the set locked.  Files of other roots stay in the catalogue
 * as they are.  Of a name in two roots, the catalogue keeps the root that it knew, else the
 * fastest.  No file is changed.
 */
int scan_set(struct tier_set *set, struct scan_counts *ret);

#endif
