/* SPDX-License-Identifier: MIT */
/*
 * A mover: the operations that one thread (a queue's owner or a worker) has in flight.  Parts, to
 * which the operations belong, are in part.h.
 */
#ifndef PST_MOVER_H
#define PST_MOVER_H

#include "file/io.h"

struct part;

/* One thread's I/O context, and its parts that wait for something other than their own
 * operation. */
struct mover {
	const struct io_backend *backend;
	struct io_ctx *ctx;
	struct io_others *others; /* I/O contexts of providers with a back end of their own */
	int efd;                  /* the eventfd that I/O contexts in others write */
	struct part *parked;      /* writes that wait for other writes of their file */
	struct part *blocked;     /* parts that found the I/O context full */
	unsigned nr_proving;      /* number of proofs in flight */
};

/* The functions below are in part.c. */

/* Process operations that the I/O context has finished, and return their number. */
unsigned mover_reap(struct mover *m);
/* Start the parked parts whose wait is over, and end the parked parts of stopped requests.  Return
 * true if any part made progress. */
bool mover_unpark(struct mover *m);
/* Start the parts that found the I/O context full, and end those of stopped requests. */
void mover_unblock(struct mover *m);

#endif
