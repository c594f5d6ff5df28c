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

/* staged_parts.c: start the job's file operations. */
void job_files(struct worker *w, struct job *j);
/* staged_parts.c: an operation of the job part came back. */
void job_part_op_done(struct worker *w, struct job_part *job_part);
/* staged_parts.c: of the job's range nothing holds from pos on. */
void job_settle(struct job *j, uint64_t pos, int err);
/* staged_parts.c: the first reason stays. */
void job_reason(struct job *j, uint32_t why, int detail);
/* staged_parts.c: give the job part's operation to the I/O context. */
void job_part_queue(struct worker *w, struct job_part *job_part);
/* staged_parts.c: start its own operation by the first hop, from the given one on, that can. */
void job_part_start(struct worker *w, struct job_part *job_part, unsigned hop);
/* staged_parts.c: nothing more of the job part is to be done. */
void job_part_end(struct worker *w, struct job_part *job_part);

/* staged_proof.c */
/* Of the direct hop on the mount of the job part's file. */
struct proof *job_part_proof(const struct job_part *job_part);
/* Read what the direct hop moved through the page cache; false when that cannot be. */
bool job_part_prove(struct worker *w, struct job_part *job_part);
/* That came back. */
void job_part_proof_done(struct worker *w, struct job_part *job_part);
void job_part_tried(struct worker *w, struct job_part *job_part);
void job_part_proof_free(struct job_part *job_part);
/* O_DIRECT cannot be trusted here: once more through the page cache. */
void job_part_again(struct worker *w, struct job_part *job_part);

#endif
