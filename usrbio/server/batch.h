/* SPDX-License-Identifier: MIT */
/* Decide when entries of a ring become a batch, and how many entries it has. */
#ifndef SERVER_BATCH_H
#define SERVER_BATCH_H

#include "base/base.h"

#define BATCH_NEVER UINT64_MAX

struct batch {
	int32_t depth;       /* above 0: entries of each batch; 0: all entries present; below 0: at
		        * most -depth */
	uint64_t timeout_ns; /* depth below 0: wait of a partial batch for more entries, ns */
	uint64_t due;        /* start time of the partial batch, ns; BATCH_NEVER: no entries wait */
};

void batch_init(struct batch *b, int32_t depth, uint64_t timeout_ns);

/*
 * Find the next batch.
 * @nr:   entries that were not taken yet
 * @room: completions for which the ring has room, less those of entries already taken
 *
 * Return: the number of entries of the batch, at most @nr and @room; 0 if there is none yet: call
 * again at b->due unless that is BATCH_NEVER.
 */
uint32_t batch_next(struct batch *b, uint32_t nr, uint32_t room);

/* Return true if nr entries could be a batch at this moment. */
static inline bool batch_more(const struct batch *b, uint32_t nr)
{
	return nr && (b->depth <= 0 || nr >= (uint32_t)b->depth);
}

#endif
