/* SPDX-License-Identifier: MIT */
/*
 * Whose turn it is (turns.c).
 */
#ifndef PST_TURNS_H
#define PST_TURNS_H

#include "core/sched/engine.h"

/* The next piece of work for a worker, NULL when there is none for it now. */
struct job *engine_next(struct worker *w);

/* The job is over; settle it, and hand its request back if it was the last. */
void engine_job_done(struct job *j);

/* The same for all of a list, by their links.  The worker calls engine_next() before it
 * sleeps. */
void engine_jobs_done(struct worker *w, struct list *jobs);

/* A read's bytes are in its slot, or in reach of the device: it is copied next, by its
 * worker alone (own) or with others.  0, or the -errno that its request was stopped with. */
int engine_job_filled(struct job *j, bool own);

/* As engine_next(), for a thread that feeds. */
struct job *engine_next_fed(struct worker *w);

/* The bytes of a read that a stream waits for are in their slot, and the list of its
 * copies is written: the stream moves them.  0, or the -errno that its request was stopped with. */
int engine_job_sent(struct job *j);

/* The job goes on with that worker. */
void engine_job_move(struct worker *w, struct job *j);

/*
 * The job goes from its file operations to its copies, or back.  0, or the -errno that its
 * request was stopped with: then it must not.
 */
int engine_job_touches(struct job *j, bool touches);

/* Under the lock: a transfer of the request without a slot is over. */
void engine_transfer_done(struct req *r);

/* Under the lock: the request may start. */
void engine_activate(struct req *r);

/* Under the lock: nothing of the stopped request is under way; its queue gets it back. */
void engine_return(struct req *r);

/* Under the lock: as engine_stop(). */
void engine_stop_locked(struct req *r, int err);

#endif
