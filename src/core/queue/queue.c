/* SPDX-License-Identifier: MIT */
/*
 * The life of a request: it starts, makes progress, may be ended early, and is reaped.
 *
 * The queue keeps the deadlines of requests on every path, and tells an engine to stop a request.
 * Reads that keep a stream waiting are the exception: the clock keeps their deadlines too
 * (engine/order.c).
 *
 * A request whose deadline passes, or that is cancelled, completes even if the kernel does not let
 * go of it.  Until what is under way has ended, its slot, memory and file stay in use.  The
 * completion says BUSY if the memory, or the file of a write, may still be touched.
 */
#include <inttypes.h>
#include <sys/eventfd.h>

#include "base/err.h"
#include "base/log.h"
#include "gds/path/gds.h"
#include "core/engine/share.h"
#include "core/path/ahead.h"
#include "core/path/parts.h"
#include "core/path/plan.h"
#include "core/path/small.h"
#include "core/path/window_cache.h"
#include "core/queue/object.h"
#include "core/queue/queue.h"
#include "core/queue/req.h"

#define REAP_BATCH 64u

/* ------------------------------------------------------------------ start */

static void req_fail(struct req *r, int err)
{
	r->err = err;
	r->limit = 0;
	req_complete(r);
}

void req_start(struct req *r)
{
	struct pst_queue *q = r->q;

	if (r->io.op == PST_OP_SYNC) {
		r->state = REQ_ACTIVE;
		if (q->backend_reason)
			req_reason(r, q->backend_reason, q->backend_detail);
		parts_sync(r);
		return;
	}
	if (plan_make(r) < 0) {
		req_fail(r, EOPNOTSUPP);
		return;
	}
	if (r->plan.dev == PST_PATH_WINDOW) {
		int err = small_listed(r);

		if (err < 0) {
			req_fail(r, -err);
			return;
		}
	}
	if (req_staged(r)) {
		int err = gds_choose(r);

		if (err < 0) {
			req_fail(r, -err);
			return;
		}
	}
	if (unlikely(r->io.stream)) {
		int err = order_begin(r);

		if (err < 0) {
			req_fail(r, -err);
			return;
		}
	}
	ahead_choose(r);
	r->state = REQ_ACTIVE;
	if (r->plan.window && !r->plan.gds && !r->io.stream)
		small_choose(r);
	if (req_staged(r)) {
		q->nr_engine++;
		engine_submit(r);
	} else {
		parts_start(r);
	}
}

static void queue_flush(struct pst_queue *q)
{
	int r = q->backend->flush(q->ctx);

	/* Operations that the kernel could not take now stay queued and go with the next call. */
	if (r < 0)
		log_debug("flush: %s", err_name(r));
}

int queue_submit(struct pst_queue *q)
{
	uint64_t now = now_ns();
	struct list *e, *n;
	int taken = 0;

	if (q->fd_once)
		queue_disarm(q);
	q->cache_user.now = now;
	q->copy_left = SUBMIT_COPY_MAX;
	list_for_each_safe (e, n, &q->prepared) {
		struct req *r = list_entry(e, struct req, link);

		list_del(&r->link);
		q->nr_prepared--;
		taken++;
		r->seq = ++q->seq;
		r->deadline = r->io.deadline_ns ? r->io.deadline_ns : now + q->timeout_ns;
		list_add_tail(&q->inflight, &r->all);
		gauge(&q->nr_inflight, 1);
		if (r->deadline < q->next_deadline)
			q->next_deadline = r->deadline;
		if (r->deadline <= now) {
			req_fail(r, ETIMEDOUT);
			continue;
		}
		if (r->io.op == PST_OP_WRITE) {
			r->started = true;
			q->nr_writes++;
		} else if (r->io.op == PST_OP_SYNC && q->nr_writes) {
			r->nr_before = q->nr_writes;
			r->state = REQ_HELD;
			list_add_tail(&q->held, &r->link);
			continue;
		}
		req_start(r);
		if (taken % 4 == 0)
			queue_flush(q);
	}
	order_submitted(q);
	if (taken)
		queue_flush(q);
	if (q->armed)
		queue_notify(q);
	return taken;
}

/* -------------------------------------------------------------- early end */

static void reap_ctx(struct pst_queue *q)
{
	struct io_op *ops[REAP_BATCH];
	unsigned n;

	do {
		n = q->backend->reap(q->ctx, ops, REAP_BATCH);
		for (unsigned i = 0; i < n; i++)
			part_done(container_of(ops[i], struct part, op));
	} while (n == REAP_BATCH);
	if (unlikely(q->parked))
		parts_unpark(q);
}

static void take_finished(struct pst_queue *q)
{
	struct req *r, *next, *order = NULL;

	if (!atomic_load_explicit(&q->finished, memory_order_relaxed))
		return;
	for (r = atomic_exchange(&q->finished, NULL); r; r = next) {
		next = r->next;
		r->next = order;
		order = r;
	}
	for (r = order; r; r = next) {
		next = r->next;
		q->nr_engine--;
		queue_finish(r);
	}
}

/* Start nothing more for the request, and ask what is under way to end; then queue_flush(). */
static void req_stop(struct req *r, int err)
{
	if (req_staged(r)) {
		engine_stop(r, err);
		return;
	}
	r->stop = true;
	r->end_err = err;
	parts_cancel(r);
}

/* Complete the request now, whatever is still under way. */
static void req_end(struct req *r, int err)
{
	bool touch = false, file = false, quiet;

	if (r->state == REQ_HELD || (r->io.op == PST_OP_SYNC && !r->sync_started)) {
		req_fail(r, err);
		return;
	}
	if (req_staged(r)) {
		/* The engine hands it back sooner or later; only then it is quiet. */
		engine_touches(r, &touch, &file);
		quiet = false;
	} else {
		quiet = !r->nr_parts;
		/* A proof reads into a buffer of ours; a small write goes out of one. */
		touch = !quiet && r->state != REQ_PROVING && r->io.op != PST_OP_SYNC && !r->bounce;
		file = !quiet;
	}
	if (quiet) {
		req_fail(r, err);
		return;
	}
	r->ended = true;
	gauge(&r->q->nr_busy, 1);
	if (!touch && r->mem_use)
		use_put(r->q, TAKE_PTR(r->mem_use));
	if (touch || (file && r->io.op == PST_OP_WRITE))
		r->flags |= PST_DONE_BUSY;
	req_fail(r, err);
}

static void queue_expire(struct pst_queue *q, uint64_t now, int err)
{
	struct list *e, *n;
	uint64_t next = PST_NO_DEADLINE;
	bool stopped = false;

	/* First ask, then look: what could be cancelled ends without being busy. */
	list_for_each_safe (e, n, &q->inflight) {
		struct req *r = list_entry(e, struct req, all);

		if (r->deadline <= now && r->state != REQ_HELD) {
			req_stop(r, r->end_err ? r->end_err : err);
			stopped = true;
		}
	}
	if (stopped) {
		queue_flush(q);
		reap_ctx(q);
		take_finished(q);
	}
	list_for_each_safe (e, n, &q->inflight) {
		struct req *r = list_entry(e, struct req, all);

		if (r->deadline <= now)
			req_end(r, r->end_err ? r->end_err : err);
	}
	list_for_each (e, &q->inflight)
		next = MIN(next, list_entry(e, struct req, all)->deadline);
	q->next_deadline = next;
}

int queue_cancel(struct pst_queue *q, uint64_t user_data)
{
	uint64_t grace = now_ns() + CANCEL_GRACE_NS;
	struct list *e, *n;
	int asked = 0;

	list_for_each_safe (e, n, &q->prepared) {
		struct req *r = list_entry(e, struct req, link);

		if (r->io.user_data != user_data)
			continue;
		asked++;
		q->nr_prepared--;
		list_add_tail(&q->inflight, &r->all);
		gauge(&q->nr_inflight, 1);
		req_fail(r, ECANCELED);
	}
	list_for_each_safe (e, n, &q->inflight) {
		struct req *r = list_entry(e, struct req, all);

		if (r->io.user_data != user_data)
			continue;
		asked++;
		if (r->state == REQ_HELD) {
			req_fail(r, ECANCELED);
			continue;
		}
		req_stop(r, ECANCELED);
		r->deadline = MIN(r->deadline, grace);
		q->next_deadline = MIN(q->next_deadline, r->deadline);
		if (!req_staged(r) && !r->nr_parts)
			req_end(r, ECANCELED);
	}
	queue_flush(q);
	if (q->armed)
		queue_notify(q);
	return asked ? asked : err_set(ENOENT, "no request has user_data %" PRIu64, user_data);
}

/* --------------------------------------------------------------- progress */

/* A stack, and not a ring with one producer, because several workers hand requests back. */
void queue_hand_back(struct req *r)
{
	struct pst_queue *q = r->q;
	struct req *head = atomic_load_explicit(&q->finished, memory_order_relaxed);

	do
		r->next = head;
	while (!atomic_compare_exchange_weak(&q->finished, &head, r));
	/* Pairs with the store to want_wake before the owner looks at finished. */
	if (atomic_exchange(&q->want_wake, false))
		(void)eventfd_write(q->efd, 1);
}

/* Everything that can be done without waiting. */
void queue_progress(struct pst_queue *q)
{
	struct list *e, *n, again;

	reap_ctx(q);
	take_finished(q);
	q->more = false;
	if (!list_empty(&q->started)) {
		q->copy_left = PART_MAX;
		q->cache_user.now = now_ns();
		/* Those that do not get far put themselves back at the end. */
		list_init(&again);
		list_for_each_safe (e, n, &q->started) {
			list_del(e);
			list_add_tail(&again, e);
		}
		while (!list_empty(&again)) {
			struct req *r = list_first(&again, struct req, link);

			list_del(&r->link);
			if (q->more)
				list_add_tail(&q->started, &r->link);
			else if (r->io.op == PST_OP_SYNC)
				parts_sync(r);
			else
				parts_start(r);
		}
	}
	if (q->next_deadline != PST_NO_DEADLINE) {
		uint64_t now = now_ns();

		if (q->next_deadline <= now)
			queue_expire(q, now, ETIMEDOUT);
	}
	if (q->ctx->nr_ops)
		queue_flush(q);
}

static void req_done(const struct req *r, struct pst_done *ret)
{
	*ret = (struct pst_done){
		.user_data = r->io.user_data,
		.res = r->err ? -r->err : (int64_t)r->limit,
		.prefix = r->limit,
		.paths = r->paths,
		.why = r->why,
		.detail = r->detail,
		.flags = r->flags,
		.crc32c = r->crc,
		.op = r->io.op,
	};
}

unsigned queue_take(struct pst_queue *q, struct pst_done *ret, unsigned max)
{
	unsigned n = 0;

	while (n < max && !list_empty(&q->done)) {
		struct req *r = list_first(&q->done, struct req, link);

		req_done(r, &ret[n++]);
		list_del(&r->link);
		q->nr_done--;
		if (r->ended) {
			r->state = REQ_BUSY;
			list_add_tail(&q->busy, &r->link);
		} else {
			req_free(r);
		}
	}
	return n;
}

void queue_wind_up(struct pst_queue *q)
{
	uint64_t give_up = now_ns() + CANCEL_GRACE_NS;
	struct timespec nap = { .tv_nsec = 100000 };
	struct pst_done dropped[REAP_BATCH];
	struct list *e, *n;

	queue_lock(q);
	queue_disarm(q);
	q->has_fd = false;
	list_for_each_safe (e, n, &q->prepared) {
		struct req *r = list_entry(e, struct req, link);

		list_del(&r->link);
		req_release(r);
		req_free(r);
	}
	q->nr_prepared = 0;
	list_for_each (e, &q->inflight)
		list_entry(e, struct req, all)->deadline = 0;
	queue_expire(q, now_ns(), ECANCELED);
	for (;;) {
		while (queue_take(q, dropped, REAP_BATCH))
			;
		if (!q->nr_busy || now_ns() > give_up)
			break;
		queue_unlock(q);
		(void)nanosleep(&nap, NULL);
		queue_lock(q);
		queue_progress(q);
	}
	atomic_store(&q->quiet, !q->nr_busy);
	atomic_store(&q->freed, true);
	queue_unlock(q);
}
