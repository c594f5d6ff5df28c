/* SPDX-License-Identifier: MIT */
/*
 * The engine's scheduling (turns.c).
 */
#ifndef PST_TURNS_H
#define PST_TURNS_H

#include "core/sched/engine.h"

/* Return the next job for a worker, or NULL if there is none now. */
struct job *engine_next(struct worker *w);

/* End a job: record its results, and return its request if this was the last job. */
void engine_job_done(struct job *j);

/* End all jobs of a list.  The worker calls engine_next() before it sleeps. */
void engine_jobs_done(struct worker *w, struct list *jobs);

/* A read's bytes are in its slot, or in reach of the device: copy them next, by the worker alone
 * (own) or with others.  Return 0, or the -errno with which the request was stopped. */
int engine_job_filled(struct job *j, bool own);

/* Return the next job for a feeder, as engine_next(). */
struct job *engine_next_fed(struct worker *w);

/* The bytes of a read that a stream waits for are in their slot, with the list of copies: let the
 * stream move them.  Return 0, or the -errno with which the request was stopped. */
int engine_job_sent(struct job *j);

/* Move the job to that worker. */
void engine_job_move(struct worker *w, struct job *j);

/*
 * The job moves from its file operations to its copies, or back.  Return 0, or the -errno with
 * which the request was stopped: then it must not.
 */
int engine_job_touches(struct job *j, bool touches);

/* A transfer without a slot has ended, under the lock. */
void engine_transfer_done(struct req *r);

/* Let the request start, under the lock. */
void engine_activate(struct req *r);

/* Return a stopped request without anything in flight to its queue, under the lock. */
void engine_return(struct req *r);

/* As engine_stop(), under the lock. */
void engine_stop_locked(struct req *r, int err);

#endif
