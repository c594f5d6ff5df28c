/* SPDX-License-Identifier: MIT */
/*
 * When entries of a ring become a batch, and how many of them.
 */
#ifndef SERVER_BATCH_H
#define SERVER_BATCH_H

#include "base/base.h"

#define BATCH_NEVER UINT64_MAX

struct batch {
	int32_t depth; /* above 0: exactly so many; 0: all that are there; below: at most so many */
	uint64_t timeout_ns; /* depth below 0: fewer entries wait so long for more */
	uint64_t due;        /* when the entries that wait go as they are; BATCH_NEVER: none do */
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

/* Could so many entries be a batch now? */
static inline bool batch_more(const struct batch *b, uint32_t nr)
{
	return nr && (b->depth <= 0 || nr >= (uint32_t)b->depth);
}

#endif
