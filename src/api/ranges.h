/* SPDX-License-Identifier: MIT */
/*
 * The ranges of one call, as requests.
 *
 * Ranges are grouped by the memory that they lie in: each group is one request, and its ranges
 * are the segments.  Addresses of a device are wrapped allocation by allocation, because
 * frameworks cut many tensors out of few.  All addresses of the host are one group.
 */
#ifndef PST_RANGES_H
#define PST_RANGES_H

#include <penstock.h>

#include "base/base.h"

/* Ranges in one piece of memory: one request. */
struct group {
	struct pst_mem *mem;
	unsigned first; /* of its ranges, in ranges.order and ranges.segs */
	unsigned nr;
	bool ended;
	struct pst_done done; /* valid once ended */
};

struct ranges {
	unsigned nr;
	uint64_t total;       /* bytes */
	unsigned *order;      /* which of the caller's ranges each segment is */
	struct pst_seg *segs; /* by group, and in the caller's order within one */
	struct group *groups; /* by their first range in the caller's order */
	unsigned nr_groups;
	struct range_result *results; /* of the caller's ranges */
	struct pst_mem **wrapped;
	unsigned nr_wrapped;
};

/* Check and group the caller's ranges; ranges_done() is due also on failure. */
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
