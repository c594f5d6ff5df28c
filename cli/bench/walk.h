/* SPDX-License-Identifier: MIT */
/* The pieces that a thread takes in a turn, and their order. */
#ifndef CLI_BENCH_WALK_H
#define CLI_BENCH_WALK_H

#include "cli/bench/bench.h"

struct walk {
	uint64_t first, nr; /* the thread's part of the file, in pieces */
	uint64_t at;        /* the next one, from first */
	uint64_t stride;    /* coprime to nr: gives a random-looking order that has each piece
			     * once */
	uint64_t left;      /* pieces it may still take */
};

/*
 * Return the requests that a thread has for all turns of a row; that of the thread with the fewest.
 * UINT64_MAX: only time ends a turn. once: neither side reads a piece twice.
 */
uint64_t walk_requests(const struct bench_job *job, bool once);

/*
 * Return the number of turns that was asked for, or fewer: if the file or job->bytes limits the
 * requests of a row, each turn must have at least TURN_OPS_MIN.
 */
unsigned walk_turns(const struct bench_job *job, bool once, unsigned wanted);

/*
 * A row's turns cut the bytes of a thread into parts, in the order of its walk.  The other side
 * begins half of them away, so that the two take different bytes in a turn, and of an even
 * number of turns each has as many over bytes that the other took before.  Both go from the last
 * part to the first: pages that the kernel reads ahead of a turn may arrive when the cache was
 * dropped for the next, and from TURNS_MIN turns on that turn never reads them.
 */
void walk_init(struct walk *w, const struct bench_job *job, unsigned thread, unsigned turn,
	       bool other, bool once);

/* The file offset of the next piece; false when the walk is over. */
bool walk_next(struct walk *w, uint64_t size, uint64_t *ret_off);

#endif
