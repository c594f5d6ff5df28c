/* SPDX-License-Identifier: MIT */
/*
 * Moving a slot through file and device (job.c).
 */
#ifndef PST_JOB_H
#define PST_JOB_H

#include "core/sched/engine.h"

/* Move the slot's bytes, then end the job. */
void job_start(struct worker *w, struct job *j);
/* Append the job's copies to the first nr of v, and return how many there are then. */
unsigned job_copies(const struct job *j, struct mem_copy *v, unsigned nr);
/* The job's copies were started, by that path of the device. */
void job_copying(struct job *j, uint32_t by);
/* Handle reads whose copies have ended, each with its copy_err. */
void jobs_copied(struct worker *w, struct list *jobs);
/* Continue jobs whose copies have ended on the worker's own stream, or on streams that wait for
 * reads; true if anything changed. */
bool jobs_progress(struct worker *w);
bool jobs_progress_fed(struct worker *w);

#endif
