/* SPDX-License-Identifier: MIT */
/*
 * When entries of a ring become a batch, and how many of them.
 */
#ifndef SERVER_BATCH_H
#define SERVER_BATCH_H

#include "base/base.h"

#define BATCH_NEVER UINT64_MAX

struct batch {
	int32_t depth; /* above 0: exactly this many entries; 0: all that are there; below 0: at
			* most -depth */
	uint64_t timeout_ns; /* with depth below 0: how long a partial batch waits for more
			      * entries */
	uint64_t due;        /* when the partial batch starts; BATCH_NEVER: no entries wait */
};

void batch_init(struct batch *b, int32_t depth, uint64_t timeout_ns);

/*
 * The next batch.
 * @nr:   entries that were not taken yet
 * @room: completions that the ring can hold besides those that are owed to it
 *
 * Return: how many entries it has, at most @nr and @room; 0: none yet, and if b->due is not
 * BATCH_NEVER, ask again then.
 */
uint32_t batch_next(struct batch *b, uint32_t nr, uint32_t room);

/* Return true if that many entries could be a batch now. */
static inline bool batch_more(const struct batch *b, uint32_t nr)
{
	return nr && (b->depth <= 0 || nr >= (uint32_t)b->depth);
}

#endif
