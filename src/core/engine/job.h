/* SPDX-License-Identifier: MIT */
/*
 * A slot's way through file and device (job.c).
 */
#ifndef PST_JOB_H
#define PST_JOB_H

#include "core/engine/engine.h"

/* job_build.c: take pieces from the request's cursor into the slot, under the engine's lock.  If
 * the job has only claimed them, job_build_claimed() follows without the lock. */
void job_build(struct job *j);
void job_build_claimed(struct job *j);
/* Pieces of the request that fit into a slot, if all of them have one length; else 0. */
unsigned job_even_pieces(const struct req *r);
/* job.c: move the slot's bytes, and then end the job. */
void job_start(struct worker *w, struct job *j);
/* job.c: put the job's copies behind the first nr of v; how many there are then. */
unsigned job_copies(const struct job *j, struct mem_copy *v, unsigned nr);
/* job.c: they were started, by that path of the device's. */
void job_copying(struct job *j, uint32_t by);
/* job.c: the copies of these reads have ended, each with its copy_err. */
void jobs_copied(struct worker *w, struct list *jobs);
/* job.c: reap, copy, complete: true when something moved. */
bool worker_progress(struct worker *w);

#endif
