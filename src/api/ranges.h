/* SPDX-License-Identifier: MIT */
/*
 * The ranges of one call, grouped into requests.
 *
 * Ranges are grouped by their memory.  Each group is one request, and its ranges are the segments.
 * A device address is wrapped with its whole allocation, because frameworks put many tensors into a
 * few allocations.  All host addresses are one group.
 */
#ifndef PST_RANGES_H
#define PST_RANGES_H

#include <penstock.h>

#include "base/base.h"

/* The ranges with the same memory: one request. */
struct group {
	struct pst_mem *mem;
	unsigned first; /* index of its first range in ranges.order and ranges.segs */
	unsigned nr;
	bool ended;
	struct pst_done done; /* completion; valid if ended */
};

struct ranges {
	unsigned nr;
	uint64_t total;       /* sum of the ranges' bytes */
	unsigned *order;      /* index of the caller's range, for each segment */
	struct pst_seg *segs; /* grouped; in the caller's order within a group */
	struct group *groups; /* all groups, in the order of their first ranges */
	unsigned nr_groups;
	struct range_result *results; /* one per range, in the caller's order */
	struct pst_mem **wrapped;
	unsigned nr_wrapped;
};

/* Check and group the caller's ranges.  The caller calls ranges_done(), even after a failure. */
int ranges_init(struct ranges *rs, uint32_t op, const struct pst_vec *vecs, unsigned nr);

/**
 * ranges_result() - combine the completions of the requests into that of the call
 * @rs:    the ranges, after their requests have ended
 * @vecs:  as in ranges_init()
 * @unmet: positive errno of the groups that were not started
 * @ret:   zero except op and user_data; user_data is kept if all ranges are complete
 *
 * Return: the group whose error is reported; NULL if there is no error, or @unmet is reported.
 */
const struct group *ranges_result(struct ranges *rs, const struct pst_vec *vecs, int unmet,
				  struct pst_done *ret);

void ranges_done(struct ranges *rs);

#endif
