/* SPDX-License-Identifier: MIT */
/*
 * Requests that begin when a stream of the program has come so far (order.c).
 */
#ifndef PST_ORDER_H
#define PST_ORDER_H

#include "core/sched/engine.h"

/* An engine without orders. */
void order_init(struct engine *e);

/* Under the lock, by the clock: see that a worker asks for streams. */
void order_ring(struct engine *e, uint64_t now);

/* See how far streams are; true when something moved. */
bool order_watch(struct engine *e);

/* The worker sleeps: nanoseconds until it must do that again, UINT64_MAX for never. */
uint64_t order_wait(struct worker *w);

/* Under the lock: it does not sleep any more. */
void order_awake(struct worker *w);

/*
 * Before its engine gets it, in the thread that submits: record an event on the stream that the
 * request names.  0 or -errno with a sentence.
 */
int order_begin(struct req *r);

/* Pst_queue_submit() has started all that it had. */
void order_submitted(struct pst_queue *q);

/* The request is over, or never got to an engine. */
void order_end(struct req *r);

#endif
