/* SPDX-License-Identifier: MIT */
/*
 * These functions tell which worker takes a job, and wake it (wake.c).  Callers hold the engine's
 * lock.
 */
#ifndef PST_WAKE_H
#define PST_WAKE_H

#include "core/sched/engine.h"

/* A disk has put a read's bytes into its slot, and no CPU has touched them. */
void engine_count_cold(struct engine *e);
/* A CPU has, or no disk was needed.  Those who wake nobody while they wait for one may be full. */
void engine_count_warm(struct engine *e);

/*
 * May the worker take the request's next job?  A full worker still takes jobs that would else
 * wait for others that may hang: those in a queue's reserve, the first job of a request, and where
 * the limit is one of all workers, a queue's part of it.  In a contention (contention.h) a read whose queue
 * has enough at the device waits for that alone, so that nobody takes its jobs.
 */
bool worker_may_take(const struct worker *w, const struct req *r, bool by_one);
/*
 * Does this worker leave all that there is to others?  Where a disk is waited for, to a worker
 * before it that sleeps and may take more; and a clogged one to those that are not.  One of them
 * that sleeps was woken then.
 */
bool worker_leaves(const struct worker *w);
/* Is it clogged?  If operations that hang fill its context, jobs that it takes would hang, too. */
void worker_count_ops(struct worker *w);
/* Are there requests, and others take their jobs? */
bool worker_is_spare(const struct worker *w);
/* The worker has taken the job: it is busier now, and with a write nobody waits for a disk. */
void worker_took(struct worker *w, const struct job *j);

/* The first request starts: nobody knows yet how many workers keep the device busy. */
void engine_begin(struct engine *e);

/* There are so many free slots more, or so many jobs of the request. */
void engine_wake(struct engine *e, const struct req *r, unsigned nr);

void worker_wake(struct worker *w);
/*
 * Of the first nr workers one that sleeps: the one with the fewest jobs, and where a disk is waited
 * for the first.  A clogged one would leave the jobs to one that is not, which is awake if none
 * was found.
 */
void engine_wake_of(struct engine *e, unsigned nr);
/* Likewise of those that may take the first request that has something to start. */
void engine_wake_one(struct engine *e);
/*
 * Requests may have something for another worker, too.  The worker itself looks for a job before it
 * sleeps, and where a disk is waited for that will do, unless it is busy or full, or may not take
 * all kinds.
 */
void worker_wake_another(const struct worker *w);
/* A worker that was woken must not take what there is: one of those before it may, and is woken. */
void worker_pass_on(const struct worker *w);

#endif
