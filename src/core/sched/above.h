/* SPDX-License-Identifier: MIT */
/*
 * Functions of the layers above that an engine's scheduling calls: for the program's streams, and
 * for moving bytes.  As in core/queue/above.h, those layers define the functions.
 */
#ifndef PST_ENGINE_ABOVE_H
#define PST_ENGINE_ABOVE_H

#include "core/sched/engine.h"

/* ---------------------------------------------------- streams of the program */

/* order.c, under the lock: hold the request if its stream has not reached its event.  Return true
 * if it is held. */
bool order_hold(struct req *r);
/* order.c, without the lock: wait until no worker queries the stopped request's stream. */
void order_stopped(struct req *r);
/* order.c, under the lock: return true if a worker is querying the request's stream. */
bool order_asks(const struct req *r);
/* order.c, under the lock: return true if a worker is querying the request's stream.  The stopped
 * request is then returned to its queue after the query.  The request must be on no list. */
bool order_keeps(struct req *r);
/* order.c, under the lock: stop querying the stream for a request that is returned to its queue. */
void order_leave(struct req *r);
/* order.c, under the lock: make sure that a worker queries the stream of a held request. */
void order_wake(struct req *r);
/* order.c, under the lock: let another worker query streams, because this worker has a job that may
 * take long. */
void order_pass_on(struct worker *w);
/* feed.c, under the lock: wake a feeder, because a slot is free or a read needs one. */
void feed_wake(struct engine *e);
/* feed.c, under the lock: send no more copies of the read, so that its stream continues. */
void feed_close(struct req *r);
/* feed.c, under the lock: return how many bytes one job of the read takes. */
uint64_t feed_part(const struct req *r);
/* feed.c, under the lock: let the stream's next copy move the job's list.  Return -EINVAL if no
 * copy is left because the caller changed the segments. */
int feed_send(struct job *j);

/* ------------------------------------------------------------------ carriers */

/* job_build.c, under the lock: take pieces from the request's cursor into the slot.  If
 * job->claimed is set, the pieces were only claimed, and the caller calls job_build_claimed()
 * without the lock. */
void job_build(struct job *j);
void job_build_claimed(struct job *j);
/* copier.c, under the lock: add a job whose bytes are in its slot, or can be copied from their
 * source. */
void copier_add(struct engine *e, struct job *j);

/* check.c, under the lock: take a request whose bytes have moved, if it asks for checksums that are
 * not known yet.  Return false if the request needs no check, or already had one. */
bool check_take(struct req *r);
/* check.c, under the lock: remove a stopped request from those that wait for a check. */
void check_stop(struct req *r);

/* transfer.c, under the lock: start as many pieces of the request as possible.  Return true if the
 * next piece is for a slot; false if it must wait, or there is no next piece. */
bool transfers_start(struct req *r);
/* transfer.c, under the lock: drop the pieces of a stopped request that were to be staged. */
void transfers_redo_drop(struct req *r);

#endif
