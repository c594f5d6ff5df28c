/* SPDX-License-Identifier: MIT */
/*
 * The size and kind of a request's next jobs (job_size.c).  Callers hold the engine's lock.
 */
#ifndef PST_JOB_SIZE_H
#define PST_JOB_SIZE_H

#include "core/sched/engine.h"

/* Return the block size of the request's file: O_DIRECT moves multiples of this size. */
static inline uint64_t req_block(const struct req *r)
{
	return MAX(PAGE, req_file(r)->off_align);
}

/*
 * Return the most bytes that the request's next job takes.  A read that is alone on the engine ends
 * sooner if all idle workers take a part of it: each copies its part out of the page cache, while
 * the device copies the first parts.  Many small pieces are divided so that all workers end at the
 * same time.
 */
uint64_t engine_part(const struct req *r);
/* If the next piece is copied without a slot and is longer than a slot, return how many of its
 * bytes one job takes; else 0. */
uint64_t engine_part_beyond_slot(const struct req *r);
/* Return how many pieces of the request fit into a slot, or 0 if pieces differ in length or are
 * long. */
unsigned job_even_pieces(const struct req *r);
/* Return true if many small pieces are next. */
bool req_is_scattered(const struct req *r);
/* Return true if the device can copy the next piece from its source, without a slot. */
bool req_is_ready(const struct req *r);
/*
 * Return true if the next piece is long and needs no slot.  A copy of such a piece costs no CPU
 * time, and the least device time in a batch with others.  So one worker takes these pieces for all
 * workers.
 */
bool req_is_long(const struct req *r);

#endif
