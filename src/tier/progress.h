/* SPDX-License-Identifier: MIT */
/*
 * What the mover of a set does now and did last, for other processes to show.
 *
 * <state>/moves is mapped by all of them.  Only the holder of the set's lock writes.  A reader
 * takes a slot's sequence number before and after copying the slot, and copies again if it changed.
 */
#ifndef PST_TIER_PROGRESS_H
#define PST_TIER_PROGRESS_H

#include "base/base.h"
#include "tier/name.h"

#define PROGRESS_ENDED 64u /* moves that ended last and are kept */

struct progress;

struct progress_move {
	char name[TIER_NAME_SIZE];
	char why[256];      /* if err: the sentence */
	uint64_t nr;        /* counts the moves of the set, from 1 */
	uint64_t bytes;     /* of data to copy */
	uint64_t done;      /* of these */
	uint64_t begun_ns;  /* CLOCK_MONOTONIC */
	uint64_t ns;        /* from the beginning to the end; 0 while it runs */
	uint64_t waited_ns; /* of these, for other programs' I/O */
	uint32_t src, dst;  /* numbers of roots */
	int32_t err;        /* 0, or -errno: the file stayed where it was */
	uint32_t running;
};

/* state is the set's directory of state.  0, or -errno with a sentence. */
int progress_open(const char *state, struct progress **ret);
struct progress *progress_close(struct progress *p);

/* With the set locked: a move begins, goes on, ends with err and, if that is not 0, err_text(). */
void progress_begin(struct progress *p, const char *name, unsigned src, unsigned dst,
		    uint64_t bytes);
void progress_step(struct progress *p, uint64_t done, uint64_t waited_ns);
void progress_end(struct progress *p, int err);

/* Get the move that began last.  It is also told as running if the mover that ran it was killed. */
void progress_now(const struct progress *p, struct progress_move *ret);

/* How many moves have ended, and the move that ended as the nr-th.  False: it is not kept. */
uint64_t progress_count(const struct progress *p);
bool progress_ended(const struct progress *p, uint64_t nr, struct progress_move *ret);

#endif
