/* SPDX-License-Identifier: MIT */
/* Jobs: move the bytes of a slot between file and device (job.c). */
#ifndef PST_JOB_H
#define PST_JOB_H

#include "core/sched/engine.h"

/* Move the slot's bytes, then end the job. */
void job_start(struct worker *w, struct job *j);
/* Append the job's copies to v, which has nr copies.  Return the new number. */
unsigned job_copies(const struct job *j, struct mem_copy *v, unsigned nr);
/* Record that the job's copies were started, and by which path (PST_PATH_*) of the device. */
void job_copying(struct job *j, uint32_t by);
/* Handle reads whose copies have ended.  Each job's copy_err has its error. */
void jobs_copied(struct worker *w, struct list *jobs);
/* Continue jobs whose copies have ended: on the worker's stream, or on streams that wait for reads
 * (fed).  Return true if anything changed. */
bool jobs_progress(struct worker *w);
bool jobs_progress_fed(struct worker *w);

#endif
