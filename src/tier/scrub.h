/* SPDX-License-Identifier: MIT */
/* Read every file and compare it with its checksum. */
#ifndef PST_TIER_SCRUB_H
#define PST_TIER_SCRUB_H

#include "tier/set.h"

struct scrub_counts {
	uint64_t checked, bytes; /* files that match their checksum; their bytes */
	uint64_t added; /* files without a checksum, or written since the checksum was taken */
	uint64_t bad;   /* files that differ from their checksum */
	uint64_t unreadable;
	/* Objects below the prefix that belong to no file, and the first one's key. */
	uint64_t strays;
	char stray[1025];
};

/*
 * Check all files, with the set locked.  Call bad() with a sentence for each file that differs or
 * cannot be read.  Nothing is changed or deleted.  The store's objects are listed.
 */
int scrub_set(struct tier_set *set, void (*bad)(const char *name, const char *why, void *arg),
	      void *arg, struct scrub_counts *ret);

#endif
