/* SPDX-License-Identifier: MIT */
/*
 * Proofs of parts: what O_DIRECT moved is compared with a plain read.
 */
#include <string.h>

#include "base/uaccess.h"
#include "core/path/parts.h"
#include "core/path/plan.h"
#include "core/path/proof.h"
#include "core/path/trial.h"
#include "core/queue/cursor.h"
#include "core/queue/queue.h"
#include "core/queue/req.h"

/*
 * Read what a direct hop moved through the page cache into a buffer of our own.  False when
 * that cannot even be started.
 */
bool parts_prove(struct req *r)
{
	struct local_file *lf = plan_reader(r->io.file);
	struct part *p;

	r->proof_buf = malloc(r->proof_len);
	if (!lf || !r->proof_buf)
		return false;
	p = part_new(r);
	if (!p)
		return false;
	p->proving = true;
	p->op.file = lf;
	p->op.reg = NULL;
	p->op.buf = r->proof_buf;
	p->op.off = r->proof_off;
	p->op.len = r->proof_len;
	p->op.kind = IO_READ;
	p->op.flags = 0;
	part_queue(p);
	return true;
}

/* Start the trial's next operation, or start over. */
static void parts_try(struct req *r)
{
	struct part *p = r->trial ? part_new(r) : NULL;

	if (!p) {
		parts_again(r);
		return;
	}
	p->proving = true;
	p->hop = 0;
	trial_op(r->trial, &p->op);
	part_queue(p);
}

static void parts_tried(struct req *r, int64_t res)
{
	enum trial_end end = trial_step(r->trial, res);

	if (end == TRIAL_ON) {
		parts_try(r);
		return;
	}
	if (end == TRIAL_LIE)
		proof_failed(r->proof);
	parts_again(r);
}

/* Did the direct hop move what a plain read gave?  1; 0; -EFAULT: nobody can tell any more. */
static int parts_same(const struct req *r)
{
	if (req_stays(r))
		return memcmp(r->proof_buf, r->proof_data, r->proof_len) == 0;
	return uaccess_same(r->proof_data, r->proof_buf, r->proof_len);
}

void parts_proof_done(struct req *r, int64_t res)
{
	int same;

	if (r->stop) {
		/* The data is there, but nobody may rely on the hop that brought it. */
		req_settle(r, 0, r->total, 0, r->end_err);
		queue_finish(r);
		return;
	}
	if (r->trial) {
		parts_tried(r, res);
		return;
	}
	if (res != (int64_t)r->proof_len) {
		/* The plain read failed or the file shrank: that says nothing of O_DIRECT. */
		parts_again(r);
		return;
	}
	same = parts_same(r);
	if (same < 0) {
		req_settle(r, 0, r->total, 0, -same);
		queue_finish(r);
		return;
	}
	if (same) {
		proof_good(r->proof);
		r->flags |= PST_DONE_PROOF;
		r->proof = NULL;
		queue_finish(r);
		return;
	}
	req_reason(r, PST_WHY_NOT_PROVEN, 0);
	r->trial = trial_new(r, r->proof_off, r->proof_len, r->proof_data, r->proof_buf);
	parts_try(r);
}

/* The direct hop moved other bytes than a plain read sees, or nobody can tell: once more. */
void parts_again(struct req *r)
{
	r->proof = NULL;
	req_reason(r, PST_WHY_NOT_PROVEN, 0);
	if (r->plan.hop[r->plan.nr_hops - 1u] != PST_PATH_BUFFERED ||
	    (r->io.flags & PST_IO_STRICT)) {
		req_settle(r, 0, r->total, 0, EOPNOTSUPP);
		queue_finish(r);
		return;
	}
	r->state = REQ_ACTIVE;
	r->plan.hop[0] = PST_PATH_BUFFERED;
	r->plan.nr_hops = 1;
	r->limit = r->total;
	r->err = 0;
	r->err_pos = UINT64_MAX;
	r->edge_pos = UINT64_MAX;
	r->second = false;
	cursor_init(&r->cur, r->cur.segs, r->cur.nr);
	parts_start(r);
}
