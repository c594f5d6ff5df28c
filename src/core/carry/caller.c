/* SPDX-License-Identifier: MIT */
/*
 * Requests on memory that the CPU can use: host memory, or device memory through a window.  A
 * request is cut into parts (part.c), which the caller's thread starts and ends inside submit and
 * reap.
 */
#include <string.h>

#include "base/err.h"
#include "window/copy.h"
#include "core/carry/caller.h"
#include "core/queue/cursor.h"
#include "core/queue/object.h"
#include "core/queue/queue.h"
#include "core/queue/req.h"
#include "core/sched/share.h"
#include "core/ways/part.h"
#include "core/ways/path.h"
#include "core/ways/plan.h"
#include "core/ways/way.h"

/* Return the address of the piece, and cut the piece to the bytes that are contiguous there.
 * Return NULL if the CPU cannot use the memory.  For device memory *ret_hold may be set. */
static char *piece_addr(struct req *r, struct piece *p, struct hold **ret_hold)
{
	if (likely(!req_plan(r)->dev))
		return req_host(r, p->mem_off);
	return path_ops_of(req_plan(r)->dev)->reach(r, p, ret_hold);
}

/* Return how many of the len bytes at off the next part takes.  A long piece is cut at block
 * boundaries of the file. */
static uint64_t part_len(const struct req *r, uint64_t off, uint64_t len)
{
	uint64_t unit = MAX(PAGE, req_file(r)->off_align);

	return len <= PART_MAX ? len : align_down(off + PART_MAX, unit) - off;
}

/* ------------------------------------------------------------ users of parts */

static inline void parts_check_end(struct req *r);

static void part_free(struct part *p)
{
	struct req *r = p->req;

	hold_put(&r->q->holder, &p->hold);
	r->nr_parts--;
	if (likely(p == &req_caller(r)->first)) {
		req_caller(r)->first_used = false;
		return;
	}
	list_del(&p->link);
	p->next = queue_caller(r->q)->parts;
	queue_caller(r->q)->parts = p;
}

static int part_stopped(const struct part *p)
{
	return p->req->stop ? -p->req->end_err : 0;
}

/* Add the part's results to its request. */
static void part_results(struct req *r, const struct part *p)
{
	uint64_t sum = 0;

	if (unlikely(p->why))
		req_reason(r, p->why, p->detail);
	r->res.flags |= p->flags;
	for (unsigned i = 0; i < req_plan(r)->nr_hops; i++) {
		if (!p->bytes[i])
			continue;
		req_moved(r, req_plan(r)->hop[i], p->bytes[i]);
		sum += p->bytes[i];
	}
	if (req_plan(r)->dev && !path_is_hop(req_plan(r)->dev) && sum) {
		copy_fence_stores(); /* wait for the kernel's stores into the window */
		req_moved(r, req_plan(r)->dev, sum);
	}
}

/* Handle bytes that no hop can move: leave the request to the engine, or return an error. */
static int no_hop(struct req *r)
{
	char text[200];

	if (req_plan(r)->restage) {
		req_caller(r)->left = true;
		return 0;
	}
	(void)err_set(EOPNOTSUPP, "no hop is left for this request: %s",
		      pst_why_text(r->res.why, r->res.detail, text, sizeof(text)));
	return EOPNOTSUPP;
}

static void caller_part_done(struct part *p)
{
	struct req *r = p->req;

	if (unlikely(req_is_late(r))) {
		/* The request completed before this part ended.  The request's state changes when
		 * its last part has ended. */
		part_free(p);
		req_caller(r)->left = false;
		if (!r->nr_parts)
			req_step(r, REQ_QUIET);
		return;
	}
	if (p->step == PART_SYNC) {
		if (p->err)
			r->res.err = p->err == ECANCELED && r->stop ? r->end_err : p->err;
		part_free(p);
		req_step(r, REQ_QUIET);
		return;
	}
	part_results(r, p);
	req_settle(r, p->pos, p->len, p->got, p->left ? no_hop(r) : p->err);
	/* Nothing follows the end of the file, so read no further if the request has one piece. */
	if (p->eof && r->one_piece)
		r->cur.seg = r->cur.nr;
	part_free(p);
	parts_check_end(r);
}

static struct part *part_edge(struct part *of);

static const struct part_user caller = {
	.stopped = part_stopped,
	.done = caller_part_done,
	.edge = part_edge,
};

static struct part *part_first(struct req *r)
{
	req_caller(r)->first_used = true;
	r->nr_parts++;
	part_init(&req_caller(r)->first, r, &r->q->mover, &caller);
	return &req_caller(r)->first;
}

/* Return a part of the queue for the request, or NULL if none is free. */
static struct part *part_more(struct req *r)
{
	struct caller_queue *cq = queue_caller(r->q);
	struct part *p = cq->parts;

	if (!p)
		return NULL;
	cq->parts = p->next;
	r->nr_parts++;
	part_init(p, r, &r->q->mover, &caller);
	list_add_tail(&req_caller(r)->more, &p->link);
	return p;
}

static struct part *caller_part_new(struct req *r)
{
	return req_caller(r)->first_used ? part_more(r) : part_first(r);
}

static struct part *part_edge(struct part *of)
{
	return caller_part_new(of->req);
}

/* ------------------------------------------------------------------- start */

/*
 * Return true if the part may start now.  This thread copies bytes from the page cache when the I/O
 * context is flushed, and checks no deadlines or cancellations during the copy.  To limit the
 * delay, the thread copies one bounded part at a time: a small one in pst_queue_submit(), the
 * others in pst_queue_reap().
 */
static bool may_copy(const struct part *p)
{
	struct pst_queue *q = p->req->q;
	const struct io_op *op = &p->op;

	/* Writes, O_DIRECT, and providers with their own I/O context do not copy on this thread. */
	if (op->kind != IO_READ || (op->flags & IO_OP_DIRECT) || op->file->ops->backend)
		return true;
	if (likely(op->len <= q->copy_left)) {
		q->copy_left -= op->len;
		return true;
	}
	/* Bytes that are not resident come from the disk, and are not copied on this thread. */
	if (!(op->flags & IO_OP_NOWAIT) && file_resident(op->file, op->off, op->len) <= 0)
		return true;
	q->more = true;
	return false;
}

/* Start a part whose range is set.  Return false if other requests must go first. */
static inline bool start_part(struct req *r, struct part *p)
{
	uint64_t len = p->len; /* length before edges are split off */

	p->reg = req_mem(r)->region->reg;
	if (unlikely(!p->data) || unlikely(!part_choose(p))) {
		cursor_skip(&r->cur, len);
		p->left = true;
		caller_part_done(p);
		return true;
	}
	if (unlikely(!may_copy(p))) {
		part_free(p);
		return false;
	}
	cursor_skip(&r->cur, len);
	part_queue(p);
	return true;
}

/* Start another part.  Return false if none can start now. */
static bool start_next(struct req *r)
{
	struct part *p = caller_part_new(r);
	struct piece pc;

	if (!p)
		return false;
	(void)cursor_peek(&r->cur, &pc);
	p->data = piece_addr(r, &pc, &p->hold);
	if (unlikely(!p->data && req_way(r)->later)) {
		/* Poll, because no event reports that the memory is free. */
		req_way(r)->later = false;
		r->q->more = true;
		part_free(p);
		return false;
	}
	p->len = part_len(r, pc.file_off, pc.len);
	p->pos = pc.pos;
	p->off = pc.file_off;
	/* If the engine can move the request instead (restage), use only the first hop: a window is
	 * then only for bytes in the page cache, and no other hop reaches a device by itself. */
	if (unlikely(req_plan(r)->restage) &&
	    (r->io.op == PST_OP_READ || path_is_hop(req_plan(r)->dev)))
		p->out = (uint8_t)~1u;
	return start_part(r, p);
}

/* Start the only part of a usual request; does the work of start_next(). */
static bool start_only(struct req *r)
{
	const struct pst_seg *s = r->cur.segs;
	struct part *p = part_first(r);

	p->data = req_host(r, s->mem_off);
	p->len = s->len;
	p->pos = 0;
	p->off = s->file_off;
	return start_part(r, p);
}

/* Put the request on q->started, because other requests go first or no part is free now. */
static void go_on_later(struct req *r)
{
	if (list_empty(&r->waits))
		list_add_tail(&r->q->started, &r->waits);
}

/* Some bytes of the request were not moved, and none of its parts is in flight.  Move the whole
 * request again: by the engine, or by the CPU if the engine cannot stage the memory. */
static void restage(struct req *r)
{
	int err = 0;

	/* The request may be on q->started, waiting for a free part. */
	list_del(&r->waits);
	req_caller(r)->left = false;
	r->res.limit = r->total;
	r->res.err_pos = UINT64_MAX;
	r->res.paths = 0;
	memset(r->res.hop_bytes, 0, sizeof(r->res.hop_bytes));
	cursor_init(&r->cur, r->cur.segs, r->cur.nr);
	free(TAKE_PTR(req_way(r)->bounce));
	hold_put(&r->q->holder, &req_way(r)->hold);
	single_end(r);
	req_plan(r)->restage = false;
	if (mem_copies(mem_ops_of(req_mem(r))))
		req_plan(r)->dev = (uint8_t)path_base();
	else
		err = window_instead(r);
	if (err < 0) {
		req_settle(r, 0, r->total, 0, -err);
		req_step(r, REQ_QUIET);
		return;
	}
	r->ops = path_ops_of(req_plan(r)->dev)->by;
	r->ops->start(r);
}

/* Handle the end of the last part of a request that is not simply complete. */
static _cold_ void parts_end(struct req *r)
{
	if (req_caller(r)->left && !r->stop && !r->res.err) {
		restage(r);
		return;
	}
	if (!r->stop && !r->res.err && !cursor_at_end(&r->cur))
		return;
	if (r->stop && req_caller(r)->left)
		req_settle(r, r->res.limit, r->total - r->res.limit, 0, r->end_err);
	if (r->stop && !cursor_at_end(&r->cur))
		req_settle(r, r->cur.pos, r->total - r->cur.pos, 0, r->end_err);
	req_caller(r)->left = false;
	req_step(r, REQ_QUIET);
}

static inline void parts_check_end(struct req *r)
{
	if (r->nr_parts || req_caller(r)->starting)
		return;
	if (likely(cursor_at_end(&r->cur) && !req_caller(r)->left && !r->stop))
		req_step(r, REQ_QUIET);
	else
		parts_end(r);
}

static void move_start(struct req *r)
{
	if (likely(r->one_part && !r->stop)) {
		if (!start_only(r))
			go_on_later(r);
		return;
	}
	/* A part without a hop ends at once, and must not end the request inside this loop. */
	req_caller(r)->starting = true;
	if (!r->stop)
		while (!r->res.err && !req_caller(r)->left && !cursor_at_end(&r->cur) &&
		       start_next(r))
			;
	req_caller(r)->starting = false;
	if (!cursor_at_end(&r->cur) && !r->res.err && !req_caller(r)->left && !r->stop)
		go_on_later(r);
	parts_check_end(r);
}

static void sync_start(struct req *r)
{
	struct part *p = part_first(r);

	r->sync_started = true;
	p->step = PART_SYNC;
	p->pos = p->off = p->len = 0;
	p->op.file = req_file(r);
	p->op.reg = NULL;
	p->op.buf = NULL;
	p->op.off = p->op.len = 0;
	p->op.kind = r->io.flags & PST_IO_DATASYNC ? IO_FDATASYNC : IO_FSYNC;
	p->op.flags = 0;
	part_queue(p);
}

static void part_cancel(struct pst_queue *q, struct part *p)
{
	struct io_ctx *ctx;

	if (!p->in_flight)
		return;
	ctx = io_ctx_for(q->ctx, &q->others, &p->op);
	ctx->ops->cancel(ctx, &p->op);
}

static void parts_start(struct req *r)
{
	if (unlikely(r->io.op == PST_OP_SYNC))
		sync_start(r);
	else
		move_start(r);
}

static void parts_stop(struct req *r, int err)
{
	struct list *e;

	r->stop = true;
	r->end_err = err;
	part_cancel(r->q, &req_caller(r)->first);
	list_for_each (e, &req_caller(r)->more)
		part_cancel(r->q, list_entry(e, struct part, link));
}

/* Return true if the part touches the request's memory.  A proof reads into another buffer, and a
 * small write may come from a bounce buffer. */
static bool part_touches_mem(const struct part *p)
{
	return p->step == PART_BODY && !req_way(p->req)->bounce;
}

static void parts_touches(struct req *r, bool *ret_mem, bool *ret_file)
{
	struct list *e;

	*ret_file = r->nr_parts > 0;
	*ret_mem = req_caller(r)->first_used && part_touches_mem(&req_caller(r)->first);
	list_for_each (e, &req_caller(r)->more)
		*ret_mem |= part_touches_mem(list_entry(e, struct part, link));
}

const struct req_ops req_by_caller = {
	.start = parts_start,
	.stop = parts_stop,
	.touches = parts_touches,
};
