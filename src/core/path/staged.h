/* SPDX-License-Identifier: MIT */
/*
 * A slot's way through file and device (staged.c).
 */
#ifndef PST_STAGED_H
#define PST_STAGED_H

#include "core/engine/engine.h"

/* staged_build.c: take pieces from the request's cursor into the slot, under the engine's lock. */
void job_build(struct job *j);
/* staged.c: move what the slot has, and then end the job. */
void job_start(struct worker *w, struct job *j);
/* staged.c: start the copies of the worker's group. */
void group_start(struct worker *w);
/* staged.c: reap, copy, complete: true when something moved. */
bool worker_progress(struct worker *w);

/* staged.c: the job's file operations are over. */
void job_files_done(struct worker *w, struct job *j);

/* staged_runs.c: start the job's file operations. */
void job_files(struct worker *w, struct job *j);
/* staged_runs.c: an operation of the run came back. */
void run_op_done(struct worker *w, struct run *run);
/* staged_runs.c: of the job's range nothing holds from pos on. */
void job_settle(struct job *j, uint64_t pos, int err);
/* staged_runs.c: the first reason stays. */
void job_why(struct job *j, uint32_t why, int detail);
/* staged_runs.c: give the run's operation to the lane. */
void run_queue(struct worker *w, struct run *run);
/* staged_runs.c: start the body of a run by the first hop from the given one on that can. */
void run_start(struct worker *w, struct run *run, unsigned hop);
/* staged_runs.c: nothing more of the run is to be done. */
void run_end(struct worker *w, struct run *run);

/* staged_proof.c */
/* Of the direct hop on the run's mount. */
struct proof *run_proof(const struct run *run);
/* Read what the direct hop moved through the page cache; false when that cannot be. */
bool run_prove(struct worker *w, struct run *run);
/* That came back. */
void run_proof_done(struct worker *w, struct run *run);
void run_tried(struct worker *w, struct run *run);
void run_proof_free(struct run *run);
/* O_DIRECT cannot be trusted here: once more through the page cache. */
void run_again(struct worker *w, struct run *run);

#endif
