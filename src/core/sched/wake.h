/* SPDX-License-Identifier: MIT */
/* Choose the worker that takes a job, and wake it (wake.c).  Callers hold the engine's lock. */
#ifndef PST_WAKE_H
#define PST_WAKE_H

#include "core/sched/engine.h"

/* Count a job whose bytes a disk wrote into its slot by DMA. */
void engine_count_cold(struct engine *e);
/* Count a job whose bytes a CPU wrote, or that needed no disk.  Wake a worker if reads waited for a
 * disk before: full workers wake no others in that mode. */
void engine_count_warm(struct engine *e);

/*
 * Return true if the worker may take the request's next job.  by_one: one worker takes jobs of this
 * kind for all.  A full worker still takes jobs that would otherwise wait for jobs that may hang:
 * jobs within a queue's reserve, the first job of a request, and, while reads wait for a disk, jobs
 * within a queue's part of all_jobs().  Under contention (contention.h) no worker takes jobs of a
 * read whose queue has enough bytes at the device.
 */
bool worker_may_take(const struct worker *w, const struct req *r, bool by_one);
/*
 * If this worker must leave all jobs to other workers, wake one of those and return true.  A
 * clogged worker leaves jobs to workers that are not clogged.  While reads wait for a disk, a
 * worker leaves jobs to earlier workers that may take more.
 */
bool worker_leaves(const struct worker *w);
/* Update whether the worker is clogged.  If hanging operations fill its context, new jobs would
 * hang too. */
void worker_count_ops(struct worker *w);
/* Return true if there are requests, but other workers take all of their jobs. */
bool worker_is_spare(const struct worker *w);
/* Account for a job that the worker has taken. */
void worker_took(struct worker *w, const struct job *j);

/* Assume that all workers are needed, because the first request starts. */
void engine_begin(struct engine *e);

/* Wake workers for nr more free slots, or for nr jobs of the request if r is not NULL. */
void engine_wake(struct engine *e, const struct req *r, unsigned nr);

void worker_wake(struct worker *w);
/*
 * Wake one sleeping worker of the first nr: the one with the fewest jobs, or the first one while
 * reads wait for a disk.  Prefer workers that are not clogged.
 */
void engine_wake_of(struct engine *e, unsigned nr);
/* Wake one of the workers that may take the first request with something to start. */
void engine_wake_one(struct engine *e);
/*
 * Wake another worker if requests may have jobs for it.  While reads wait for a disk, wake none
 * unless this worker is busy or full, or may not take all kinds of jobs: this worker looks for a
 * job itself before it sleeps.
 */
void worker_wake_another(const struct worker *w);
/* Wake an earlier worker that may take the jobs: this one was woken, but must not take them. */
void worker_pass_on(const struct worker *w);

#endif
