/* SPDX-License-Identifier: MIT */
/*
 * Which worker takes a job, and waking it (wake.c).  Callers hold the engine's lock.
 */
#ifndef PST_WAKE_H
#define PST_WAKE_H

#include "core/sched/engine.h"

/* Count a job whose bytes a disk wrote into its slot, without a CPU touching them. */
void engine_count_cold(struct engine *e);
/* Count a job whose bytes a CPU wrote, or that needed no disk.  Wake workers, because those that
 * wake nobody while they wait for a disk may be full. */
void engine_count_warm(struct engine *e);

/*
 * Return true if the worker may take the request's next job.  A full worker still takes jobs that
 * would otherwise wait for others that may hang: those in a queue's reserve, the first job of a
 * request, and a queue's part where the limit is one of all workers.  Under contention
 * (contention.h) nobody takes jobs of a read whose queue has enough bytes at the device.
 */
bool worker_may_take(const struct worker *w, const struct req *r, bool by_one);
/*
 * Return true if this worker leaves all jobs to others: to an earlier worker that sleeps and may
 * take more, while reads wait for a disk; a clogged worker to those that are not clogged.  A
 * sleeping one of them was woken then.
 */
bool worker_leaves(const struct worker *w);
/* Update whether the worker is clogged: if hanging operations fill its context, jobs that it takes
 * would hang too. */
void worker_count_ops(struct worker *w);
/* Return true if there are requests but other workers take their jobs. */
bool worker_is_spare(const struct worker *w);
/* Account for a job that the worker has taken. */
void worker_took(struct worker *w, const struct job *j);

/* The first request starts, so it is unknown how many workers keep the device busy. */
void engine_begin(struct engine *e);

/* Wake workers for nr more free slots, or nr jobs of the request. */
void engine_wake(struct engine *e, const struct req *r, unsigned nr);

void worker_wake(struct worker *w);
/*
 * Wake one sleeping worker of the first nr: the one with the fewest jobs, or the first one while
 * reads wait for a disk.  A clogged worker would leave the jobs to one that is not, which is awake
 * if none was found.
 */
void engine_wake_of(struct engine *e, unsigned nr);
/* Wake one of the workers that may take the first request with something to start. */
void engine_wake_one(struct engine *e);
/*
 * Wake another worker if requests may have something for it.  The worker itself looks for a job
 * before it sleeps, which is enough while reads wait for a disk, unless it is busy or full, or may
 * not take all kinds.
 */
void worker_wake_another(const struct worker *w);
/* Wake another worker, because this one was woken but must not take the jobs; one of those before
 * it may. */
void worker_pass_on(const struct worker *w);

#endif
