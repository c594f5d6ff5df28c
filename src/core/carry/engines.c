/* SPDX-License-Identifier: MIT */
/* Engines, one for each device, and the queues' shares of them. */
#include <inttypes.h>

#include "base/cancel.h"
#include "base/err.h"
#include "base/log.h"
#include "base/thread.h"
#include "core/carry/copier.h"
#include "core/carry/engines.h"
#include "core/carry/feeder.h"
#include "core/carry/prove.h"
#include "core/carry/worker.h"
#include "core/queue/queue.h"
#include "core/sched/engine.h"
#include "core/sched/pool.h"
#include "core/sched/share.h"
#include "core/sched/sizes.h"
#include "core/stream/feed.h"
#include "core/stream/order.h"

static struct {
	pthread_mutex_t lock;
	pthread_cond_t started; /* signalled when an engine has started, or failed to start */
	struct list list;
} engines = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, LIST_INIT(engines.list) };

static void engine_free(struct engine *e)
{
	clock_del(&e->alarm);
	pthread_mutex_lock(&e->lock);
	e->stop = true;
	pthread_mutex_unlock(&e->lock);
	feeders_done(e);
	for (unsigned i = 0; i < e->nr_workers; i++)
		worker_done(&e->workers[i]);
	copier_done(e);
	pool_done(e);
	(void)pthread_cond_destroy(&e->has_begun);
	(void)pthread_cond_destroy(&e->built);
	pthread_mutex_destroy(&e->lock);
	free(e);
}

/*
 * Start all workers at once.  Each worker takes milliseconds to create its I/O context, and
 * requests wait only for the first one.  If the process may not have more threads, one worker is
 * enough.
 */
static int start_workers(struct engine *e)
{
	int r = worker_start(&e->workers[0], worker_main);

	if (r < 0)
		return r;
	for (unsigned i = 1; i < e->nr_workers; i++)
		if (worker_start(&e->workers[i], worker_main) < 0) {
			log_warn("%s %u: an engine has %u workers less: %s", e->ops->name,
				 e->device, e->nr_workers - i, err_text());
			break;
		}
	pthread_mutex_lock(&e->lock);
	while (!e->begun)
		(void)pthread_cond_wait(&e->has_begun, &e->lock);
	pthread_mutex_unlock(&e->lock);
	return e->begin_err ? err_set(-e->begin_err, "%s", e->begin_text) : 0;
}

/* Handle the deadlines of requests with streams.  Called by the clock. */
static void engine_ring(struct alarm *a)
{
	struct engine *e = container_of(a, struct engine, alarm);
	uint64_t now = now_ns();

	pthread_mutex_lock(&e->lock);
	feed_ring(e, now);
	order_ring(e, now);
	a->at = MIN(e->feeds_next, e->ask_at);
	pthread_mutex_unlock(&e->lock);
}

/* Start an engine.  This calls the driver, which takes time. */
static int engine_start(struct engine *e)
{
	unsigned wanted = engine_width(&e->nr_usual);
	uint64_t start = now_ns(), has_stream, proven;
	int r;

	e->nr_clogged = e->nr_usual; /* count every worker as clogged until it is ready, which
				      * may never happen */
	e->slot_size = engine_slot_size();
	e->slot_bytes = e->slot_size + (e->ops->sgl_write ? MEM_SGL_BYTES : 0);
	e->look = UINT64_MAX;
	mutex_init_brief(&e->lock); /* waiters spin first, because many woken workers want this
				     * lock at once */
	(void)pthread_cond_init(&e->has_begun, NULL);
	(void)pthread_cond_init(&e->built, NULL);
	list_init(&e->active);
	list_init(&e->parking);
	list_init(&e->checks);
	for (unsigned i = 0; i < DISKS; i++)
		list_init(&e->disks[i].jobs);
	pool_init(e);
	alarm_init(&e->alarm, engine_ring);
	order_init(e);
	feed_init(e);
	r = copier_init(e);
	has_stream = now_ns();
	if (r == 0 && mem_copies(e->ops))
		r = engine_prove(e);
	proven = now_ns();
	if (r == 0)
		e->worker_jobs = MAX((unsigned)(WORKER_BYTES / e->slot_size), WORKER_JOBS_MIN);
	for (; r == 0 && e->nr_workers < wanted; e->nr_workers++) {
		struct worker *w = &e->workers[e->nr_workers];

		r = worker_init(w, e);
		if (r < 0) {
			e->nr_workers++; /* engine_free() also ends a worker that is not fully
					  * initialized */
			break;
		}
	}
	if (r == 0)
		r = start_workers(e);
	if (r < 0)
		return r;
	log_debug("engine for %s %u: %u workers, slots of %" PRIu64 " bytes", e->ops->name,
		  e->device, e->nr_workers, e->slot_size);
	log_info("%s %u: an engine started in %.1f ms: context and stream %.1f, proof of its "
		 "copies %.1f, the first of %u workers %.1f",
		 e->ops->name, e->device, as_ms(now_ns() - start), as_ms(has_stream - start),
		 as_ms(proven - has_stream), e->nr_workers, as_ms(now_ns() - proven));
	return 0;
}

/* Find an engine, waiting for one that another thread is starting; under the engines' lock. */
static struct engine *engine_find(const struct mem_ops *ops, unsigned device, uint64_t dev_life,
				  const struct io_backend *backend)
{
	struct list *el;

	list_for_each (el, &engines.list) {
		struct engine *e = list_entry(el, struct engine, link);

		if (e->ops != ops || e->device != device || e->life != dev_life ||
		    e->backend != backend)
			continue;
		if (!e->starts)
			return e;
		pthread_cond_wait(&engines.started, &engines.lock);
		el = &engines.list; /* search again from the beginning */
	}
	return NULL;
}

static void engine_put(struct engine *e)
{
	bool last;

	pthread_mutex_lock(&engines.lock);
	last = --e->refs == 0;
	if (last)
		list_del(&e->link);
	pthread_mutex_unlock(&engines.lock);
	if (last)
		engine_free(e);
}

static int engine_get(const struct mem_ops *ops, unsigned device, const struct io_backend *backend,
		      struct engine **ret)
{
	uint64_t dev_life = mem_life(ops, device);
	struct engine *e;
	int r = 1;

	pthread_mutex_lock(&engines.lock);
	e = engine_find(ops, device, dev_life, backend);
	if (e) {
		e->refs++;
		r = 0;
	} else if ((e = calloc(1, sizeof(*e)))) {
		e->ops = ops;
		e->device = device;
		e->life = dev_life;
		e->backend = backend;
		e->refs = 1;
		e->starts = true;
		list_add_tail(&engines.list, &e->link);
	}
	pthread_mutex_unlock(&engines.lock);
	*ret = e;
	if (!r)
		return 0;
	if (!e)
		return err_set(ENOMEM, "out of memory");
	r = engine_start(e);
	pthread_mutex_lock(&engines.lock);
	e->starts = false;
	if (r < 0)
		list_del(&e->link);
	(void)pthread_cond_broadcast(&engines.started);
	pthread_mutex_unlock(&engines.lock);
	if (r < 0)
		engine_free(e);
	return r;
}

/* ----------------------------------------------------------------- shares */

static int share_new(struct pst_queue *q, struct engine *e, struct share **ret)
{
	struct share *s = calloc(1, sizeof(*s));
	uint64_t start = now_ns();
	int r;

	if (!s)
		return err_set(ENOMEM, "out of memory");
	r = pool_reserve(e);
	if (r < 0) {
		free(s);
		return r;
	}
	s->engine = e;
	s->fresh_end = &s->fresh;
	for (unsigned i = 0; i < DISKS; i++)
		list_init(&s->parked[i]);
	list_init(&s->parking);
	log_info("%s %u: the slots that a queue is sure of took %.1f ms", e->ops->name, e->device,
		 as_ms(now_ns() - start));
	list_add_tail(&queue_engine(q)->shares, &s->link);
	*ret = s;
	return 0;
}

const _Atomic int *share_ring_err(const struct share *s)
{
	return s->ring_err ? &s->ring_err : &s->engine->ring_err;
}

static int share_get(struct pst_queue *q, const struct mem_ops *ops, unsigned device,
		     struct share **ret)
{
	struct engine *e;
	int r, ring_err = 0;

	NO_CANCEL(); /* pst_queue_prep() does not disable thread cancellation */
	r = engine_get(ops, device, q->backend, &e);
	if (io_backend_is_refused(q->backend, r)) {
		log_info("no rings for an engine, threads instead: %s", err_text());
		ring_err = -r;
		r = engine_get(ops, device, &threads_backend, &e);
	}
	if (r < 0)
		return r;
	r = share_new(q, e, ret);
	if (r < 0)
		engine_put(e);
	else
		(*ret)->ring_err = ring_err;
	return r;
}

/* Find the queue's share of the device's engine.  A reset of a device begins a new life: if current
 * is true, find the engine of the current life, else one of an earlier life. */
static struct share *share_find(struct pst_queue *q, const struct mem_ops *ops, unsigned device,
				bool current)
{
	uint64_t dev_life = mem_life(ops, device);
	struct list *el;

	list_for_each (el, &queue_engine(q)->shares) {
		struct share *s = list_entry(el, struct share, link);

		if (s->engine->ops == ops && s->engine->device == device &&
		    (s->engine->life == dev_life) == current)
			return s;
	}
	return NULL;
}

static bool has_requests(const struct pst_queue *q)
{
	return !list_empty(&q->prepared) || !list_empty(&q->inflight) || !list_empty(&q->done) ||
	       !list_empty(&q->busy);
}

/* Release engines of device lives that a reset has ended, if no request of the queue needs them. */
static _cold_ void drop_old_shares(struct pst_queue *q, const struct mem_ops *ops, unsigned device)
{
	struct share *s;

	NO_CANCEL();
	while (!has_requests(q) && (s = share_find(q, ops, device, false)))
		engine_unshare(s);
}

int engine_share(struct pst_queue *q, const struct mem_ops *ops, unsigned device,
		 struct share **ret)
{
	struct share *s = share_find(q, ops, device, true);

	if (likely(s)) {
		*ret = s;
		return 0;
	}
	drop_old_shares(q, ops, device);
	return share_get(q, ops, device, ret);
}

void engine_unshare(struct share *s)
{
	struct engine *e = s->engine;

	list_del(&s->link);
	pthread_mutex_lock(&e->lock);
	list_del(&s->parking);
	pthread_mutex_unlock(&e->lock);
	pool_unreserve(e);
	free(s);
	engine_put(e);
}
