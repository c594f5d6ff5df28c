// SPDX-License-Identifier: MIT
/*
 * All queues of the process, from queue_new() until nothing of them is under way.
 *
 * A queue that is freed while the kernel still has a part of it stays here as an orphan;
 * whoever looks at the registry next finds out whether it has become quiet.
 */
#include <inttypes.h>
#include <sys/eventfd.h>

#include "base/err.h"
#include "base/log.h"
#include "core/pagecache.h"
#include "core/pool.h"

static struct {
	pthread_mutex_t lock;
	struct list queues;
	struct counters retired; /* of queues that are gone */
} registry = { PTHREAD_MUTEX_INITIALIZER, LIST_INIT(registry.queues), { 0 } };

static void counters_add(struct counters *to, const struct counters *from)
{
	const _Atomic uint64_t *f = (const _Atomic uint64_t *)from;
	_Atomic uint64_t *t = (_Atomic uint64_t *)to;

	for (size_t i = 0; i < sizeof(*to) / sizeof(*t); i++)
		count(&t[i], atomic_load_explicit(&f[i], memory_order_relaxed));
}

static struct pst_queue *queue_destroy(struct pst_queue *q)
{
	while (!list_empty(&q->shares))
		engine_unshare(list_first(&q->shares, struct share, link));
	use_release_all(q);
	if (q->lane)
		store_lane_free(q->lane);
	closep(&q->efd);
	free(q->part_array);
	free(q->reqs);
	pthread_mutex_destroy(&q->lock);
	free(q);
	return NULL;
}

/* Under the registry's lock: queues that were freed and have become quiet. */
static void registry_sweep(void)
{
	struct list *e, *n;

	list_for_each_safe (e, n, &registry.queues) {
		struct pst_queue *q = list_entry(e, struct pst_queue, link);

		if (!q->orphan)
			continue;
		pthread_mutex_lock(&q->lock);
		queue_progress(q);
		pthread_mutex_unlock(&q->lock);
		if (q->nr_zombies)
			continue;
		list_del(&q->link);
		counters_add(&registry.retired, &q->st);
		queue_destroy(q);
	}
}

unsigned registry_uses(const struct object *obj)
{
	struct list *e;
	unsigned nr = 0;

	pthread_mutex_lock(&registry.lock);
	list_for_each (e, &registry.queues) {
		struct pst_queue *q = list_entry(e, struct pst_queue, link);

		pthread_mutex_lock(&q->lock);
		if (!q->waiting && use_count(q, obj))
			queue_progress(q);
		nr += use_count(q, obj);
		pthread_mutex_unlock(&q->lock);
	}
	registry_sweep();
	pthread_mutex_unlock(&registry.lock);
	return nr;
}

void registry_progress(void)
{
	struct list *e;

	if (pthread_mutex_trylock(&registry.lock) != 0)
		return;
	list_for_each (e, &registry.queues) {
		struct pst_queue *q = list_entry(e, struct pst_queue, link);

		if (pthread_mutex_trylock(&q->lock) != 0)
			continue;
		if (!q->waiting && q->lane->nr_ops)
			queue_progress(q);
		pthread_mutex_unlock(&q->lock);
	}
	pthread_mutex_unlock(&registry.lock);
}

void registry_release(struct object *obj)
{
	struct list *e;

	atomic_store(&obj->dying, true);
	pthread_mutex_lock(&registry.lock);
	list_for_each (e, &registry.queues) {
		struct pst_queue *q = list_entry(e, struct pst_queue, link);

		pthread_mutex_lock(&q->lock);
		use_release(q, obj);
		pthread_mutex_unlock(&q->lock);
	}
	registry_sweep();
	pthread_mutex_unlock(&registry.lock);
	object_put(obj);
}

void registry_stats(struct pst_queue *only, struct pst_stats *ret)
{
	struct counters sum = { 0 };
	struct list *e;

	pthread_mutex_lock(&registry.lock);
	registry_sweep();
	if (!only)
		counters_add(&sum, &registry.retired);
	list_for_each (e, &registry.queues) {
		struct pst_queue *q = list_entry(e, struct pst_queue, link);

		if (only && q != only)
			continue;
		pthread_mutex_lock(&q->lock);
		if (!q->waiting && q->nr_zombies)
			queue_progress(q);
		counters_add(&sum, &q->st);
		ret->inflight += q->nr_inflight;
		ret->busy += q->nr_zombies;
		pthread_mutex_unlock(&q->lock);
	}
	pthread_mutex_unlock(&registry.lock);
	ret->requests = sum.requests;
	ret->errors = sum.errors;
	ret->timeouts = sum.timeouts;
	ret->canceled = sum.canceled;
	ret->fallbacks = sum.fallbacks;
	for (unsigned i = 0; i <= PST_PATH_MAX; i++)
		ret->bytes[i] = sum.bytes[i];
	for (unsigned i = 0; i <= PST_WHY_MAX; i++)
		ret->why[i] = sum.why[i];
	pool_stats(&ret->pool_bytes, &ret->pool_limit);
	pagecache_stats(&ret->pages_bytes, &ret->pages_limit, &ret->pages_ns);
}

/* A deadline has passed: the owner that sleeps finds it in pst_reap(). */
static void queue_ring(struct alarm *a)
{
	(void)eventfd_write(container_of(a, struct pst_queue, alarm)->efd, 1);
}

int queue_new(const struct pst_queue_opts *o, struct pst_queue **ret)
{
	uint32_t depth = o->depth ? o->depth : QUEUE_DEPTH_DEFAULT;
	unsigned nr_parts = MAX(2 * depth, 64u);
	struct pst_queue *q = calloc(1, sizeof(*q));
	int r;

	if (!q)
		return err_set(ENOMEM, "out of memory");
	*q = (struct pst_queue){
		.depth = depth,
		.timeout_ns = (o->timeout_ms ? o->timeout_ms : TIMEOUT_DEFAULT_MS) * NSEC_PER_MSEC,
		.next_deadline = PST_NO_DEADLINE,
		.fd_once = o->flags & PST_QUEUE_FD_ONCE,
		.efd = -1,
	};
	pthread_mutex_init(&q->lock, NULL);
	list_init(&q->link);
	list_init(&q->free);
	list_init(&q->prepared);
	list_init(&q->held);
	list_init(&q->started);
	list_init(&q->done);
	list_init(&q->zombies);
	list_init(&q->inflight);
	list_init(&q->shares);
	alarm_init(&q->alarm, queue_ring);
	q->reqs = calloc(depth, sizeof(*q->reqs));
	q->part_array = calloc(nr_parts, sizeof(*q->part_array));
	if (!q->reqs || !q->part_array) {
		queue_destroy(q);
		return err_set(ENOMEM, "out of memory for a queue of depth %u", depth);
	}
	for (uint32_t i = 0; i < depth; i++) {
		q->reqs[i].q = q;
		list_init(&q->reqs[i].all);
		list_init(&q->reqs[i].active);
		list_init(&q->reqs[i].gated);
		list_add_tail(&q->free, &q->reqs[i].link);
	}
	for (unsigned i = nr_parts; i-- > 0;) {
		q->part_array[i].next = q->parts;
		q->parts = &q->part_array[i];
		q->nr_parts++;
	}
	q->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (q->efd < 0) {
		r = err_set(errno, "no descriptor for a queue: %s", err_name(errno));
		queue_destroy(q);
		return r;
	}
	q->store = store_pick(o->store, &q->store_detail);
	if (!q->store) {
		queue_destroy(q);
		r = (o->store == PST_STORE_THREADS ? &store_threads_ops : &store_uring_ops)
			    ->check();
		return r < 0 ? r : -ENOSYS;
	}
	r = store_lane_new(q->store, nr_parts, &q->lane);
	if (r == -ENOMEM && q->store == &store_uring_ops && o->store == PST_STORE_AUTO) {
		/* Rings count against RLIMIT_MEMLOCK; threads need none of it. */
		log_info("no memory for a ring, threads instead: %s", err_text());
		q->store = &store_threads_ops;
		q->store_detail = ENOMEM;
		r = store_lane_new(q->store, nr_parts, &q->lane);
	}
	q->store_auto = o->store == PST_STORE_AUTO;
	if (q->store_detail)
		q->store_why = PST_WHY_NO_URING;
	if (r < 0) {
		queue_destroy(q);
		return r;
	}
	pthread_mutex_lock(&registry.lock);
	registry_sweep();
	list_add_tail(&registry.queues, &q->link);
	pthread_mutex_unlock(&registry.lock);
	*ret = q;
	return 0;
}

void queue_free(struct pst_queue *q)
{
	if (q->has_fd)
		clock_del(&q->alarm);
	pthread_mutex_lock(&q->lock);
	queue_wind_up(q);
	pthread_mutex_unlock(&q->lock);

	/* What still hangs keeps the queue until registry_sweep() finds it quiet. */
	pthread_mutex_lock(&registry.lock);
	q->orphan = true;
	registry_sweep();
	pthread_mutex_unlock(&registry.lock);
}
