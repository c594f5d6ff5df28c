/* SPDX-License-Identifier: MIT */
/*
 * Requests that begin when a stream of the program has reached a point.
 *
 * pst_queue_submit() records an event on the stream.  Requests of one submit that name the same
 * stream share the event.  (Reads that the stream waits for need none: feed.c.) The engine holds a
 * request until the stream has reached the event.  The engine's own streams never wait for the
 * event, because copies of other requests would have to wait as well.
 *
 * The workers query the driver for the streams: a busy worker after each round of work, and one
 * sleeping worker, the stream watcher.  The driver may block a worker that queries, or one that is
 * about to sleep, for any time.  So the clock checks whether any worker still queries.  If none
 * does, the clock wakes one worker for each stream, while workers sleep.
 *
 * A request that is stopped during a query is returned after the query, because the program may
 * then destroy the stream's context.  From then on no worker queries the stream, unless another
 * request names it.  If the driver blocks the worker, the completion says PST_DONE_BUSY.
 *
 * The engine's lock covers all of this, but is not held while an event is recorded or queried.
 */
#include "base/err.h"
#include "core/queue/clock.h"
#include "core/queue/object.h"
#include "core/queue/queue.h"
#include "core/queue/req.h"
#include "core/sched/above.h"
#include "core/sched/engine.h"
#include "core/sched/share.h"
#include "core/sched/turns.h"
#include "core/sched/wake.h"
#include "core/stream/order.h"

/* The pause between two queries of a stream, ns: none while the order is new, then a fraction of
 * its age. */
#define ASK_NEW_NS UINT64_C(20000)
#define ASK_PART 16u
#define ASK_MAX_NS UINT64_C(500000)

/* Longest wait for a query, ns.  A query takes a microsecond, or as long as the driver waits. */
#define ASKED_MAX_NS (5 * NSEC_PER_MSEC)

struct order {
	struct list link;   /* on e->orders, except while a worker queries the order */
	struct order *next; /* next order of the queue's submit */
	struct engine *engine;
	struct mem_order *mem;
	void *stream;
	uint64_t since;
	unsigned refs;       /* held by requests, the current submit, a querying worker */
	unsigned live;       /* requests that are not returned yet; 0: no query is needed */
	int state;           /* 0: not reached; 1: reached; -errno: will never be reached */
	bool asked;          /* a worker is querying; the stream's context is in use */
	bool slow;           /* the query takes longer than ASKED_MAX_NS, so stopped requests do
			      * not wait for its end */
	struct list leaving; /* requests to be returned after the query */
};

static bool wake_watcher(struct engine *e);

void order_init(struct engine *e)
{
	list_init(&e->held);
	list_init(&e->orders);
	e->ask_at = PST_NO_DEADLINE;
}

/* Drop a reference.  Return true if it was the last; the caller then frees the order without the
 * lock. */
static bool order_unref(struct order *o)
{
	if (--o->refs)
		return false;
	list_del(&o->link);
	return true;
}

static void order_free(struct order *o)
{
	atomic_fetch_sub(&o->engine->nr_orders, 1);
	o->mem->ops->order_free(o->mem);
	free(o);
}

/* ------------------------------------------------------------------ submit */

static int order_new(struct req *r, struct order **ret)
{
	const struct mem_alloc *a = req_mem(r)->region->alloc;
	struct engine *e = req_engine(r)->share->engine;
	struct order *o = calloc(1, sizeof(*o));
	int err;

	if (!o)
		return err_set(ENOMEM, "out of memory");
	err = a->ops->order_new(a->device, r->io.stream, &o->mem);
	if (err < 0) {
		free(o);
		return err;
	}
	o->engine = e;
	o->stream = r->io.stream;
	o->since = now_ns();
	o->refs = 1;
	list_init(&o->link);
	list_init(&o->leaving);
	o->next = queue_engine(r->q)->orders;
	queue_engine(r->q)->orders = o;
	atomic_fetch_add(&e->nr_orders, 1);
	*ret = o;
	return 0;
}

static int order_get(struct req *r, struct order **ret)
{
	struct order *o = queue_engine(r->q)->orders;

	while (o && (o->stream != r->io.stream || o->engine != req_engine(r)->share->engine))
		o = o->next;
	*ret = o;
	return o ? 0 : order_new(r, ret);
}

int order_begin(struct req *r)
{
	struct engine *e = req_engine(r)->share->engine;
	uint64_t ring = PST_NO_DEADLINE;
	struct order *o;
	int err = order_get(r, &o);

	if (err < 0)
		return err;
	pthread_mutex_lock(&e->lock);
	if (list_empty(&e->orders) && !e->nr_asked) { /* until now there was no order for the clock
						       * to check */
		e->ask_at = ring = now_ns() + ASKED_MAX_NS;
		e->seen_asks = e->nr_asks;
	}
	o->refs++;
	if (!o->live++ && !o->asked && !o->state)
		list_add_tail(&e->orders, &o->link);
	req_engine(r)->order = o;
	pthread_mutex_unlock(&e->lock);
	clock_set(&e->alarm, ring);
	return 0;
}

void order_submitted(struct pst_queue *q)
{
	struct engine_queue *eq = queue_engine(q);

	while (eq->orders) {
		struct order *o = eq->orders;
		struct engine *e = o->engine;
		bool last;

		eq->orders = o->next;
		pthread_mutex_lock(&e->lock);
		last = order_unref(o);
		pthread_mutex_unlock(&e->lock);
		if (last)
			order_free(o);
	}
}

bool order_hold(struct req *r)
{
	struct engine *e = req_engine(r)->share->engine;

	if (!req_engine(r)->order || req_engine(r)->order->state == 1)
		return false;
	list_add_tail(&e->held, &req_engine(r)->active);
	if (req_engine(r)->order->state < 0)
		engine_stop_locked(r, -req_engine(r)->order->state);
	return true;
}

/* --------------------------------------------------------------------- end */

void order_leave(struct req *r)
{
	struct order *o = req_engine(r)->order;

	if (o && !--o->live)
		list_del(&o->link);
}

bool order_asks(const struct req *r)
{
	return req_engine(r)->order && req_engine(r)->order->asked;
}

bool order_keeps(struct req *r)
{
	if (!order_asks(r))
		return false;
	list_add_tail(&req_engine(r)->order->leaving, &req_engine(r)->active);
	return true;
}

/* Wait until no worker queries the stopped request's stream, up to ASKED_MAX_NS. */
static _cold_ void wait_asked(struct req *r)
{
	struct engine *e = req_engine(r)->share->engine;
	struct order *o = req_engine(r)->order;
	uint64_t end = now_ns() + ASKED_MAX_NS;
	bool go_on = true;

	while (go_on) {
		(void)nanosleep(&(struct timespec){ .tv_nsec = ASK_NEW_NS }, NULL);
		pthread_mutex_lock(&e->lock);
		go_on = o->asked && !req_engine(r)->handed_back;
		o->slow |= go_on && now_ns() >= end;
		go_on = go_on && !o->slow;
		pthread_mutex_unlock(&e->lock);
	}
}

void order_stopped(struct req *r)
{
	struct engine *e = req_engine(r)->share->engine;
	bool asked;

	if (likely(!atomic_load(&e->nr_orders)))
		return;
	pthread_mutex_lock(&e->lock);
	asked = order_asks(r) && !req_engine(r)->order->slow;
	pthread_mutex_unlock(&e->lock);
	if (unlikely(asked))
		wait_asked(r);
}

void order_end(struct req *r)
{
	struct order *o = req_engine(r)->order;
	struct engine *e;
	bool last;

	if (!o)
		return;
	e = o->engine;
	pthread_mutex_lock(&e->lock);
	if (!req_engine(r)->handed_back)
		order_leave(r);
	req_engine(r)->order = NULL;
	last = order_unref(o);
	pthread_mutex_unlock(&e->lock);
	if (last)
		order_free(o);
}

/*
 * Wake one worker for each stream, because the worker that should query is busy or blocked by the
 * driver.  The driver may block each worker because of another stream.
 */
static void wake_watchers(struct engine *e)
{
	struct list *el;

	list_for_each (el, &e->orders)
		if (!wake_watcher(e))
			break;
}

void order_ring(struct engine *e, uint64_t now)
{
	if (e->ask_at > now)
		return;
	if (list_empty(&e->orders) && !e->nr_asked) {
		e->ask_at = PST_NO_DEADLINE;
		return;
	}
	e->ask_at = now + ASKED_MAX_NS;
	if (e->nr_asks == e->seen_asks && !list_empty(&e->orders))
		wake_watchers(e);
	e->seen_asks = e->nr_asks;
}

/* ------------------------------------------------------------------- watch */

/* Let the order's requests start, or fail: the stream has reached the event, or never will. */
static void order_reached(struct order *o, int state)
{
	struct engine *e = o->engine;
	struct list *el, *n;

	o->state = state;
	list_for_each_safe (el, n, &e->held) {
		struct req *r = req_by_link(el, active);

		if (req_engine(r)->order != o)
			continue;
		if (state < 0) {
			engine_stop_locked(r, -state);
			continue;
		}
		list_del(&req_engine(r)->active);
		engine_activate(r);
	}
}

/* Query one order without the lock.  Return true if its state changed. */
static bool order_ask(struct engine *e, struct order *o)
{
	int state;
	bool last;

	list_del(&o->link);
	o->refs++;
	o->asked = true;
	e->nr_asked++;
	pthread_mutex_unlock(&e->lock);
	state = o->mem->ops->order_poll(o->mem);
	pthread_mutex_lock(&e->lock);
	e->nr_asked--;
	o->asked = o->slow = false;
	while (!list_empty(&o->leaving)) {
		struct req *r = req_by_link(o->leaving.next, active);

		list_del(&req_engine(r)->active);
		engine_return(r);
	}
	if (state)
		order_reached(o, state);
	else if (o->live)
		list_add_tail(&e->orders, &o->link);
	last = order_unref(o);
	if (last) {
		pthread_mutex_unlock(&e->lock);
		order_free(o);
		pthread_mutex_lock(&e->lock);
	}
	return state != 0;
}

bool order_watch(struct engine *e)
{
	bool moved = false, asked;
	unsigned nr = 0;
	struct list *el;

	if (likely(!atomic_load(&e->nr_orders)))
		return false;
	pthread_mutex_lock(&e->lock);
	list_for_each (el, &e->orders)
		nr++;
	asked = nr > 0;
	/* Query each order once. Orders that are not reached go to the end of the list. */
	for (; nr && !list_empty(&e->orders); nr--)
		moved |= order_ask(e, list_first(&e->orders, struct order, link));
	e->nr_asks += asked;
	pthread_mutex_unlock(&e->lock);
	return moved;
}

/* Wake the stream watcher.  If none sleeps, wake the first sleeping worker, which becomes the
 * watcher.  A worker that is awake queries streams after its current work.  Return false if no
 * worker sleeps. */
static bool wake_watcher(struct engine *e)
{
	struct worker *w = e->stream_watcher;

	for (unsigned i = 0; i < e->nr_workers && !(w && w->sleeping); i++)
		w = &e->workers[i];
	if (!w || !w->sleeping)
		return false;
	e->stream_watcher = w;
	worker_wake(w);
	return true;
}

void order_wake(struct req *r)
{
	struct engine *e = req_engine(r)->share->engine;

	/* In all other cases a worker already queries the order, or will soon. */
	if (req_engine(r)->order->live == 1 && (!e->stream_watcher || e->stream_watcher->sleeping))
		(void)wake_watcher(e);
}

void order_pass_on(struct worker *w)
{
	struct engine *e = w->engine;

	order_awake(w); /* w may be the watcher that was about to sleep */
	if (unlikely(!list_empty(&e->orders)) && !e->stream_watcher)
		(void)wake_watcher(e);
}

/* Only one sleeping worker queries, so that a slow stream does not keep all workers awake. */
uint64_t order_wait(struct worker *w)
{
	struct engine *e = w->engine;
	uint64_t now, until = UINT64_MAX;
	struct list *el;

	if (!atomic_load(&e->nr_orders))
		return UINT64_MAX;
	now = now_ns();
	pthread_mutex_lock(&e->lock);
	if (e->stream_watcher || list_empty(&e->orders)) {
		pthread_mutex_unlock(&e->lock);
		return UINT64_MAX;
	}
	e->stream_watcher = w;
	list_for_each (el, &e->orders) {
		uint64_t age = now - list_entry(el, struct order, link)->since;
		uint64_t pause = age < ASK_NEW_NS ? 0 : MAX(age / ASK_PART, ASK_NEW_NS);

		pause = MIN(pause, ASK_MAX_NS);
		until = MIN(until, now + pause);
	}
	pthread_mutex_unlock(&e->lock);
	return until - MIN(until, now);
}

void order_awake(struct worker *w)
{
	if (w->engine->stream_watcher == w)
		w->engine->stream_watcher = NULL;
}
