/* SPDX-License-Identifier: MIT */
/*
 * Job parts: the file operations of a job.  Each goes by the first hop that can do it, and by the
 * next one if that fails after all.
 */
#include "base/err.h"
#include "base/log.h"
#include "core/engine/engine.h"
#include "core/path/plan.h"
#include "core/path/proof.h"
#include "core/path/staged.h"
#include "core/queue/req.h"

void job_reason(struct job *j, uint32_t why, int detail)
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

/* May the job part's write start?  If not by O_DIRECT, then perhaps through the page cache. */
static bool job_part_may_write(struct job_part *job_part)
{
	const struct req *r = job_part->job->req;
	uint8_t last = (uint8_t)(r->plan.nr_hops - 1);

	if (likely(writers_begin(&job_part->op)))
		return true;
	if (!(job_part->op.flags & IO_OP_DIRECT) || r->plan.hop[last] != PST_PATH_BUFFERED ||
	    (r->io.flags & PST_IO_STRICT))
		return false;
	job_reason(job_part->job, PST_WHY_MIXED, 0);
	job_part->hop = last;
	job_part->op.flags = 0;
	return writers_begin(&job_part->op);
}

void job_part_queue(struct worker *w, struct job_part *job_part)
{
	int r;

	if (job_part->op.kind == IO_WRITE && unlikely(!job_part_may_write(job_part))) {
		writers_wait(&job_part->op);
		job_part->next = w->parked;
		w->parked = job_part;
		return;
	}
	r = w->engine->backend->queue(w->ctx, &job_part->op);
	if (r == -EAGAIN) {
		job_part->next = w->blocked;
		w->blocked = job_part;
	}
}

static void job_part_op(struct worker *w, struct job_part *job_part, uint8_t flags, uint64_t off,
			uint64_t len)
{
	struct job *j = job_part->job;

	job_part->op.file = req_local(j->req);
	job_part->op.reg = j->reg;
	job_part->op.kind = j->req->io.op == PST_OP_WRITE ? IO_WRITE : IO_READ;
	job_part->op.flags = flags;
	job_part->op.off = off;
	job_part->op.len = len;
	job_part->op.buf = job_part->data + (int64_t)(off - job_part->off);
	job_part_queue(w, job_part);
}

/* Start a job part's own operation by the first hop, from the given one on, that can do it. */
void job_part_start(struct worker *w, struct job_part *job_part, unsigned hop)
{
	struct job *j = job_part->job;
	struct req *r = j->req;
	struct local_file *lf = req_local(r);
	bool write = r->io.op == PST_OP_WRITE;

	job_part->step = PART_BODY;
	for (; hop < r->plan.nr_hops; hop++) {
		uint64_t start = job_part->off, end = job_part->off + job_part->len;

		job_part->hop = (uint8_t)hop;
		switch (r->plan.hop[hop]) {
		case PST_PATH_CACHED:
			if (plan_try_cached(r, job_part->off, job_part->len)) {
				job_part_op(w, job_part, plan_nowait(lf) ? IO_OP_NOWAIT : 0, start,
					    end - start);
				return;
			}
			if (r->plan.listed)
				job_reason(j, PST_WHY_NOT_RESIDENT, 0);
			continue;
		case PST_PATH_DIRECT:
			if (proof_is_bad(job_part_proof(job_part))) {
				job_reason(j, PST_WHY_NOT_PROVEN, 0);
				continue;
			}
			if (lf->direct_bad) {
				job_reason(j, PST_WHY_DIRECT_ERROR, 0);
				continue;
			}
			if (!write) {
				start = align_down(start, lf->off_align);
				end = align_up(end, lf->off_align);
				if (end > INT64_MAX)
					continue;
			}
			job_part_op(w, job_part, IO_OP_DIRECT, start, end - start);
			return;
		default:
			job_part_op(w, job_part, 0, start, end - start);
			return;
		}
	}
	job_part->err = EOPNOTSUPP;
	job_part_end(w, job_part);
}

/* The body came back, whole or short.  Settles what of it was wanted. */
static void job_part_body_done(struct worker *w, struct job_part *job_part)
{
	struct job *j = job_part->job;
	struct req *r = j->req;
	struct io_op *op = &job_part->op;
	bool write = r->io.op == PST_OP_WRITE;
	int err = op->res < 0 ? (int)-op->res : 0;

	if (op->pin_err)
		job_reason(j, PST_WHY_MEMLOCK, op->pin_err);
	if (op->flags & IO_OP_NOWAIT) {
		bool miss = err == EAGAIN || err == EOPNOTSUPP ||
			    (!err && op->moved < op->len &&
			     !plan_at_end(op->file, op->off + op->moved));

		plan_cached(r, !miss && !err);
		if (miss) {
			if (r->plan.listed)
				job_reason(j, PST_WHY_NOT_RESIDENT, 0);
			job_part_start(w, job_part, job_part->hop + 1u);
			return;
		}
	}
	if ((op->flags & IO_OP_DIRECT) && (err == EINVAL || err == EOPNOTSUPP || err == ENOTBLK)) {
		atomic_store(&op->file->direct_bad, true);
		job_reason(j, PST_WHY_DIRECT_ERROR, err);
		log_info("O_DIRECT refused with %s, going on without", err_name(err));
		job_part_start(w, job_part, job_part->hop + 1u);
		return;
	}
	job_part->err = err;
	if (write) {
		job_part->got = op->moved;
	} else {
		uint64_t lead = job_part->off - op->off;

		job_part->got = op->moved > lead ? MIN(op->moved - lead, job_part->len) : 0;
		if (job_part->got == job_part->len)
			job_part->err = err = 0; /* what failed was not asked for */
	}
	j->paths |= PST_PATH_BIT(r->plan.hop[job_part->hop]);
	j->hop_bytes[r->plan.hop[job_part->hop]] += write ? op->moved : job_part->got;
	if (err) {
		job_part_end(w, job_part);
		return;
	}
	if ((op->flags & IO_OP_DIRECT) && op->moved &&
	    proof_state(job_part_proof(job_part)) != PST_STATE_PROVEN) {
		if (!job_part_prove(w, job_part))
			job_part_again(w, job_part);
		return;
	}
	job_part_end(w, job_part);
}

void job_part_op_done(struct worker *w, struct job_part *job_part)
{
	writers_end(&job_part->op);
	if (job_part->step == PART_TRIAL)
		job_part_tried(w, job_part);
	else if (job_part->step == PART_PROOF)
		job_part_proof_done(w, job_part);
	else
		job_part_body_done(w, job_part);
}

void job_part_end(struct worker *w, struct job_part *job_part)
{
	struct job *j = job_part->job;

	job_part_proof_free(job_part);
	if (job_part->err || job_part->got < job_part->len)
		job_settle(j, job_part->pos + job_part->got, job_part->err);
	if (--j->nr_ops == 0)
		job_files_done(w, j);
}

void job_files(struct worker *w, struct job *j)
{
	/* Counted before the first starts, so that the last to end is the last. */
	j->nr_ops = j->nr_job_parts;
	for (unsigned i = 0, n = j->nr_job_parts; i < n; i++)
		job_part_start(w, &j->parts[i], 0);
}
