/* SPDX-License-Identifier: MIT */
/* Which pieces a thread takes in a turn, and in which order. */
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
 * Return the requests of all turns of a row, for the thread with the fewest; UINT64_MAX if only
 * time ends a turn.  once: neither side reads a piece twice.
 */
uint64_t walk_requests(const struct bench_job *job, bool once);

/*
 * Return wanted, or fewer turns: if the file or job->bytes limits a row's requests, each turn must
 * have at least TURN_OPS_MIN.
 */
unsigned walk_turns(const struct bench_job *job, bool once, unsigned wanted);

/*
 * Begin the walk of one turn.  The turns of a row divide a thread's bytes into parts, in the order
 * of its walk.  The other side starts half the parts away.  So the two sides use different bytes in
 * one turn, and over an even number of turns, each has equally many turns on bytes that the other
 * has used before.  Both go from the last part to the first, because the kernel's read-ahead may
 * bring in pages after the cache was dropped for the next turn; from TURNS_MIN turns on, that next
 * turn never reads these pages.
 */
void walk_init(struct walk *w, const struct bench_job *job, unsigned thread, unsigned turn,
	       bool other, bool once);

/* Return the file offset of the next piece; false at the end of the walk. */
bool walk_next(struct walk *w, uint64_t size, uint64_t *ret_off);

#endif
