/* SPDX-License-Identifier: MIT */
/*
 * Parts (part.h): a part moves one range of a request between the file and memory that the CPU
 * reaches.  The part uses the file hops of the request's plan, such as the page cache and O_DIRECT.
 *
 * part_choose() tries the hops in order.  The first hop that can move the next bytes gets them, as
 * one operation.  If a hop cannot move them, or fails later, its bit is set in p->out, the reason
 * is kept, and the part continues with the other hops.  Bytes that arrived are kept, so the next
 * hop begins where the last one stopped.
 *
 * A write may have to wait for other writes of the file (file/writers.c).
 */
#include "base/err.h"
#include "base/log.h"
#include "core/queue/req.h"
#include "core/ways/part.h"
#include "core/ways/path.h"
#include "core/ways/plan.h"
#include "core/ways/way.h"

#define REAP_BATCH 64u

static void part_reason(struct part *p, uint32_t why, int detail)
{
	if (reason_wanted(p->why)) {
		p->why = why;
		p->detail = detail;
	}
}

void part_event(struct part *p, unsigned hop, uint32_t why, int detail)
{
	const struct plan *plan = req_plan(p->req);

	p->out |= (uint8_t)(1u << hop);
	if (!path_ops_of(plan->hop[hop])->quiet || plan->listed)
		part_reason(p, why, detail);
}

/* ------------------------------------------------------------------ choose */

/* Split bytes off..off+len from the part into a new part that does not use the hop, and start it.
 * Return false if no part is free. */
static bool part_split(struct part *p, uint64_t off, uint64_t len, unsigned hop)
{
	struct part *edge = p->user->edge ? p->user->edge(p) : NULL;

	if (!edge)
		return false;
	edge->off = off;
	edge->len = len;
	edge->pos = p->pos + (off - p->off);
	edge->data = p->data + (off - p->off);
	edge->reg = p->reg;
	edge->out = p->out | (uint8_t)(1u << hop);
	part_start(edge);
	return true;
}

/*
 * Give the edges of a part to other parts, which run at the same time.  The edges are the bytes
 * before and after p->op, the middle that the hop can move.  *end is the end of the part.  If no
 * part is free for the first edge, return false and set *end to the edge's end: this part then
 * moves the edge first.  If none is free for the last edge, this part moves that edge after the
 * middle.
 */
static bool part_take_middle(struct part *p, unsigned hop, uint64_t start, uint64_t *end)
{
	uint64_t from = p->op.off, to = from + p->op.len;

	if (from > start) {
		uint64_t n = from - p->off;

		if (p->got || !part_split(p, p->off, n, hop)) {
			*end = from;
			return false;
		}
		p->pos += n;
		p->off += n;
		p->data += n;
		p->len -= n;
	}
	if (to < *end && part_split(p, to, *end - to, hop))
		p->len = to - p->off;
	return true;
}

bool part_choose(struct part *p)
{
	const struct plan *plan = req_plan(p->req);
	uint64_t start = p->off + p->got, end = p->off + p->len;
	struct io_op *op = &p->op;

	for (unsigned hop = 0; hop < plan->nr_hops; hop++) {
		const struct path_ops *ops = path_ops_of(plan->hop[hop]);
		enum pst_why why;
		int detail = 0;

		if (p->out & 1u << hop)
			continue;
		op->off = start;
		op->len = end - start;
		op->flags = 0;
		p->unproven = NULL;
		why = ops->fit(p, &detail);
		if (unlikely(why)) {
			part_event(p, hop, why, detail);
			continue;
		}
		if (ops->aligned && unlikely(op->off > start || op->off + op->len < end)) {
			part_reason(p, PST_WHY_UNALIGNED, detail);
			if (!part_take_middle(p, hop, start, &end))
				continue;
		}
		p->hop = (uint8_t)hop;
		p->step = PART_BODY;
		op->file = req_file(p->req);
		op->reg = p->reg;
		op->buf = p->data + (int64_t)(op->off - p->off);
		op->kind = p->req->io.op == PST_OP_WRITE ? IO_WRITE : IO_READ;
		return true;
	}
	return false;
}

/* ------------------------------------------------------------------- start */

/* Choose another hop for a write that would have to wait for other writes.  Return true if the
 * write can start by that hop. */
static bool part_may_mix(struct part *p)
{
	if (p->step != PART_BODY || (p->req->io.flags & PST_IO_STRICT) ||
	    !(p->op.flags & IO_OP_DIRECT) || p->hop + 1u >= req_plan(p->req)->nr_hops)
		return false;
	part_event(p, p->hop, PST_WHY_MIXED, 0);
	return part_choose(p) && writers_begin(&p->op);
}

/* Return the I/O context for the operation; create it for the first operation of its kind. */
static int mover_ctx(struct mover *m, const struct io_op *op, struct io_ctx **ret)
{
	int r = 0;

	*ret = io_ctx_for(m->ctx, m->others, op);
	if (likely(*ret))
		return 0;
	r = io_others_add(m->others, op->file->ops->backend, m->ctx->depth, m->efd, false);
	*ret = io_ctx_for(m->ctx, m->others, op);
	if (r < 0)
		log_warn("no I/O context for a file of %s: %s", op->file->name, err_text());
	return r;
}

void part_not_queued(struct part *p, int err)
{
	p->in_flight = false;
	if (err == -EAGAIN) {
		p->next = p->mover->blocked;
		p->mover->blocked = p;
	} else {
		io_op_begin(&p->op);
		p->op.res = err;
		part_op_done(p);
	}
}

void part_queue_other(struct part *p)
{
	struct mover *m = p->mover;
	struct io_ctx *ctx;
	int r;

	if (p->step == PART_BODY && unlikely(p->unproven) && !p->before)
		part_before_keep(p);
	if (p->op.kind == IO_WRITE && unlikely(!writers_begin(&p->op)) && !part_may_mix(p)) {
		writers_wait(&p->op);
		p->next = m->parked;
		m->parked = p;
		return;
	}
	r = mover_ctx(m, &p->op, &ctx);
	if (ctx != m->ctx)
		p->op.deadline_ns = p->req->io.deadline_ns;
	p->in_flight = true;
	if (likely(r == 0))
		r = ctx->ops->queue(ctx, &p->op);
	if (unlikely(r < 0))
		part_not_queued(p, r);
}

static void part_end(struct part *p)
{
	if (unlikely(p->proof))
		part_proof_free(p);
	if (unlikely(p->before))
		free(TAKE_PTR(p->before));
	p->user->done(p);
}

void part_leave(struct part *p)
{
	p->left = true;
	part_end(p);
}

/* Continue a part that has not moved all of its bytes. */
static _noinline_ void part_go_on(struct part *p)
{
	p->err = -p->user->stopped(p);
	if (p->err)
		part_end(p);
	else
		part_start(p);
}

void part_continue(struct part *p)
{
	if (p->got < p->len && !p->err && !p->eof)
		part_go_on(p);
	else
		part_end(p);
}

/* --------------------------------------------------------------------- end */

/* Return how many bytes of the part have arrived, those of the current operation included. */
static uint64_t part_arrived(const struct part *p)
{
	uint64_t end = p->op.off + p->op.moved;

	return end > p->off + p->got ? MIN(end - p->off, p->len) : p->got;
}

/* Handle a short operation: the file ended, an error happened, or the hop cannot move the bytes. */
static void part_missed(struct part *p, uint64_t got, int err)
{
	const struct path_ops *ops = path_ops_of(req_plan(p->req)->hop[p->hop]);
	int detail = 0, stopped = 0;
	enum pst_why why = ops->miss ? ops->miss(p, err, &detail) : PST_WHY_NONE;

	if (why) {
		part_event(p, p->hop, why, detail);
	} else if (!err && p->op.kind == IO_READ) {
		p->eof = true;
	} else if (!err) {
		p->err = got > p->got ? 0 : EIO; /* fail a write that moves nothing, or it would
						  * repeat forever */
	} else if (got < p->len) {               /* else the error concerns bytes after this part */
		if (err == ECANCELED)
			stopped = -p->user->stopped(p);
		p->err = stopped ? stopped : err;
	}
}

static inline void part_body_done(struct part *p)
{
	const struct io_op *op = &p->op;
	const struct path_ops *ops = path_ops_of(req_plan(p->req)->hop[p->hop]);
	uint64_t got = part_arrived(p);

	if (op->pinned)
		p->flags |= PST_DONE_PINNED;
	if (unlikely(op->pin_err))
		part_reason(p, PST_WHY_MEMLOCK, op->pin_err);
	p->bytes[p->hop] += got - p->got;
	if (unlikely(op->res != (int64_t)op->len))
		part_missed(p, got, op->res < 0 ? (int)-op->res : 0);
	else if (ops->hit)
		ops->hit(p);
	if (unlikely(p->unproven) && op->moved) {
		part_prove(p, got);
		return;
	}
	if (unlikely(p->before))
		free(TAKE_PTR(p->before));
	p->got = got;
	part_continue(p);
}

inline void part_op_done(struct part *p)
{
	p->in_flight = false;
	writers_end(&p->op);
	if (unlikely(p->op.ring_err))
		part_reason(p, PST_WHY_NO_URING, p->op.ring_err);
	switch (p->step) {
	case PART_BODY:
		part_body_done(p);
		break;
	case PART_BEFORE:
		part_before_done(p);
		break;
	case PART_SYNC:
		p->err = p->op.res < 0 ? (int)-p->op.res : 0;
		part_end(p);
		break;
	default:
		part_proof_op_done(p);
	}
}

/* ------------------------------------------------------------------ movers */

unsigned mover_reap(struct mover *m)
{
	struct io_op *ops[REAP_BATCH];
	unsigned n, nr = 0;

	do {
		n = m->backend->reap(m->ctx, ops, REAP_BATCH);
		if (unlikely(m->others->nr))
			n += io_others_reap(m->others, ops + n, REAP_BATCH - n);
		for (unsigned i = 0; i < n; i++)
			part_op_done(container_of(ops[i], struct part, op));
		nr += n;
	} while (n == REAP_BATCH);
	return nr;
}

/* Start the operation of a part that had to wait.  End the part if its request was stopped. */
static void part_resume(struct part *p)
{
	int err = p->user->stopped(p);

	if (likely(err == 0)) {
		part_queue(p);
		return;
	}
	io_op_begin(&p->op);
	p->op.res = err;
	part_op_done(p);
}

bool mover_unpark(struct mover *m)
{
	struct part *p = TAKE_PTR(m->parked), *next;
	bool moved = false;

	for (; p; p = next) {
		next = p->next;
		part_resume(p);
		moved |= m->parked != p;
	}
	return moved;
}

void mover_unblock(struct mover *m)
{
	struct part *p = TAKE_PTR(m->blocked), *next;

	for (; p; p = next) {
		next = p->next;
		part_resume(p);
	}
}
