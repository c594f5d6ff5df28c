/* SPDX-License-Identifier: MIT */
/*
 * The ranges of one call, as requests.
 *
 * Ranges are grouped by their memory.  Each group is one request, and its ranges are the segments.
 * Device addresses are wrapped by whole allocations, because frameworks allocate many tensors from
 * few.  All host addresses are one group.
 */
#ifndef PST_RANGES_H
#define PST_RANGES_H

#include <penstock.h>

#include "base/base.h"

/* The ranges in one piece of memory, which are one request. */
struct group {
	struct pst_mem *mem;
	unsigned first; /* index of its first range in ranges.order and ranges.segs */
	unsigned nr;
	bool ended;
	struct pst_done done; /* valid once ended */
};

struct ranges {
	unsigned nr;
	uint64_t total;       /* bytes */
	unsigned *order;      /* index of the caller's range for each segment */
	struct pst_seg *segs; /* segments by group, in the caller's order within a group */
	struct group *groups; /* groups, ordered by their first range in the caller's order */
	unsigned nr_groups;
	struct range_result *results; /* results of the caller's ranges */
	struct pst_mem **wrapped;
	unsigned nr_wrapped;
};

/* Check and group the caller's ranges.  Call ranges_done() also after a failure. */
int ranges_init(struct ranges *rs, uint32_t op, const struct pst_vec *vecs, unsigned nr);

/**
 * ranges_result() - the completion of the call, out of those of its requests
 * @rs:    the ranges, after their requests have ended
 * @vecs:  as in ranges_init()
 * @unmet: positive errno of the groups that did not end; they were not started
 * @ret:   zeroed but for op and user_data; user_data stays where all ranges are whole
 *
 * Return: the group whose error counts, NULL for none or where it is @unmet.
 */
const struct group *ranges_result(struct ranges *rs, const struct pst_vec *vecs, int unmet,
				  struct pst_done *ret);

void ranges_done(struct ranges *rs);

#endif
