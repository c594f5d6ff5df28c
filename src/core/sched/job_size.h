/* SPDX-License-Identifier: MIT */
/*
 * These functions tell what a request's next jobs are like (job_size.c).  Callers hold the engine's
 * lock.
 */
#ifndef PST_JOB_SIZE_H
#define PST_JOB_SIZE_H

#include "core/sched/engine.h"

/* The unit of the request's file: O_DIRECT moves multiples of it. */
static inline uint64_t req_block(const struct req *r)
{
	return MAX(PAGE, req_file(r)->off_align);
}

/*
 * How many bytes the request's next job takes on at most.  A
 * read that has the engine to itself is through sooner if all workers without a job take a part of
 * it and have a CPU.  Each then copies its part out of the page cache, and the device copies the
 * first parts meanwhile.  Many small pieces are cut so that all workers are through with them
 * together.
 */
uint64_t engine_part(const struct req *r);
/* Pieces of the request that fit into a slot, if all of them have one length; else 0. */
unsigned job_even_pieces(const struct req *r);
/* Are small pieces next, and many of them? */
bool req_is_scattered(const struct req *r);
/* Can the device copy the next piece from where it is? */
bool req_is_ready(const struct req *r);
/*
 * Is a long piece next that needs no slot?  Copying it costs the CPU nothing, and the device the
 * least if it goes together with others.  So one worker takes them for all.
 */
bool req_is_long(const struct req *r);

#endif
