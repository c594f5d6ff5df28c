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

/* Hand over a job whose bytes are in its slot, or can be reached by the device.  If own is true,
 * the worker copies the job alone, else the copier does.  Return 0, or the -errno with which the
 * request was stopped. */
int engine_job_filled(struct job *j, bool own);

/* engine_next() for a feeder: return the next job of a read that a stream waits for, or NULL. */
struct job *engine_next_fed(struct worker *w);

/* For a read that a stream waits for: let the stream move the bytes of a job, whose slot and list
 * of copies are filled.  Return 0, or the -errno with which the request was stopped. */
int engine_job_sent(struct job *j);

/* Make w the worker of the job. */
void engine_job_move(struct worker *w, struct job *j);

/*
 * Note that the job goes from file operations to copies (touches is true), or back.  Return 0, or
 * the -errno with which the request was stopped; the job must not continue then.
 */
int engine_job_touches(struct job *j, bool touches);

/* Account for the end of a transfer without a slot, under the lock. */
void engine_transfer_done(struct req *r);

/* Put the request on the engine's list of active ones, under the lock. */
void engine_activate(struct req *r);

/* Return a stopped request to its queue; nothing is in flight. Under the lock. */
void engine_return(struct req *r);

/* Stop the request, under the lock: start nothing more, and cancel its operations; err is
 * positive. */
void engine_stop_locked(struct req *r, int err);

#endif
