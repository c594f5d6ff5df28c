/* SPDX-License-Identifier: MIT */
/*
 * Requests that begin when a stream of the program has reached a point (order.c).
 */
#ifndef PST_ORDER_H
#define PST_ORDER_H

#include "core/sched/engine.h"

/* Initialize an engine without orders. */
void order_init(struct engine *e);

/* Make sure that a worker queries streams.  Called by the clock, under the lock. */
void order_ring(struct engine *e, uint64_t now);

/* Query all streams.  Return true if a request made progress. */
bool order_watch(struct engine *e);

/* Return the ns that the worker may sleep before the next query; UINT64_MAX: no query is needed. */
uint64_t order_wait(struct worker *w);

/* Note that the worker is awake again, under the lock. */
void order_awake(struct worker *w);

/*
 * Record an event on the stream that the request names, on the submitting thread, before the engine
 * gets the request.  Return 0, or -errno with a sentence.
 */
int order_begin(struct req *r);

/* Drop the orders of a pst_queue_submit() that has started every request. */
void order_submitted(struct pst_queue *q);

/* Release the order of a request that has ended, or that never reached an engine. */
void order_end(struct req *r);

#endif
