/* SPDX-License-Identifier: MIT */
/*
 * A slot's way through file and device (job.c).
 */
#ifndef PST_JOB_H
#define PST_JOB_H

#include "core/engine/engine.h"

/* job_build.c: take pieces from the request's cursor into the slot, under the engine's lock. */
void job_build(struct job *j);
/* job.c: move the slot's bytes, and then end the job. */
void job_start(struct worker *w, struct job *j);
/* job.c: start the copies of the worker's group. */
void group_start(struct worker *w);
/* job.c: reap, copy, complete: true when something moved. */
bool worker_progress(struct worker *w);

#endif
