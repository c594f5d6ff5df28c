/* SPDX-License-Identifier: MIT */
/*
 * The life of a request, as a table of states and events (life.c).
 *
 *	FREE -> PREPARED -> ACTIVE -> DONE -> FREE
 *
 * is the plain one.  A sync waits in HELD for the writes before it.  A request that ends before it
 * is quiet goes from ACTIVE to LATE: its completion goes out, and something of it is still under
 * way.  It becomes DONE if it is quiet before it is reaped, else BUSY until it is.
 *
 * Paths know nothing of this.  They say that nothing of the request is under way any more.
 */
#ifndef PST_LIFE_H
#define PST_LIFE_H

#include <stdbool.h>
#include <stdint.h>

enum req_state {
	REQ_FREE,     /* q->free */
	REQ_PREPARED, /* q->prepared */
	REQ_HELD,     /* q->inflight, and waits for writes before it */
	REQ_ACTIVE,   /* q->inflight: parts or jobs are under way or still to start */
	REQ_DONE,     /* q->done: its completion is there, and nothing is under way */
	REQ_LATE,     /* q->done: the same, and something is */
	REQ_BUSY,     /* q->busy: reaped, and something is */
	REQ_STATES,
};

enum req_event {
	REQ_PREP,       /* pst_queue_prep() takes it */
	REQ_HOLD,       /* it is submitted behind writes */
	REQ_START,      /* it is submitted, or held no more */
	REQ_QUIET,      /* nothing of it is under way; before it started: it fails */
	REQ_GIVE_UP,    /* it ends now, and something of it is under way */
	REQ_REAP,       /* pst_queue_reap() hands its completion out */
	REQ_DROP,       /* its queue is freed before it was submitted */
	REQ_EVENTS = 8, /* a power of two, for the index */
};

/* A step does these, in this order. */
#define LIFE_LATE (1u << 3)     /* transfers that outlived the completion have ended */
#define LIFE_COMPLETE (1u << 0) /* put the completion where pst_queue_reap() finds it */
#define LIFE_RELEASE (1u << 1)  /* let go of memory and file */
#define LIFE_FREE (1u << 2)     /* its place is for another */
#define LIFE_NOTHING (1u << 4)

struct life_step {
	uint8_t next;
	uint8_t acts; /* 0: the event cannot come in that state */
};

extern const struct life_step life[REQ_STATES][REQ_EVENTS];

#endif
