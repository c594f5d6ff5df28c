/* SPDX-License-Identifier: MIT */
#include "usrbio/server/batch.h"

void batch_init(struct batch *b, int32_t depth, uint64_t timeout_ns)
{
	*b = (struct batch){ .depth = depth, .timeout_ns = timeout_ns, .due = BATCH_NEVER };
}

/* Return true if a partial batch has waited for its timeout. */
static bool waited(struct batch *b)
{
	uint64_t now;

	if (!b->timeout_ns)
		return true;
	now = now_ns();
	if (b->due == BATCH_NEVER)
		b->due = now + b->timeout_ns;
	return b->due <= now;
}

uint32_t batch_next(struct batch *b, uint32_t nr, uint32_t room)
{
	uint32_t most = MIN(nr, room), want;

	if (b->depth > 0)
		return most >= (uint32_t)b->depth ? (uint32_t)b->depth : 0;
	if (!nr)
		b->due = BATCH_NEVER;
	if (!most || !b->depth)
		return most;
	want = -(uint32_t)b->depth;
	if (nr < want && !waited(b))
		return 0;
	b->due = BATCH_NEVER;
	return MIN(most, want);
}
