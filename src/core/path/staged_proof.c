/* SPDX-License-Identifier: MIT */
/*
 * Proofs of job parts: what O_DIRECT moved is compared with a plain read.
 */
#include <string.h>

#include "core/engine/engine.h"
#include "core/path/plan.h"
#include "core/path/proof.h"
#include "core/path/staged.h"
#include "core/path/trial.h"
#include "core/queue/req.h"

struct proof *job_part_proof(const struct job_part *job_part)
{
	const struct pst_io *io = &job_part->job->req->io;

	return io->file->direct[io->op == PST_OP_WRITE ? PROOF_WRITE : PROOF_READ];
}

bool job_part_prove(struct worker *w, struct job_part *job_part)
{
	struct local_file *lf = plan_reader(job_part->job->req->io.file);

	job_part->proof_off = job_part->op.off;
	job_part->proof_len = MIN(job_part->op.moved, PROOF_MAX);
	job_part->proof_data = job_part->op.buf;
	job_part->proof_buf = malloc(job_part->proof_len);
	if (!lf || !job_part->proof_buf)
		return false;
	job_part->step = PART_PROOF;
	job_part->op.file = lf;
	job_part->op.reg = NULL;
	job_part->op.kind = IO_READ;
	job_part->op.flags = 0;
	job_part->op.off = job_part->proof_off;
	job_part->op.len = job_part->proof_len;
	job_part->op.buf = job_part->proof_buf;
	job_part_queue(w, job_part);
	return true;
}

void job_part_proof_free(struct job_part *job_part)
{
	free(TAKE_PTR(job_part->proof_buf));
	trial_free(TAKE_PTR(job_part->trial));
}

void job_part_again(struct worker *w, struct job_part *job_part)
{
	const struct plan *plan = &job_part->job->req->plan;

	job_part_proof_free(job_part);
	job_reason(job_part->job, PST_WHY_NOT_PROVEN, 0);
	job_part->got = 0;
	job_part_start(w, job_part,
		       plan->hop[plan->nr_hops - 1u] == PST_PATH_BUFFERED ? plan->nr_hops - 1u
									  : plan->nr_hops);
}

/* Start the trial's next operation, or start over. */
static void job_part_try(struct worker *w, struct job_part *job_part)
{
	if (!job_part->trial || engine_job_touches(job_part->job, job_part->job->touches) < 0) {
		job_part_again(w, job_part);
		return;
	}
	job_part->step = PART_TRIAL;
	trial_op(job_part->trial, &job_part->op);
	job_part_queue(w, job_part);
}

void job_part_tried(struct worker *w, struct job_part *job_part)
{
	enum trial_end end = trial_step(job_part->trial, job_part->op.res);

	if (end == TRIAL_ON) {
		job_part_try(w, job_part);
		return;
	}
	if (end == TRIAL_LIE)
		proof_failed(job_part_proof(job_part));
	job_part_again(w, job_part);
}

void job_part_proof_done(struct worker *w, struct job_part *job_part)
{
	struct req *r = job_part->job->req;
	struct proof *proof = job_part_proof(job_part);

	if (job_part->op.res != (int64_t)job_part->proof_len) {
		/* The plain read failed or the file shrank: that says nothing of O_DIRECT. */
		job_part_again(w, job_part);
		return;
	}
	if (memcmp(job_part->proof_buf, job_part->proof_data, job_part->proof_len) == 0) {
		job_part_proof_free(job_part);
		proof_good(proof);
		job_part->job->flags |= PST_DONE_PROOF;
		job_part_end(w, job_part);
		return;
	}
	job_reason(job_part->job, PST_WHY_NOT_PROVEN, 0);
	job_part->trial = trial_new(r, job_part->proof_off, job_part->proof_len,
				    job_part->proof_data, job_part->proof_buf);
	job_part_try(w, job_part);
}
