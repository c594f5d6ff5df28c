// SPDX-License-Identifier: MIT
/*
 * What O_DIRECT moved between a file and a slot is compared with a plain read.
 */
#include <string.h>

#include "core/engine/engine.h"
#include "core/path/plan.h"
#include "core/path/proof.h"
#include "core/path/staged.h"
#include "core/path/trial.h"
#include "core/queue/req.h"

struct proof *run_proof(const struct run *run)
{
	const struct pst_io *io = &run->job->req->io;

	return io->file->direct[io->op == PST_OP_WRITE ? PROOF_WRITE : PROOF_READ];
}

bool run_prove(struct worker *w, struct run *run)
{
	struct store_file *sf = plan_reader(run->job->req->io.file);

	run->proof_off = run->op.off;
	run->proof_len = MIN(run->op.moved, PROOF_MAX);
	run->proof_data = run->op.buf;
	run->proof_buf = malloc(run->proof_len);
	if (!sf || !run->proof_buf)
		return false;
	run->step = RUN_PROOF;
	run->op.file = sf;
	run->op.sbuf = NULL;
	run->op.kind = STORE_READ;
	run->op.flags = 0;
	run->op.off = run->proof_off;
	run->op.len = run->proof_len;
	run->op.buf = run->proof_buf;
	run_queue(w, run);
	return true;
}

void run_proof_free(struct run *run)
{
	free(TAKE_PTR(run->proof_buf));
	trial_free(TAKE_PTR(run->trial));
}

void run_again(struct worker *w, struct run *run)
{
	const struct plan *plan = &run->job->req->plan;

	run_proof_free(run);
	job_why(run->job, PST_WHY_NOT_PROVEN, 0);
	run->got = 0;
	run_start(w, run,
		  plan->hop[plan->nr_hops - 1u] == PST_PATH_BUFFERED ? plan->nr_hops - 1u
								     : plan->nr_hops);
}

/* Start the trial's next operation, or start over. */
static void run_try(struct worker *w, struct run *run)
{
	if (!run->trial || engine_job_touches(run->job, run->job->touches) < 0) {
		run_again(w, run);
		return;
	}
	run->step = RUN_TRIAL;
	trial_op(run->trial, &run->op);
	run_queue(w, run);
}

void run_tried(struct worker *w, struct run *run)
{
	enum trial_end end = trial_step(run->trial, run->op.res);

	if (end == TRIAL_ON) {
		run_try(w, run);
		return;
	}
	if (end == TRIAL_LIE)
		proof_failed(run_proof(run));
	run_again(w, run);
}

void run_proof_done(struct worker *w, struct run *run)
{
	struct req *r = run->job->req;
	struct proof *proof = run_proof(run);

	if (run->op.res != (int64_t)run->proof_len) {
		/* The plain read failed or the file shrank: that says nothing of O_DIRECT. */
		run_again(w, run);
		return;
	}
	if (memcmp(run->proof_buf, run->proof_data, run->proof_len) == 0) {
		run_proof_free(run);
		proof_good(proof);
		run->job->flags |= PST_DONE_PROOF;
		run_end(w, run);
		return;
	}
	job_why(run->job, PST_WHY_NOT_PROVEN, 0);
	run->trial = trial_new(r, run->proof_off, run->proof_len, run->proof_data, run->proof_buf);
	run_try(w, run);
}
