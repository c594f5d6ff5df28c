/* SPDX-License-Identifier: MIT */
/* Choose the pieces that a thread reads or writes in a turn, and their order. */
#ifndef CLI_BENCH_WALK_H
#define CLI_BENCH_WALK_H

#include "cli/bench/bench.h"

struct walk {
	uint64_t first, nr; /* the thread's part of the file, in pieces */
	uint64_t at;        /* index of the next piece, from first */
	uint64_t stride;    /* coprime to nr, for a random-looking order with each piece once */
	uint64_t left;      /* pieces still to take */
};

/*
 * Return how many requests the thread with the fewest makes in all turns of a row; UINT64_MAX if
 * only time ends a turn.  once: neither side reads a piece twice.
 */
uint64_t walk_requests(const struct bench_job *job, bool once);

/*
 * Return wanted, or fewer turns: if the file or job->bytes limits a row's requests, each turn must
 * have at least TURN_OPS_MIN.
 */
unsigned walk_turns(const struct bench_job *job, bool once, unsigned wanted);

/*
 * Begin the walk of one turn.  A thread's bytes, in walk order, are cut into one part per turn; the
 * two sides are half the parts apart.  So in one turn the sides use different bytes, and over an
 * even number of turns each side equally often reads a part that the other side has read before.
 * Parts are taken from last to first: read-ahead may bring in pages beyond a part after the cache
 * was dropped; with TURNS_MIN turns or more, the next turn reads none of these pages.
 */
void walk_init(struct walk *w, const struct bench_job *job, unsigned thread, unsigned turn,
	       bool other, bool once);

/* Return the file offset of the next piece; false at the end of the walk. */
bool walk_next(struct walk *w, uint64_t size, uint64_t *ret_off);

#endif
