/* SPDX-License-Identifier: MIT */
/*
 * What the turns of an engine ask of the rooms above: of the streams of the program, and of those
 * who carry bytes.  As in core/queue/above.h, the functions are those rooms'.
 */
#ifndef PST_ENGINE_ABOVE_H
#define PST_ENGINE_ABOVE_H

#include "core/sched/engine.h"

/* ---------------------------------------------------- streams of the program */

/* order.c, under the lock: keep the request back if its stream is not there yet. */
bool order_hold(struct req *r);
/* order.c, not under the lock: after the request was stopped. */
void order_stopped(struct req *r);
/* order.c, under the lock: does a worker ask for the request's stream just now? */
bool order_asks(const struct req *r);
/* order.c, under the lock: likewise, and the stopped request, which is on no list, is handed back
 * behind that. */
bool order_keeps(struct req *r);
/* order.c, under the lock: the request is handed back, and nobody asks for its stream any more. */
void order_leave(struct req *r);
/* order.c, under the lock: the request is kept back, and somebody has to ask for its stream. */
void order_wake(struct req *r);
/* order.c, under the lock: the worker has a job, which may take long. */
void order_pass_on(struct worker *w);
/* feed.c, under the lock: a slot is free, or there is a read for one. */
void feed_wake(struct engine *e);
/* feed.c, under the lock: nothing more of the read is sent, and its stream goes on. */
void feed_close(struct req *r);
/* feed.c, under the lock: bytes that a job of the read takes on. */
uint64_t feed_part(const struct req *r);
/* feed.c, under the lock: have the stream's next copy move the job's list.  -EINVAL when there is
 * no further one, since the caller has changed segments. */
int feed_send(struct job *j);

/* ------------------------------------------------------------------ carriers */

/* job_build.c, under the lock: take pieces from the request's cursor into the slot.  If the job has
 * only claimed them, job_build_claimed() follows without the lock. */
void job_build(struct job *j);
void job_build_claimed(struct job *j);
/* copier.c, under the lock: the job's bytes are in its slot, or its device can copy them from their
 * source. */
void copier_add(struct engine *e, struct job *j);

/* transfer.c, under the lock: start as many pieces of the request as can be started.  True: the
 * next piece is for a slot.  False: it has to wait, or there is none. */
bool transfers_start(struct req *r);
/* transfer.c, under the lock: nobody is going to move it. */
void transfers_redo_drop(struct req *r);

#endif
