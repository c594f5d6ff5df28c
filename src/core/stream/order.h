/* SPDX-License-Identifier: MIT */
/*
 * Requests that begin when a stream of the program has reached a point (order.c).
 */
#ifndef PST_ORDER_H
#define PST_ORDER_H

#include "core/sched/engine.h"

/* Initialize an engine without orders. */
void order_init(struct engine *e);

/* Make sure that a worker queries streams; called by the clock, under the lock. */
void order_ring(struct engine *e, uint64_t now);

/* Query all streams; true if a request made progress. */
bool order_watch(struct engine *e);

/* Return the nanoseconds that the worker may sleep before the next query, UINT64_MAX for no
 * query. */
uint64_t order_wait(struct worker *w);

/* The worker is awake again, under the lock. */
void order_awake(struct worker *w);

/*
 * Record an event on the stream that the request names, in the submitting thread, before its engine
 * gets it.  Return 0, or -errno with a sentence.
 */
int order_begin(struct req *r);

/* End of pst_queue_submit(): every request has been started. */
void order_submitted(struct pst_queue *q);

/* Release the order of a request that has ended, or never reached an engine. */
void order_end(struct req *r);

#endif
