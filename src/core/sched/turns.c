/* SPDX-License-Identifier: MIT */
/*
 * Scheduling: requests of all queues take turns on an engine's workers, one job per turn.
 *
 * The number of slots limits the number of jobs (pool.c).  Each queue has SLOT_RESERVED reserved
 * slots, and borrows slots that no other queue has reserved.  So a queue whose file hangs keeps its
 * slots, and the other queues continue.
 */
#include "core/queue/above.h"
#include "core/queue/cursor.h"
#include "core/queue/queue.h"
#include "core/queue/req.h"
#include "core/sched/above.h"
#include "core/sched/contention.h"
#include "core/sched/disks.h"
#include "core/sched/engine.h"
#include "core/sched/job_size.h"
#include "core/sched/pool.h"
#include "core/sched/share.h"
#include "core/sched/turns.h"
#include "core/sched/wake.h"
#include "core/ways/path.h"
#include "core/ways/pieces.h"
#include "core/ways/plan.h"
#include "core/ways/way.h"

#define LOOK_NS (20 * NSEC_PER_MSEC)

/* Return true if the request has pieces that were not started, or that must be staged again. */
static bool has_more(const struct req *r)
{
	return req_engine(r)->redo || !cursor_at_end(&r->cur);
}

/* Remove a request that has ended or was stopped from e->nr_reqs, under the lock. */
static void uncount(struct req *r)
{
	struct engine *e = req_engine(r)->share->engine;

	if (!req_engine(r)->counted)
		return;
	e->nr_reqs--;
	e->nr_slotless -= req_plan(r)->pieces != NULL;
	req_engine(r)->counted = false;
}

/* Return true if the request is to compare its bytes in memory with the expected ones. */
static bool wants_compare(const struct req *r)
{
	return r->io.flags & PST_IO_VERIFY ||
	       (r->io.flags & PST_IO_CRC32C_MEM && r->io.op == PST_OP_WRITE);
}

/* Return a request that has ended to its queue, under the lock. */
static inline void return_if_idle(struct req *r)
{
	if (req_engine(r)->nr_jobs || req_engine(r)->handed_back)
		return;
	if (!r->stop && !r->res.err && has_more(r))
		return;
	if (unlikely(r->stop) && order_keeps(r))
		return;
	if (unlikely(r->io.flags & REQ_SUMS) && check_take(r))
		return;
	if (unlikely(req_plan(r)->pieces))
		transfers_redo_drop(r);
	if (r->stop && !req_engine(r)->dead && !cursor_at_end(&r->cur))
		req_settle(r, r->cur.pos, r->total - r->cur.pos, 0, r->end_err);
	/* Fail the stopped request: its bytes were not compared. */
	if (r->stop && !req_engine(r)->dead && wants_compare(r) && !r->res.err &&
	    !req_engine(r)->verified)
		req_settle(r, 0, r->total, 0, r->end_err);
	list_del(&req_engine(r)->active);
	feed_close(r);
	order_leave(r);
	uncount(r);
	req_engine(r)->handed_back = true;
	queue_push_finished(r);
}

void engine_return(struct req *r)
{
	return_if_idle(r);
}

/*
 * Start the pieces of the request that a path moves without slots.  Return true if the next piece
 * needs a slot, or if pieces that the path failed to move must be staged.
 */
static bool after_transfers(struct req *r)
{
	struct engine *e = req_engine(r)->share->engine;
	bool for_slot;

	if (likely(!req_plan(r)->pieces))
		return true;
	for_slot = transfers_start(r);
	if (r->res.err || !has_more(r)) {
		list_del(&req_engine(r)->active);
		return_if_idle(r);
		return false;
	}
	if (!for_slot && !cursor_at_end(&r->cur))
		e->look = now_ns() + LOOK_NS;
	return for_slot || req_engine(r)->redo;
}

/* ------------------------------------------------------------------- turns */

/* Return a job: a slot with the request's next pieces.  Return NULL if no slot is free. */
static struct job *take_job(struct worker *w, struct req *r)
{
	struct engine *e = w->engine;
	struct job *j = pool_take(e, req_engine(r)->share, w);

	if (!j)
		return NULL;
	j->req = r;
	j->worker = w;
	j->lost = false;
	list_init(&j->of_lost);
	w->nr_jobs++;
	w->sleeping = false; /* true until here if this was the worker's last look before a sleep */
	job_build(j);
	if (j->claimed)
		atomic_fetch_add(&req_engine(r)->nr_building, 1);
	j->touches = r->io.op == PST_OP_WRITE;
	j->bounded = contention_limits(r);
	disk_begin(j);
	worker_took(w, j);
	req_engine(r)->nr_jobs++;
	list_add_tail(&req_engine(r)->jobs, &j->of_req);
	if (j->touches)
		req_engine(r)->nr_touch++;
	else
		req_engine(r)->nr_file++;
	list_del(&req_engine(r)->active);
	if (has_more(r))
		list_add_tail(&e->active, &req_engine(r)->active);
	return j;
}

/* Read the caller's segments without the lock. */
static void build_claimed(struct engine *e, struct job *j)
{
	job_build_claimed(j);
	/* Pairs with wait_built(): either wait_built() sees nr_building at 0, or this thread sees
	 * nr_stopping. */
	if (atomic_fetch_sub(&req_engine(j->req)->nr_building, 1) > 1 ||
	    !atomic_load(&e->nr_stopping))
		return;
	pthread_mutex_lock(&e->lock);
	(void)pthread_cond_broadcast(&e->built);
	pthread_mutex_unlock(&e->lock);
}

static _cold_ void wait_built(struct engine *e, struct req *r)
{
	atomic_fetch_add(&e->nr_stopping, 1);
	pthread_mutex_lock(&e->lock);
	while (atomic_load(&req_engine(r)->nr_building))
		(void)pthread_cond_wait(&e->built, &e->lock);
	pthread_mutex_unlock(&e->lock);
	atomic_fetch_sub(&e->nr_stopping, 1);
}

/* Return the next pieces of the first fed read, in a slot for feeds; NULL if nothing is to be read,
 * or no such slot is free. */
static struct job *take_fed(struct worker *w)
{
	struct engine *e = w->engine;
	struct req *r = req_by_link(e->fed.next, active);
	struct job *j = list_empty(&e->fed) ? NULL : pool_take_feed(e);

	if (!j)
		return NULL;
	j->req = r;
	j->worker = w;
	j->lost = j->touches = j->bounded = false;
	j->disk = DISK_NONE;
	list_init(&j->of_lost);
	w->nr_jobs++;
	job_build(j);
	req_engine(r)->nr_jobs++;
	req_engine(r)->nr_file++;
	list_add_tail(&req_engine(r)->jobs, &j->of_req);
	if (!has_more(r))
		list_del(&req_engine(r)->active);
	return j;
}

struct job *engine_next_fed(struct worker *w)
{
	struct engine *e = w->engine;
	struct job *j;

	pthread_mutex_lock(&e->lock);
	w->woken = false;
	j = take_fed(w);
	if (j) {
		w->sleeping = false; /* the worker does not sleep now; see take_job() */
		feed_wake(e);
	}
	pthread_mutex_unlock(&e->lock);
	return j;
}

/*
 * A worker that was woken, or that started transfers without slots, may find only jobs that it must
 * not take.  The worker then wakes one that may take them.
 */
struct job *engine_next(struct worker *w)
{
	struct engine *e = w->engine;
	struct list *el, *n;
	struct job *j = NULL;
	bool woken, leaves = false, unparked = false, no_slot = false;

	pthread_mutex_lock(&e->lock);
	woken = w->woken;
	w->woken = false;
	e->look = UINT64_MAX;
	worker_count_ops(w);
	if (unlikely(!list_empty(&e->parking))) {
		unparked = disks_unpark(e);
		disks_look_soon(e);
	}
	if (worker_leaves(w)) {
		pthread_mutex_unlock(&e->lock);
		return NULL;
	}
	list_for_each_safe (el, n, &e->active) {
		struct req *r = req_by_link(el, active);
		bool by_one;

		if (no_slot && !req_plan(r)->pieces)
			continue;
		if (!after_transfers(r))
			continue;
		if (disk_is_busy(r)) {
			disk_park(r);
			continue;
		}
		by_one = req_is_long(r);
		if (!worker_may_take(w, r, by_one)) {
			leaves |= woken || req_plan(r)->pieces;
			continue;
		}
		j = take_job(w, r);
		no_slot = !j && !e->pool.nr_free;
		if (no_slot && !e->nr_slotless)
			break;
		if (!j)
			continue;
		if (!by_one || engine_waits_for_disk(e))
			worker_wake_another(w);
		break;
	}
	if (j)
		order_pass_on(w);
	else if (unparked && e->pool.nr_free)
		engine_wake_one(e);
	else if (leaves)
		worker_pass_on(w);
	pthread_mutex_unlock(&e->lock);
	if (j && j->claimed)
		build_claimed(e, j);
	return j;
}

/* engine_job_touches() for a caller that holds the lock. */
static int job_touches(struct job *j, bool touches)
{
	struct req *r = j->req;

	if (r->stop)
		return -r->end_err;
	if (touches != j->touches) {
		j->touches = touches;
		req_engine(r)->nr_touch += touches ? 1 : -1u;
		req_engine(r)->nr_file += touches ? -1u : 1;
	}
	return 0;
}

int engine_job_touches(struct job *j, bool touches)
{
	struct engine *e = j->engine;
	int err;

	pthread_mutex_lock(&e->lock);
	err = job_touches(j, touches);
	pthread_mutex_unlock(&e->lock);
	return err;
}

int engine_job_sent(struct job *j)
{
	struct engine *e = j->engine;
	int err;

	pthread_mutex_lock(&e->lock);
	err = job_touches(j, true);
	if (!err)
		err = feed_send(j);
	pthread_mutex_unlock(&e->lock);
	return err;
}

/* Return the bytes of the job's slot that wait for the device, for contention_has_enough(). */
static uint64_t slotted(const struct job *j)
{
	return j->at_copier && j->bounded && !j->mapped ? j->len : 0;
}

/* Count the job as being at the copier, under the lock. */
static void give_copier(struct engine *e, struct job *j)
{
	j->at_copier = true;
	j->worker->nr_copying++;
	req_engine(j->req)->share->nr_copying++;
	req_engine(j->req)->share->slotted += slotted(j);
	e->slotted += slotted(j);
	j->worker->nr_warm += j->warm;
	copier_add(e, j);
}

int engine_job_filled(struct job *j, bool own)
{
	struct engine *e = j->engine;
	int err;

	pthread_mutex_lock(&e->lock);
	err = job_touches(j, true);
	if (!err) {
		if (j->warm || j->crc_len)
			engine_count_warm(e);
		else
			engine_count_cold(e);
		/* The disk is not busy: a CPU filled the slot, or the page cache is the source. */
		if (j->warm)
			disk_end(j);
		if (!own)
			give_copier(e, j);
	}
	pthread_mutex_unlock(&e->lock);
	return err;
}

/* Stop counting the job as being at the copier, under the lock. */
static void leave_copier(struct job *j)
{
	j->worker->nr_copying -= j->at_copier;
	req_engine(j->req)->share->nr_copying -= j->at_copier;
	req_engine(j->req)->share->slotted -= slotted(j);
	j->engine->slotted -= slotted(j);
	j->worker->nr_warm -= j->at_copier && j->warm;
	j->at_copier = false;
}

void engine_job_move(struct worker *w, struct job *j)
{
	struct engine *e = w->engine;

	pthread_mutex_lock(&e->lock);
	leave_copier(j);
	list_del(&j->of_lost);
	if (!j->lost) {
		j->worker->nr_jobs--;
		w->nr_jobs++;
	}
	j->worker = w;
	pthread_mutex_unlock(&e->lock);
}

static void crc_keep(struct req *r, const struct job *j)
{
	if (!(r->io.flags & PST_IO_CRC32C) || !j->crc_len)
		return;
	if (req_engine(r)->nr_crcs == req_engine(r)->max_crcs) {
		unsigned max = req_engine(r)->max_crcs ? 2 * req_engine(r)->max_crcs : 16;
		struct crc_range *v = reallocarray(req_engine(r)->crcs, max, sizeof(*v));

		if (!v) {
			/* The completion will have no checksum. */
			req_engine(r)->crcs_lost = true;
			return;
		}
		req_engine(r)->crcs = v;
		req_engine(r)->max_crcs = max;
	}
	req_engine(r)->crcs[req_engine(r)->nr_crcs++] = (struct crc_range){ j->pos, j->crc_len,
									    j->crc };
}

/* Add the job's results to its request. */
static void job_results(struct req *r, const struct job *j)
{
	if (j->err || j->limit < j->pos + j->len)
		req_settle(r, j->limit, j->pos + j->len - j->limit, 0, j->err);
	if (j->why)
		req_reason(r, j->why, j->detail);
	r->res.flags |= j->flags;
	r->res.paths |= j->paths;
	for (unsigned i = 0; i < req_plan(r)->nr_hops; i++)
		r->res.hop_bytes[req_plan(r)->hop[i]] += j->hop_bytes[i];
	if (j->dev_path)
		r->res.hop_bytes[j->dev_path] += j->limit - j->pos;
	crc_keep(r, j);
}

/* End a job, under the lock. */
static void job_done(struct engine *e, struct job *j)
{
	struct req *r = j->req;
	struct share *s = req_engine(r)->share;

	leave_copier(j);
	disk_end(j);
	if (!j->lost)
		j->worker->nr_jobs--;
	if (!req_engine(r)->dead)
		job_results(r, j);
	/* Start nothing more after an error, or after the end of the file if the request has one
	 * piece. */
	if (j->err || (j->limit < j->pos + j->len && r->one_piece)) {
		r->cur.seg = r->cur.nr;
		if (j->err || !req_engine(r)->redo)
			list_del(&req_engine(r)->active);
	}
	if (j->touches)
		req_engine(r)->nr_touch--;
	else
		req_engine(r)->nr_file--;
	req_engine(r)->nr_jobs--;
	list_del(&j->of_req);
	list_del(&j->of_lost);
	j->req = NULL;
	pool_give(e, s, j);
	if (unlikely(j->fed))
		feed_wake(e);
	return_if_idle(r);
}

void engine_job_done(struct job *j)
{
	struct engine *e = j->engine;

	pthread_mutex_lock(&e->lock);
	job_done(e, j);
	if (!list_empty(&e->active))
		engine_wake_one(e);
	pthread_mutex_unlock(&e->lock);
}

void engine_jobs_done(struct worker *w, struct list *jobs)
{
	struct engine *e = w->engine;

	pthread_mutex_lock(&e->lock);
	while (!list_empty(jobs)) {
		struct job *j = list_first(jobs, struct job, link);

		list_del(&j->link);
		job_done(e, j);
	}
	worker_wake_another(w);
	pthread_mutex_unlock(&e->lock);
}

void engine_transfer_done(struct req *r)
{
	struct engine *e = req_engine(r)->share->engine;

	req_engine(r)->nr_jobs--;
	req_engine(r)->nr_touch--;
	if (r->res.err || !has_more(r))
		list_del(&req_engine(r)->active);
	else if (!r->stop && list_empty(&req_engine(r)->active))
		list_add_tail(&e->active, &req_engine(r)->active);
	return_if_idle(r);
	if (!list_empty(&e->active))
		engine_wake_one(e);
}

/* Activate the request, under the lock.  Return how many workers it can keep busy.  The caller
 * wakes that many at once, because workers that wake each other take too long.  (engine_wake()
 * wakes fewer while reads wait for a disk.) */
static uint64_t activate(struct req *r)
{
	struct engine *e = req_engine(r)->share->engine;
	uint64_t jobs = 1 + MAX(r->total / engine_part(r), r->cur.nr / JOB_PIECES);

	if (req_is_long(r))
		jobs = 1;
	list_add_tail(&e->active, &req_engine(r)->active);
	if (!e->nr_reqs++)
		engine_begin(e);
	e->nr_slotless += req_plan(r)->pieces != NULL;
	req_engine(r)->counted = true;
	return jobs;
}

static void wake_for(struct engine *e, const struct req *r, uint64_t jobs)
{
	engine_wake(e, r, (unsigned)MIN(jobs, (uint64_t)WORKERS_MAX));
}

void engine_activate(struct req *r)
{
	wake_for(req_engine(r)->share->engine, r, activate(r));
}

/* Activate the request, or hold it if its stream has not reached its event; under the lock. */
static uint64_t take_in(struct req *r)
{
	/* The clock may have stopped the request at its deadline. */
	if (r->stop)
		return 0;
	if (!order_hold(r))
		return activate(r);
	order_wake(r);
	return 0;
}

static void share_flush(struct share *s)
{
	struct engine *e = s->engine;
	struct req *first = TAKE_PTR(s->fresh), *r = first, *next;
	uint64_t jobs = 0;

	s->fresh_end = &s->fresh;
	pthread_mutex_lock(&e->lock);
	for (; r; r = next) {
		next = r->next;
		jobs += activate(r);
	}
	wake_for(e, first, jobs);
	pthread_mutex_unlock(&e->lock);
}

void carry_flush(struct pst_queue *q)
{
	struct list *el;

	q->nr_given += q->nr_fresh;
	q->nr_fresh = 0;
	list_for_each (el, &queue_engine(q)->shares) {
		struct share *s = list_entry(el, struct share, link);

		if (s->fresh)
			share_flush(s);
	}
}

/*
 * Submit a request.  Workers would contend for the engine's lock with the thread that submits
 * further requests.  So pst_queue_submit() collects requests, and gives them to the engine in
 * groups: the first request alone, then groups that double the number of requests given, and the
 * rest when it flushes.
 */
static void engine_submit(struct req *r)
{
	struct share *s = req_engine(r)->share;
	struct engine *e = s->engine;
	struct pst_queue *q = r->q;

	q->nr_engine++;
	if (unlikely(req_engine(r)->feed)) /* feed_begin() has submitted it */
		return;
	/* A request with an order may have been returned already, so its link must not be used. */
	if (q->collects && !req_engine(r)->order) {
		r->next = NULL;
		*s->fresh_end = r;
		s->fresh_end = &r->next;
		q->nr_fresh++;
		if (q->nr_fresh >= q->nr_given)
			carry_flush(q);
		return;
	}
	pthread_mutex_lock(&e->lock);
	wake_for(e, r, take_in(r));
	pthread_mutex_unlock(&e->lock);
}

/* Ask the worker to cancel the job's operations: only the worker's thread may do so. */
static void cancel_later(struct job *j)
{
	struct worker *w = j->worker;

	list_move_tail(&w->lost, &j->of_lost);
	atomic_store(&w->has_lost, true);
	worker_wake(w);
}

/*
 * Cancel the operations of a stopped request's jobs, and stop counting the jobs: the worker takes
 * other jobs even if these hang.
 */
static void jobs_lost(struct req *r)
{
	struct pool *p = &req_engine(r)->share->engine->pool;
	unsigned before = p->nr_feed_lost;
	struct list *el;

	list_for_each (el, &req_engine(r)->jobs) {
		struct job *j = list_entry(el, struct job, of_req);

		if (!j->lost) {
			j->worker->nr_jobs--;
			p->nr_feed_lost += j->fed;
			cancel_later(j);
		}
		j->lost = true;
		disk_end(j);
	}
	/* Replace slots for feeds that these jobs hold, because other reads may need them. */
	if (unlikely(p->nr_feed_lost != before))
		pool_feed_later(req_engine(r)->share->engine);
}

void engine_stop_locked(struct req *r, int err)
{
	struct engine *e = req_engine(r)->share->engine;
	r->stop = true;
	r->end_err = err;
	list_del(&req_engine(r)->active);
	uncount(r);
	jobs_lost(r);
	check_stop(r);
	if (unlikely(req_plan(r)->pieces))
		req_plan(r)->pieces->stopped(r);
	feed_close(r);
	return_if_idle(r);
	/* The stopped jobs no longer count against their disk, so another read may start. */
	if (!list_empty(&e->active) || !list_empty(&e->parking))
		engine_wake_one(e);
}

static void engine_stop(struct req *r, int err)
{
	struct engine *e = req_engine(r)->share->engine;

	pthread_mutex_lock(&e->lock);
	engine_stop_locked(r, err);
	pthread_mutex_unlock(&e->lock);
	order_stopped(r);
	/* Wait until no worker reads the segments: after the completion the caller may change
	 * them. */
	if (unlikely(atomic_load(&req_engine(r)->nr_building)))
		wait_built(e, r);
}

static void engine_touches(struct req *r, bool *ret_mem, bool *ret_file)
{
	struct engine *e = req_engine(r)->share->engine;

	pthread_mutex_lock(&e->lock);
	req_engine(r)->dead = true;
	*ret_mem = req_engine(r)->nr_touch > 0 || order_asks(r);
	*ret_file = req_engine(r)->nr_file > 0;
	pthread_mutex_unlock(&e->lock);
}

const struct req_ops req_by_engine = {
	.elsewhere = true,
	.start = engine_submit,
	.stop = engine_stop,
	.touches = engine_touches,
};
