/* SPDX-License-Identifier: MIT */
/*
 * A slot's way through file and device (job.c).
 */
#ifndef PST_JOB_H
#define PST_JOB_H

#include "core/sched/engine.h"

/* Move the slot's bytes, and then end the job. */
void job_start(struct worker *w, struct job *j);
/* Put the job's copies behind the first nr of v; how many there are then. */
unsigned job_copies(const struct job *j, struct mem_copy *v, unsigned nr);
/* They were started, by that path of the device's. */
void job_copying(struct job *j, uint32_t by);
/* The copies of these reads have ended, each with its copy_err. */
void jobs_copied(struct worker *w, struct list *jobs);
/* Go on with jobs whose copies on the worker's own stream have ended, or on streams that wait
 * for reads; true when something moved. */
bool jobs_progress(struct worker *w);
bool jobs_progress_fed(struct worker *w);

#endif
