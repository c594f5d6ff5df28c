/* SPDX-License-Identifier: MIT */
/* Update the catalogue from the contents of the roots. */
#ifndef PST_TIER_SCAN_H
#define PST_TIER_SCAN_H

#include "tier/set.h"

struct scan_counts {
	uint64_t files, bytes; /* files of the set, and their bytes */
	uint64_t twice;        /* names in more than one root, a conflict for the administrator */
	/* Skipped: files with several names; symbolic links, devices and the like. */
	uint64_t links, special;
	char twice_name[TIER_NAME_SIZE]; /* the first name in more than one root */
};

/*
 * Walk all usable directories, with the set locked.  Files of other roots stay in the catalogue
 * unchanged.  For a name in two roots, keep the root that the catalogue had, or else the fastest
 * one.  No file is changed.
 */
int scan_set(struct tier_set *set, struct scan_counts *ret);

#endif
