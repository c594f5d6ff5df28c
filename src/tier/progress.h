/* SPDX-License-Identifier: MIT */
/*
 * Current and recent moves of a set's mover, for other processes to show.
 *
 * All of them map <state>/moves.  Only the holder of the set's lock writes.  A reader compares a
 * slot's sequence number before and after copying the slot, and copies again if it changed.
 */
#ifndef PST_TIER_PROGRESS_H
#define PST_TIER_PROGRESS_H

#include "base/base.h"
#include "tier/name.h"

#define PROGRESS_ENDED 64u /* moves that are remembered after they ended */

struct progress;

struct progress_move {
	char name[TIER_NAME_SIZE];
	char why[256];      /* the sentence, if err is not 0 */
	uint64_t nr;        /* number of the move in the set, from 1 */
	uint64_t bytes;     /* bytes of data to copy */
	uint64_t done;      /* bytes of data copied */
	uint64_t begun_ns;  /* CLOCK_MONOTONIC ns */
	uint64_t ns;        /* total duration in ns; 0 while the move runs */
	uint64_t waited_ns; /* ns spent waiting for other programs' I/O */
	uint32_t src, dst;  /* indices of roots */
	int32_t err;        /* 0, or -errno: the file stayed in src */
	uint32_t running;
};

/* Map the slots; state is the set's state directory.  Return 0, or -errno with a sentence. */
int progress_open(const char *state, struct progress **ret);
struct progress *progress_close(struct progress *p);

/* Record, with the set locked, that a move begins, advances, or ends with err (and err_text(), if
 * not 0). */
void progress_begin(struct progress *p, const char *name, unsigned src, unsigned dst,
		    uint64_t bytes);
void progress_step(struct progress *p, uint64_t done, uint64_t waited_ns);
void progress_end(struct progress *p, int err);

/* Return the move that began last.  A move whose mover was killed still appears as running. */
void progress_now(const struct progress *p, struct progress_move *ret);

/* Return the number of ended moves, and the nr-th of them; false if that one is not kept. */
uint64_t progress_count(const struct progress *p);
bool progress_ended(const struct progress *p, uint64_t nr, struct progress_move *ret);

#endif
