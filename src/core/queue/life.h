/* SPDX-License-Identifier: MIT */
/*
 * The life of a request, as a table of states and events (life.c).
 *
 * FREE -> PREPARED -> ACTIVE -> DONE -> FREE
 *
 * is the usual life.  A sync waits in HELD for the writes before it.  A request that completes
 * while its operations are in flight goes from ACTIVE to LATE. When the last operation ends, LATE
 * becomes DONE. If the completion is reaped before that, LATE becomes BUSY, and the end of the last
 * operation frees the request.
 *
 * Paths do not know these states.  Paths only report when nothing of a request is in flight.
 */
#ifndef PST_LIFE_H
#define PST_LIFE_H

#include <stdbool.h>
#include <stdint.h>

enum req_state {
	REQ_FREE,     /* on q->free */
	REQ_PREPARED, /* on q->prepared */
	REQ_HELD,     /* on q->inflight, waiting for earlier writes */
	REQ_ACTIVE,   /* on q->inflight: parts or jobs are in flight or not started yet */
	REQ_DONE,     /* on q->done: completed, and nothing is in flight */
	REQ_LATE,     /* on q->done: completed, but operations are in flight */
	REQ_BUSY,     /* on q->busy: reaped, but operations are in flight */
	REQ_STATES,
};

enum req_event {
	REQ_PREP,       /* pst_queue_prep() accepts the request */
	REQ_HOLD,       /* submitted, but must wait for earlier writes */
	REQ_START,      /* submitted, or no longer held */
	REQ_QUIET,      /* nothing is in flight; before the start: the request failed */
	REQ_GIVE_UP,    /* the request completes now, while operations are in flight */
	REQ_REAP,       /* pst_queue_reap() returns the request's completion */
	REQ_DROP,       /* the queue is freed before the request was submitted */
	REQ_EVENTS = 8, /* number of events, rounded up to a power of two */
};

/* Actions of a step, in the order in which they run. */
/* clear BUSY: the operations that outlived the completion have ended */
#define LIFE_LATE (1u << 3)
#define LIFE_COMPLETE (1u << 0) /* put the completion into the list that pst_queue_reap() reads */
#define LIFE_RELEASE (1u << 1)  /* release memory and file */
#define LIFE_FREE (1u << 2)     /* put the request on q->free */
#define LIFE_NOTHING (1u << 4)

struct life_step {
	uint8_t next;
	uint8_t acts; /* LIFE_*; 0 if the event is impossible in that state */
};

extern const struct life_step life[REQ_STATES][REQ_EVENTS];

#endif
