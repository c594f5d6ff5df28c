/* SPDX-License-Identifier: MIT */
/*
 * Start requests, let them make progress, end them early, and reap them.
 *
 * The queue watches the deadlines of requests on every path, and tells an engine to stop a request.
 * The clock also watches the deadlines of reads that a stream waits for (stream/feed.c).
 *
 * A request that is cancelled or passes its deadline completes even if the kernel does not end its
 * operations.  The request's slot, memory and file stay in use until the last operation has ended.
 * The completion has the flag BUSY if the memory, or the file of a write, may still be touched.
 */
#include <inttypes.h>

#include "base/err.h"
#include "base/log.h"
#include "base/probe.h"
#include "core/queue/above.h"
#include "core/queue/object.h"
#include "core/queue/queue.h"
#include "core/queue/req.h"

#define DROP_BATCH 64u

/*
 * Requests that pst_queue_submit() starts between two flushes.  A flush is a system call, so it
 * should cover several requests; but the first request of a long batch must not wait until the last
 * one is started.
 */
#define FLUSH_EVERY 32

/* ------------------------------------------------------------------ start */

static void req_fail(struct req *r, int err)
{
	r->res.err = err;
	r->res.limit = 0;
	req_step(r, REQ_QUIET);
}

/*
 * Turn the request into one on its lower file.  Return false on failure, or if the lower file is
 * not available yet: the request then waits on q->started.
 */
static _cold_ bool req_lower(struct req *r)
{
	struct pst_queue *q = r->q;
	int err = lower_begin(r);

	if (err == 0)
		return true;
	if (err != -EAGAIN) {
		req_fail(r, -err);
		return false;
	}
	if (r->state != REQ_HELD)
		req_step(r, REQ_HOLD);
	list_add_tail(&q->started, &r->waits);
	q->asks = true;
	return false;
}

/* Choose the request's path, and start the request. */
static inline void req_start(struct req *r)
{
	int err;

	if (unlikely(req_file(r)->ops->lower) && !req_lower(r))
		return;
	err = ways_choose(r);
	if (unlikely(r->io.stream) && err == 0)
		err = carry_order(r);
	if (unlikely(err < 0)) {
		req_fail(r, -err);
		return;
	}
	req_step(r, REQ_START);
	r->ops->start(r);
}

/* Threads have replaced the queue's io_uring: plan later requests accordingly. */
static _cold_ void queue_ring_lost(struct pst_queue *q)
{
	q->backend_reason = PST_WHY_NO_URING;
	q->backend_detail = q->ctx->ring_err;
	ways_forget(q);
}

static void queue_flush(struct pst_queue *q)
{
	int r = q->backend->flush(q->ctx);

	if (unlikely(q->ctx->ring_err) && !q->backend_reason)
		queue_ring_lost(q);
	if (unlikely(q->others.nr))
		r = MIN(r, io_others_flush(&q->others));
	/* Operations that the kernel refuses for now stay queued until the next call. */
	if (r < 0)
		log_debug("flush: %s", err_name(r));
}

/* Return false and hold the request if it is a sync and earlier writes are in flight. */
static bool may_start(struct req *r)
{
	struct pst_queue *q = r->q;

	r->seq = ++q->seq;
	if (r->io.op == PST_OP_WRITE) {
		r->started = true;
		q->nr_writes++;
		return true;
	}
	if (!q->nr_writes)
		return true;
	r->nr_before = q->nr_writes;
	req_step(r, REQ_HOLD);
	list_add_tail(&q->held, &r->waits);
	return false;
}

/* Submit the operations and requests that were started so far. */
static void submit_flush(struct pst_queue *q)
{
	if (unlikely(q->nr_fresh))
		carry_flush(q);
	queue_flush(q);
}

int queue_submit(struct pst_queue *q)
{
	uint64_t now = now_ns();
	struct list *e, *n;
	int taken = 0;

	if (q->fd_once)
		queue_disarm(q);
	q->holder.now = now;
	q->copy_left = SUBMIT_COPY_MAX;
	q->collects = true;
	list_for_each_safe (e, n, &q->prepared) {
		struct req *r = list_entry(e, struct req, link);

		list_move_tail(&q->inflight, &r->link);
		taken++;
		r->deadline = r->io.deadline_ns ? r->io.deadline_ns : now + q->timeout_ns;
		r->io.deadline_ns = r->deadline; /* keep the original deadline, because
						  * cancelling may make r->deadline earlier */
		gauge(&q->nr_inflight, 1);
		PROBE4(request__submit, q, r->io.op, r->total, r->io.user_data);
		if (r->deadline < q->next_deadline)
			q->next_deadline = r->deadline;
		if (r->deadline <= now)
			req_fail(r, ETIMEDOUT);
		else if (r->io.op == PST_OP_READ || may_start(r))
			req_start(r);
		if (taken % FLUSH_EVERY == 0)
			submit_flush(q);
	}
	q->collects = false;
	if (unlikely(q->nr_given)) {
		carry_flush(q);
		q->nr_given = 0;
	}
	q->nr_prepared -= (unsigned)taken;
	carry_submitted(q);
	if (taken)
		queue_flush(q);
	if (q->armed)
		queue_notify(q);
	return taken;
}

/* -------------------------------------------------------------- early end */

static void reap_ctx(struct pst_queue *q)
{
	(void)mover_reap(&q->mover);
	if (unlikely(q->mover.parked)) {
		registry_progress(&q->dropped);
		(void)mover_unpark(&q->mover);
	}
	if (unlikely(q->mover.blocked))
		mover_unblock(&q->mover);
}

static _inline_ void take_finished(struct pst_queue *q)
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
		req_step(r, REQ_QUIET);
	}
}

/* Start nothing more of the request, and cancel its operations.  The caller then calls
 * queue_flush(). */
static void req_stop(struct req *r, int err)
{
	r->ops->stop(r, err);
}

/* Complete the request now, even if operations are in flight. */
static void req_end(struct req *r, int err)
{
	bool touch, file;

	if (r->state == REQ_HELD || (r->io.op == PST_OP_SYNC && !r->sync_started)) {
		req_fail(r, err);
		return;
	}
	if (!r->ops->elsewhere && !r->nr_parts) {
		req_fail(r, err);
		return;
	}
	r->ops->touches(r, &touch, &file);
	gauge(&r->q->nr_busy, 1);
	if (!touch && r->mem_use)
		use_put(r->q, TAKE_PTR(r->mem_use));
	if (touch || (file && r->io.op == PST_OP_WRITE))
		r->res.flags |= PST_DONE_BUSY;
	r->res.err = err;
	r->res.limit = 0;
	req_step(r, REQ_GIVE_UP);
}

static void queue_expire(struct pst_queue *q, uint64_t now, int err)
{
	struct list *e, *n;
	uint64_t next = PST_NO_DEADLINE;
	bool stopped = false;

	/* Cancel first: a request whose operations could be cancelled completes without BUSY. */
	list_for_each_safe (e, n, &q->inflight) {
		struct req *r = list_entry(e, struct req, link);

		if (r->deadline <= now && r->state != REQ_HELD) {
			req_stop(r, r->end_err ? r->end_err : err);
			stopped = true;
		}
	}
	if (stopped) {
		queue_flush(q);
		reap_ctx(q);
		take_finished(q);
		/* Requests on q->started had their turn before these parts ended, and no later
		 * event may come.  Give them another turn. */
		q->more |= !list_empty(&q->started);
	}
	list_for_each_safe (e, n, &q->inflight) {
		struct req *r = list_entry(e, struct req, link);

		if (r->deadline <= now)
			req_end(r, r->end_err ? r->end_err : err);
	}
	/* An engine may have returned requests since take_finished() was last called.  Complete
	 * them now, so that their completions do not have BUSY. */
	take_finished(q);
	list_for_each (e, &q->inflight)
		next = MIN(next, list_entry(e, struct req, link)->deadline);
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
		list_move_tail(&q->inflight, &r->link);
		gauge(&q->nr_inflight, 1);
		req_fail(r, ECANCELED);
	}
	list_for_each_safe (e, n, &q->inflight) {
		struct req *r = list_entry(e, struct req, link);

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
		if (!r->ops->elsewhere && !r->nr_parts)
			req_end(r, ECANCELED);
	}
	queue_flush(q);
	if (q->armed)
		queue_notify(q);
	return asked ? asked : err_set(ENOENT, "no request has user_data %" PRIu64, user_data);
}

/* --------------------------------------------------------------- progress */

static void queue_move_all(struct list *to, struct list *from)
{
	while (!list_empty(from))
		list_move_tail(to, from->next);
}

static _inline_ void queue_make_progress(struct pst_queue *q)
{
	struct list again;

	reap_ctx(q);
	take_finished(q);
	q->more = q->asks = false;
	if (!list_empty(&q->started)) {
		q->copy_left = PART_MAX;
		q->holder.now = now_ns();
		/* Requests that cannot continue append themselves to q->started.  Requests that had
		 * no turn stay before them. */
		list_init(&again);
		queue_move_all(&again, &q->started);
		while (!list_empty(&again) && !q->more) {
			struct req *r = list_first(&again, struct req, waits);

			list_del(&r->waits);
			if (r->state == REQ_HELD)
				req_start(r);
			else
				r->ops->start(r);
		}
		queue_move_all(&again, &q->started);
		queue_move_all(&q->started, &again);
	}
	if (q->next_deadline != PST_NO_DEADLINE) {
		uint64_t now = now_ns();

		if (q->next_deadline <= now)
			queue_expire(q, now, ETIMEDOUT);
	}
	if (q->ctx->nr_ops || unlikely(q->others.nr))
		queue_flush(q);
}

void queue_progress(struct pst_queue *q)
{
	queue_make_progress(q);
}

static void req_done(const struct req *r, struct pst_done *ret)
{
	*ret = (struct pst_done){
		.user_data = r->io.user_data,
		.res = r->res.err ? -r->res.err : (int64_t)r->res.limit,
		.prefix = r->res.limit,
		.paths = r->res.paths,
		.why = r->res.why,
		.detail = r->res.detail,
		.flags = r->res.flags,
		.crc32c = r->res.crc,
		.op = r->io.op,
		.wrong_piece = r->res.wrong,
	};
}

static unsigned queue_take(struct pst_queue *q, struct pst_done *ret, unsigned max)
{
	unsigned n = 0;

	while (n < max && !list_empty(&q->done)) {
		struct req *r = list_first(&q->done, struct req, link);

		req_done(r, &ret[n++]);
		if (unlikely(r->state == REQ_LATE))
			list_move_tail(&q->busy, &r->link);
		req_step(r, REQ_REAP);
	}
	q->nr_done -= n;
	return n;
}

unsigned queue_reap(struct pst_queue *q, struct pst_done *ret, unsigned min, unsigned max,
		    uint64_t deadline_ns)
{
	bool was_armed = q->armed;
	unsigned n = 0;

	if (was_armed)
		queue_disarm(q);
	for (;;) {
		queue_make_progress(q);
		n += queue_take(q, ret + n, max - n);
		if (n >= min || n == max || !q->nr_inflight)
			break;
		if (deadline_ns != PST_NO_DEADLINE && deadline_ns <= now_ns())
			break;
		if (!q->more)
			queue_wait(q, MIN(min - n, q->nr_inflight),
				   MIN(deadline_ns, q->next_deadline));
	}
	if (q->has_fd)
		queue_reaped(q, was_armed, n);
	return n;
}

void queue_wind_up(struct pst_queue *q)
{
	uint64_t give_up = now_ns() + CANCEL_GRACE_NS;
	struct timespec pause = { .tv_nsec = 100000 };
	struct pst_done dropped[DROP_BATCH];
	struct list *e, *n;

	queue_lock(q);
	queue_disarm(q);
	q->has_fd = false;
	list_for_each_safe (e, n, &q->prepared) {
		struct req *r = list_entry(e, struct req, link);

		list_del(&r->link);
		req_step(r, REQ_DROP);
	}
	q->nr_prepared = 0;
	list_for_each (e, &q->inflight)
		list_entry(e, struct req, link)->deadline = 0;
	queue_expire(q, now_ns(), ECANCELED);
	for (;;) {
		while (queue_take(q, dropped, DROP_BATCH))
			;
		if (!q->nr_busy || now_ns() > give_up)
			break;
		queue_unlock(q);
		(void)nanosleep(&pause, NULL);
		queue_lock(q);
		queue_progress(q);
	}
	atomic_store(&q->quiet, !q->nr_busy);
	atomic_store(&q->freed, true);
	queue_unlock(q);
}
