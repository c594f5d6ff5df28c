/* SPDX-License-Identifier: MIT */
/*
 * Movers: the operations that one thread has under way, a queue's or a worker's.  The parts that
 * they belong to (part.h) are not looked at here.
 */
#ifndef PST_MOVER_H
#define PST_MOVER_H

#include "file/io.h"

struct part;

/* One thread's I/O context, and the parts that wait for something else than their operation. */
struct mover {
	const struct io_backend *backend;
	struct io_ctx *ctx;
	struct io_others *others; /* beside that, of providers */
	int efd;                  /* which those write */
	struct part *parked;      /* writes that wait for others of their file to end */
	struct part *blocked;     /* found the I/O context full */
	unsigned nr_proving;      /* proofs under way */
};

/* part.c has the functions below. */

/* Take back operations that the I/O context has finished; how many. */
unsigned mover_reap(struct mover *m);
/* Start parts that had to wait for other writes, or end those of stopped requests.  True when one
 * got on. */
bool mover_unpark(struct mover *m);
/* Start parts that found the I/O context full, or end those of stopped requests. */
void mover_unblock(struct mover *m);

#endif
