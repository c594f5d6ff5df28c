// SPDX-License-Identifier: MIT
/*
 * The file operations of a job: by the first hop that can, and by the next where one cannot after
 * all.
 */
#include "base/err.h"
#include "base/log.h"
#include "core/engine/engine.h"
#include "core/path/plan.h"
#include "core/path/proof.h"
#include "core/path/staged.h"
#include "core/queue/req.h"

void job_why(struct job *j, uint32_t why, int detail)
{
	if (!j->why) {
		j->why = why;
		j->detail = detail;
	}
}

void job_settle(struct job *j, uint64_t pos, int err)
{
	j->limit = MIN(j->limit, pos);
	if (err && pos <= j->err_pos) {
		j->err_pos = pos;
		j->err = err;
	}
}

/* May the run's write start?  If not by O_DIRECT, then perhaps through the page cache. */
static bool run_may_write(struct run *run)
{
	const struct req *r = run->job->req;
	uint8_t last = (uint8_t)(r->plan.nr_hops - 1);

	if (likely(store_write_begin(&run->op)))
		return true;
	if (!(run->op.flags & STORE_OP_DIRECT) || r->plan.hop[last] != PST_PATH_BUFFERED ||
	    (r->io.flags & PST_IO_STRICT))
		return false;
	job_why(run->job, PST_WHY_MIXED, 0);
	run->hop = last;
	run->op.flags = 0;
	return store_write_begin(&run->op);
}

void run_queue(struct worker *w, struct run *run)
{
	int r;

	if (run->op.kind == STORE_WRITE && unlikely(!run_may_write(run))) {
		store_write_wait(&run->op);
		run->next = w->parked;
		w->parked = run;
		return;
	}
	r = w->engine->store->queue(w->lane, &run->op);
	if (r == -EAGAIN) {
		run->next = w->blocked;
		w->blocked = run;
	}
}

static void run_op(struct worker *w, struct run *run, uint8_t flags, uint64_t off, uint64_t len)
{
	struct job *j = run->job;

	run->op.file = req_sf(j->req);
	run->op.sbuf = j->sbuf;
	run->op.kind = j->req->io.op == PST_OP_WRITE ? STORE_WRITE : STORE_READ;
	run->op.flags = flags;
	run->op.off = off;
	run->op.len = len;
	run->op.buf = run->data + (int64_t)(off - run->off);
	run_queue(w, run);
}

/* Start the body of a run by the first hop from the given one on that can. */
void run_start(struct worker *w, struct run *run, unsigned hop)
{
	struct job *j = run->job;
	struct req *r = j->req;
	struct store_file *sf = req_sf(r);
	bool write = r->io.op == PST_OP_WRITE;

	run->step = RUN_BODY;
	for (; hop < r->plan.nr_hops; hop++) {
		uint64_t start = run->off, end = run->off + run->len;

		run->hop = (uint8_t)hop;
		switch (r->plan.hop[hop]) {
		case PST_PATH_CACHED:
			if (plan_try_cached(r, run->off, run->len)) {
				run_op(w, run, plan_nowait(sf) ? STORE_OP_NOWAIT : 0, start,
				       end - start);
				return;
			}
			if (r->plan.listed)
				job_why(j, PST_WHY_NOT_RESIDENT, 0);
			continue;
		case PST_PATH_DIRECT:
			if (proof_is_bad(run_proof(run))) {
				job_why(j, PST_WHY_NOT_PROVEN, 0);
				continue;
			}
			if (sf->direct_bad) {
				job_why(j, PST_WHY_DIRECT_ERROR, 0);
				continue;
			}
			if (!write) {
				start = align_down(start, sf->off_align);
				end = align_up(end, sf->off_align);
				if (end > INT64_MAX)
					continue;
			}
			run_op(w, run, STORE_OP_DIRECT, start, end - start);
			return;
		default:
			run_op(w, run, 0, start, end - start);
			return;
		}
	}
	run->err = EOPNOTSUPP;
	run_end(w, run);
}

/* The body came back whole or short; what of it was wanted? */
static void run_body_done(struct worker *w, struct run *run)
{
	struct job *j = run->job;
	struct req *r = j->req;
	struct store_op *op = &run->op;
	bool write = r->io.op == PST_OP_WRITE;
	int err = op->res < 0 ? (int)-op->res : 0;

	if (op->pin_err)
		job_why(j, PST_WHY_MEMLOCK, op->pin_err);
	if (op->flags & STORE_OP_NOWAIT) {
		bool miss = err == EAGAIN || err == EOPNOTSUPP ||
			    (!err && op->moved < op->len &&
			     !plan_at_end(op->file, op->off + op->moved));

		plan_cached(r, !miss && !err);
		if (miss) {
			if (r->plan.listed)
				job_why(j, PST_WHY_NOT_RESIDENT, 0);
			run_start(w, run, run->hop + 1u);
			return;
		}
	}
	if ((op->flags & STORE_OP_DIRECT) &&
	    (err == EINVAL || err == EOPNOTSUPP || err == ENOTBLK)) {
		atomic_store(&op->file->direct_bad, true);
		job_why(j, PST_WHY_DIRECT_ERROR, err);
		log_info("O_DIRECT refused with %s, going on without", err_name(err));
		run_start(w, run, run->hop + 1u);
		return;
	}
	run->err = err;
	if (write) {
		run->got = op->moved;
	} else {
		uint64_t lead = run->off - op->off;

		run->got = op->moved > lead ? MIN(op->moved - lead, run->len) : 0;
		if (run->got == run->len)
			run->err = err = 0; /* what failed was not asked for */
	}
	j->paths |= PST_PATH_BIT(r->plan.hop[run->hop]);
	j->hop_bytes[r->plan.hop[run->hop]] += write ? op->moved : run->got;
	if (err) {
		run_end(w, run);
		return;
	}
	if ((op->flags & STORE_OP_DIRECT) && op->moved &&
	    proof_state(run_proof(run)) != PST_STATE_PROVEN) {
		if (!run_prove(w, run))
			run_again(w, run);
		return;
	}
	run_end(w, run);
}

void run_op_done(struct worker *w, struct run *run)
{
	store_write_end(&run->op);
	if (run->step == RUN_TRIAL)
		run_tried(w, run);
	else if (run->step == RUN_PROOF)
		run_proof_done(w, run);
	else
		run_body_done(w, run);
}

void run_end(struct worker *w, struct run *run)
{
	struct job *j = run->job;

	run_proof_free(run);
	if (run->err || run->got < run->len)
		job_settle(j, run->pos + run->got, run->err);
	if (--j->nr_ops == 0)
		job_files_done(w, j);
}

void job_files(struct worker *w, struct job *j)
{
	/* Counted before the first starts, so that the last to end is the last. */
	j->nr_ops = j->nr_runs;
	for (unsigned i = 0, n = j->nr_runs; i < n; i++)
		run_start(w, &j->runs[i], 0);
}
