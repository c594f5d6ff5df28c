/* SPDX-License-Identifier: MIT */
/* The functions of core/queue/above.h that move bytes: by the caller's thread, and by engines. */
#include <stdlib.h>

#include "base/cancel.h"
#include "base/crc32c.h"
#include "base/err.h"
#include "base/uaccess.h"
#include "core/carry/caller.h"
#include "core/carry/check.h"
#include "core/carry/engines.h"
#include "core/carry/feeder.h"
#include "core/queue/above.h"
#include "core/queue/cursor.h"
#include "core/queue/object.h"
#include "core/sched/engine.h"
#include "core/sched/share.h"
#include "core/stream/feed.h"
#include "core/stream/order.h"

/* ----------------------------------------------------------------- queues */

struct pst_queue *carry_queue_new(void)
{
	struct caller_queue *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	list_init(&q->base.shares);
	return &q->base.base.q;
}

static void req_init(struct pst_queue *q, struct caller_req *cr)
{
	struct req *r = &cr->base.base.req;

	r->q = q;
	list_init(&r->waits);
	list_init(&cr->base.eng.active);
	list_init(&cr->base.eng.feeds);
	list_init(&cr->base.eng.jobs);
	list_init(&cr->caller.more);
	list_add_tail(&q->free, &r->link);
}

bool carry_init(struct pst_queue *q, unsigned nr_parts)
{
	struct caller_req *reqs = calloc_lines(q->depth, sizeof(*reqs));
	struct caller_queue *cq = queue_caller(q);

	q->reqs = reqs;
	cq->part_array = calloc_lines(nr_parts, sizeof(*cq->part_array));
	if (!reqs || !cq->part_array)
		return false;
	for (uint32_t i = 0; i < q->depth; i++)
		req_init(q, &reqs[i]);
	for (unsigned i = nr_parts; i-- > 0;) {
		cq->part_array[i].next = cq->parts;
		cq->parts = &cq->part_array[i];
	}
	return true;
}

void carry_leave(struct pst_queue *q)
{
	struct list *shares = &queue_engine(q)->shares;

	while (!list_empty(shares))
		engine_unshare(list_first(shares, struct share, link));
}

void carry_free(struct pst_queue *q)
{
	free(queue_caller(q)->part_array);
	free(q->reqs);
	free(queue_caller(q));
}

/* --------------------------------------------------------------- requests */

/* Initialize the data that engines keep for a request on device memory. */
static void prep_engine(struct req *r, struct share *share)
{
	struct req_engine *eng = req_engine(r);

	r->ring_err = share_ring_err(share);
	eng->share = share;
	eng->handed_back = eng->dead = eng->counted = false;
	eng->nr_jobs = eng->nr_touch = eng->nr_file = 0;
	eng->redo = NULL;
	atomic_store_explicit(&eng->nr_building, 0, memory_order_relaxed);
	eng->nr_crcs = eng->max_crcs = 0;
	eng->crcs_lost = false;
	list_init(&eng->check);
	eng->checked = eng->verified = eng->has_crc = false;
}

/* Check the stream here, although submit checks it again: here the error sentence names this
 * request. */
static int prep_stream(const struct pst_io *io, struct share *share)
{
	const struct mem_alloc *a = io->mem->region->alloc;
	bool wait = io->flags & PST_IO_STREAM_WAIT;
	int err;

	NO_CANCEL(); /* pst_queue_prep() does not disable thread cancellation */
	err = mem_stream_check(a, io->stream, wait);
	if (err < 0)
		return err;
	if (wait)
		return feed_prepare(share);
	/* Ignore an error: the clock only keeps deadlines while the driver blocks workers. */
	(void)engine_clock(share->engine);
	return 0;
}

int carry_prep(struct req *r, const struct pst_io *io)
{
	const struct mem_alloc *a = io->mem->region->alloc;
	struct share *share = NULL;
	int err = 0;

	if (!mem_on_host(io->mem)) {
		if (unlikely(mem_life(a->ops, a->device) != a->life))
			err = mem_alive(a);
		if (err == 0 && (io->flags & PST_IO_VERIFY) && !a->ops->sums_new &&
		    !mem_copies(a->ops))
			err = err_set(
				EOPNOTSUPP,
				"neither a device nor a copy computes checksums of %s memory; "
				"leave PST_IO_VERIFY out",
				a->ops->name);
		if (err == 0 && (io->flags & PST_IO_CRC32C_MEM) && !a->ops->sums_new)
			err = err_set(
				EOPNOTSUPP,
				"%s memory computes no checksums; leave PST_IO_CRC32C_MEM out",
				a->ops->name);
		if (err == 0)
			err = engine_share(r->q, a->ops, a->device, &share);
		if (err < 0)
			return err;
		prep_engine(r, share);
	}
	return io->stream ? prep_stream(io, share) : 0;
}

int carry_order(struct req *r)
{
	/* Give engines the collected requests first, because the driver calls below take time. */
	carry_flush(r->q);
	return r->io.flags & PST_IO_STREAM_WAIT ? feed_begin(r) : order_begin(r);
}

void carry_submitted(struct pst_queue *q)
{
	order_submitted(q);
}

void carry_release(struct req *r)
{
	order_end(r);
	feed_over(r);
	free(TAKE_PTR(req_engine(r)->crcs));
	free(TAKE_PTR(req_way(r)->bounce));
	hold_put(&r->q->holder, &req_way(r)->hold);
	single_end(r);
}

/* --------------------------------------------------------------- checksums */

/* Compute the checksum of the bytes that arrived in host memory.  Return false if the memory is
 * gone. */
static bool req_crc_host(struct req *r)
{
	const char *base = req_host(r, 0);
	struct cursor c;
	struct piece p;

	cursor_init(&c, r->cur.segs, r->cur.nr);
	for (; cursor_peek(&c, &p) && p.pos < r->res.limit; cursor_skip(&c, p.len)) {
		uint64_t len = MIN(p.len, r->res.limit - p.pos);
		int err = 0;

		if (req_stays(r))
			r->res.crc = crc32c(r->res.crc, base + p.mem_off, len);
		else
			err = uaccess_crc32c(&r->res.crc, base + p.mem_off, len);
		if (err < 0) {
			req_settle(r, p.pos, p.len, 0, -err);
			r->res.crc = 0;
			return false;
		}
	}
	return true;
}

bool carry_crc(struct req *r)
{
	if (mem_on_host(req_mem(r)))
		return req_crc_host(r);
	if (req_engine(r)->checked)
		return req_engine(r)->has_crc;
	return check_jobs_crc(r, &r->res.crc);
}

/* Compute the checksum of a piece in host memory.  Return 0 or -EFAULT. */
static int piece_crc(const struct req *r, const struct piece *p, uint32_t *ret)
{
	const char *at = req_host(r, p->mem_off);

	*ret = 0;
	if (!req_stays(r))
		return uaccess_crc32c(ret, at, p->len);
	*ret = crc32c(0, at, p->len);
	return 0;
}

void carry_verify(struct req *r)
{
	uint64_t nr = 0;
	struct cursor c;
	struct piece p;

	if (!mem_on_host(req_mem(r)))
		return; /* check.c has compared checksums of device memory */
	cursor_init(&c, r->cur.segs, r->cur.nr);
	c.apart = true;
	for (; cursor_peek(&c, &p); cursor_skip(&c, p.len), nr++) {
		uint32_t crc;
		int err = -EBADMSG;

		if (p.len <= r->res.limit - MIN(p.pos, r->res.limit)) {
			err = piece_crc(r, &p, &crc);
			if (err == 0 && crc == r->io.crc32cs[nr])
				continue;
			err = err ? err : -EBADMSG;
		}
		req_settle(r, p.pos, r->total - p.pos, 0, -err);
		if (err == -EBADMSG)
			r->res.wrong = nr;
		return;
	}
}
