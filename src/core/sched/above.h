/* SPDX-License-Identifier: MIT */
/*
 * Functions that an engine's scheduling calls in the rooms above: those for streams of the program,
 * and those that move bytes.  As in core/queue/above.h, these rooms define the functions.
 */
#ifndef PST_ENGINE_ABOVE_H
#define PST_ENGINE_ABOVE_H

#include "core/sched/engine.h"

/* ---------------------------------------------------- streams of the program */

/* order.c, under the lock: hold the request if its stream has not reached its event. */
bool order_hold(struct req *r);
/* order.c, without the lock: called after the request was stopped. */
void order_stopped(struct req *r);
/* order.c, under the lock: return true if a worker is querying the request's stream. */
bool order_asks(const struct req *r);
/* order.c, under the lock: as order_asks(); if true, the stopped request, which is on no list, is
 * returned after the query. */
bool order_keeps(struct req *r);
/* order.c, under the lock: the request is returned, so nobody queries its stream for it. */
void order_leave(struct req *r);
/* order.c, under the lock: make sure that a worker queries the stream of a held request. */
void order_wake(struct req *r);
/* order.c, under the lock: let another worker query streams, because this one has a job that may
 * take long. */
void order_pass_on(struct worker *w);
/* feed.c, under the lock: wake a feeder, because a slot is free or a read needs one. */
void feed_wake(struct engine *e);
/* feed.c, under the lock: send nothing more of the read, so that its stream continues. */
void feed_close(struct req *r);
/* feed.c, under the lock: return the bytes that one job of the read takes. */
uint64_t feed_part(const struct req *r);
/* feed.c, under the lock: let the stream's next copy move the job's list.  Return -EINVAL if there
 * is no further copy, because the caller changed segments. */
int feed_send(struct job *j);

/* ------------------------------------------------------------------ carriers */

/* job_build.c, under the lock: take pieces from the request's cursor into the slot.  If the job has
 * only claimed them, job_build_claimed() follows without the lock. */
void job_build(struct job *j);
void job_build_claimed(struct job *j);
/* copier.c, under the lock: the job's bytes are in its slot, or the device can copy them from their
 * source. */
void copier_add(struct engine *e, struct job *j);

/* check.c, under the lock: take a request whose bytes have moved, and which asks for checksums that
 * are not known.  Return false if the request needs no check, or had one. */
bool check_take(struct req *r);
/* check.c, under the lock: the request was stopped, so it waits for no check. */
void check_stop(struct req *r);

/* transfer.c, under the lock: start as many pieces of the request as possible.  Return true if the
 * next piece is for a slot; false if it must wait, or there is none. */
bool transfers_start(struct req *r);
/* transfer.c, under the lock: drop the pieces to be staged, because the request was stopped. */
void transfers_redo_drop(struct req *r);

#endif
