/* SPDX-License-Identifier: MIT */
/*
 * The end of a request.  It is proven if that is due, completes once, and is released when nothing
 * of it is under way any more.
 */
#include <string.h>

#include "base/crc32c.h"
#include "base/uaccess.h"
#include "core/engine/share.h"
#include "core/path/parts.h"
#include "core/path/small.h"
#include "core/path/trial.h"
#include "core/queue/cursor.h"
#include "core/queue/object.h"
#include "core/queue/queue.h"
#include "core/queue/req.h"

void req_release(struct req *r)
{
	struct pst_queue *q = r->q;

	order_end(r);
	if (r->mem_use)
		use_put(q, TAKE_PTR(r->mem_use));
	if (r->file_use)
		use_put(q, TAKE_PTR(r->file_use));
	free(TAKE_PTR(r->proof_buf));
	trial_free(TAKE_PTR(r->trial));
	free(TAKE_PTR(r->crcs));
	free(TAKE_PTR(r->bounce));
	small_let_go(r);
}

void req_free(struct req *r)
{
	r->state = REQ_FREE;
	list_add_tail(&r->q->free, &r->link);
}

/* A write completed: syncs behind it may go. */
static void writes_done(struct pst_queue *q, uint64_t seq)
{
	struct list *e, *n;

	q->nr_writes--;
	list_for_each_safe (e, n, &q->held) {
		struct req *s = list_entry(e, struct req, link);

		if (s->seq > seq && --s->nr_before == 0) {
			list_del(&s->link);
			req_start(s);
		}
	}
}

/* The checksum of what arrived in host memory; false: it is gone meanwhile. */
static bool req_crc_host(struct req *r)
{
	const struct pst_mem *m = req_mem(r);
	const char *base = (const char *)m->region->alloc->host + m->off;
	struct cursor c;
	struct piece p;

	cursor_init(&c, r->cur.segs, r->cur.nr);
	for (; cursor_peek(&c, &p) && p.pos < r->limit; cursor_skip(&c, p.len)) {
		uint64_t len = MIN(p.len, r->limit - p.pos);
		int err = 0;

		if (req_stays(r))
			r->crc = crc32c(r->crc, base + p.mem_off, len);
		else
			err = uaccess_crc32c(&r->crc, base + p.mem_off, len);
		if (err < 0) {
			req_settle(r, p.pos, p.len, 0, -err);
			r->crc = 0;
			return false;
		}
	}
	return true;
}

static int crc_range_cmp(const void *a, const void *b)
{
	const struct crc_range *x = a, *y = b;

	return x->pos < y->pos ? -1 : x->pos > y->pos;
}

/* The same from the checksums that the jobs took of their slots. */
static bool req_crc_jobs(struct req *r)
{
	uint64_t at = 0;

	if (r->nr_crcs)
		qsort(r->crcs, r->nr_crcs, sizeof(*r->crcs), crc_range_cmp);
	for (unsigned i = 0; i < r->nr_crcs && r->crcs[i].pos == at; i++) {
		r->crc = crc32c_combine(r->crc, r->crcs[i].crc, r->crcs[i].len);
		at += r->crcs[i].len;
	}
	return at == r->limit;
}

/* Put the completion where pst_queue_reap() finds it. */
void req_complete(struct req *r)
{
	struct pst_queue *q = r->q;
	struct counters *st = &q->st;

	/* Memory that could not be pinned changes the price and not the path. */
	if ((r->io.flags & PST_IO_STRICT) && r->why != PST_WHY_NONE && r->why != PST_WHY_MEMLOCK &&
	    !r->err) {
		r->err = EOPNOTSUPP;
		r->limit = 0;
	}
	if ((r->io.flags & PST_IO_CRC32C) && !r->ended &&
	    (mem_on_host(req_mem(r)) ? req_crc_host(r) : req_crc_jobs(r)))
		r->flags |= PST_DONE_CRC32C;
	list_del(&r->link);
	list_del(&r->all);
	r->state = REQ_DONE;
	list_add_tail(&q->done, &r->link);
	gauge(&q->nr_inflight, -1);
	if (!q->nr_inflight)
		q->next_deadline = PST_NO_DEADLINE;
	q->nr_done++;

	count(&st->requests, 1);
	if (r->err) {
		count(&st->errors, 1);
		if (r->err == ETIMEDOUT)
			count(&st->timeouts, 1);
		else if (r->err == ECANCELED)
			count(&st->canceled, 1);
	}
	if (r->why != PST_WHY_NONE) {
		count(&st->fallbacks, 1);
		count(&st->why[r->why], 1);
	}
	for (uint32_t set = r->paths; set; set &= set - 1) {
		unsigned path = (unsigned)__builtin_ctz(set);

		count(&st->bytes[path], r->hop_bytes[path]);
		r->hop_bytes[path] = 0;
	}
	if (r->io.op == PST_OP_WRITE && r->started)
		writes_done(q, r->seq);
	if (!r->ended)
		req_release(r);
}

void queue_quiet(struct req *r)
{
	struct pst_queue *q = r->q;

	r->ended = false;
	memset(r->hop_bytes, 0, sizeof(r->hop_bytes));
	req_release(r);
	gauge(&q->nr_busy, -1);
	if (r->state == REQ_BUSY) {
		list_del(&r->link);
		req_free(r);
		return;
	}
	/* Not reaped yet, and nothing is busy any more. */
	r->flags &= ~PST_DONE_BUSY;
}

void queue_finish(struct req *r)
{
	if (r->ended) {
		queue_quiet(r);
		return;
	}
	if (r->proof && !r->err && !r->stop && r->state == REQ_ACTIVE) {
		r->state = REQ_PROVING;
		if (!parts_prove(r))
			parts_again(r);
		return;
	}
	/* The request was told to stop, so its bytes were not compared: they are not believed. */
	if (r->proof && !r->err && r->state == REQ_ACTIVE)
		req_settle(r, 0, r->total, 0, r->end_err);
	req_complete(r);
}
