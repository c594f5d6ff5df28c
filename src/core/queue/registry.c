/* SPDX-License-Identifier: MIT */
/*
 * All queues of the process, from queue_new() until none of their operations is in flight.
 *
 * A queue that the program frees while operations are in flight stays in the registry.  Each call
 * that walks the registry destroys such queues once they are idle.
 */
#include <inttypes.h>
#include <sys/eventfd.h>

#include "base/err.h"
#include "base/log.h"
#include "core/queue/above.h"
#include "core/queue/clock.h"
#include "core/queue/object.h"
#include "core/queue/queue.h"

#define LOOK_NS (10 * NSEC_PER_MSEC) /* longest wait for the lock of a queue, ns */
#define LOOK_NAP_NS 20000

static struct {
	pthread_mutex_t lock;
	struct list queues;
	struct counters retired; /* counters of destroyed queues */
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
	carry_leave(q);
	if (q->uses)
		use_release_all(q);
	use_end(TAKE_PTR(q->dropped));
	io_others_free(&q->others);
	if (q->ctx)
		io_ctx_free(q->ctx);
	closep(&q->efd);
	free(q->uses);
	carry_free(q);
	return NULL;
}

/* Drop a reference, under the lock.  Return the queue if the caller must destroy it, else NULL. */
static struct pst_queue *queue_unref(struct pst_queue *q)
{
	if (--q->refs || !atomic_load(&q->quiet))
		return NULL;
	list_del(&q->link);
	counters_add(&registry.retired, &q->st);
	return q;
}

/*
 * Return the first queue, or the one after prev; NULL at the end.  The returned queue stays
 * referenced until the next call.  No lock is held between calls, so a slow queue delays no other.
 */
static struct pst_queue *next_queue(struct pst_queue *prev)
{
	struct pst_queue *q = NULL, *dead = NULL;
	struct list *e;

	pthread_mutex_lock(&registry.lock);
	e = prev ? prev->link.next : registry.queues.next;
	if (e != &registry.queues) {
		q = list_entry(e, struct pst_queue, link);
		q->refs++;
	}
	if (prev)
		dead = queue_unref(prev);
	pthread_mutex_unlock(&registry.lock);
	if (dead)
		queue_destroy(dead);
	return q;
}

/* Try the lock for up to LOOK_NS: the owner usually holds it for a short time. */
static bool try_lock(struct pst_queue *q)
{
	uint64_t end = now_ns() + LOOK_NS;

	while (!lock_try(&q->lock)) {
		if (now_ns() >= end)
			return false;
		(void)nanosleep(&(struct timespec){ .tv_nsec = LOOK_NAP_NS }, NULL);
	}
	return true;
}

/* Mark a freed queue as quiet if none of its operations is in flight. */
static void look_after(struct pst_queue *q)
{
	if (!atomic_load(&q->freed) || !lock_try(&q->lock))
		return;
	queue_progress(q);
	if (!q->nr_busy)
		atomic_store(&q->quiet, true);
	queue_unlock(q);
}

static void registry_sweep(void)
{
	for (struct pst_queue *q = next_queue(NULL); q; q = next_queue(q))
		look_after(q);
}

/* Return the number of the queue's requests on the object, or 1 if the lock cannot be taken. */
static unsigned uses(struct pst_queue *q, const struct object *obj)
{
	unsigned nr;

	if (!try_lock(q))
		return 1;
	nr = use_count(q, obj);
	if (nr && !q->waiting) {
		queue_progress(q);
		nr = use_count(q, obj);
	}
	queue_unlock(q);
	return nr;
}

unsigned registry_uses(const struct object *obj)
{
	unsigned nr = 0;

	for (struct pst_queue *q = next_queue(NULL); q; q = next_queue(q)) {
		/* If the caller holds the only reference, no queue knows the object. */
		if (atomic_load(&obj->refs) > 1)
			nr += uses(q, obj);
		look_after(q);
	}
	return nr;
}

void registry_progress(struct use **dropped)
{
	struct list *e;

	if (pthread_mutex_trylock(&registry.lock) != 0)
		return;
	list_for_each (e, &registry.queues) {
		struct pst_queue *q = list_entry(e, struct pst_queue, link);

		if (!lock_try(&q->lock))
			continue;
		/* A parked write (queue_polls()) may hold up requests of other queues. */
		if (!q->waiting &&
		    (q->ctx->nr_ops || queue_polls(q) || io_others_nr_ops(&q->others)))
			queue_progress(q);
		queue_unlock_to(q, dropped);
	}
	pthread_mutex_unlock(&registry.lock);
}

void registry_release(struct object *obj)
{
	atomic_store(&obj->dying, true);
	if (atomic_load(&obj->refs) > 1)
		for (struct pst_queue *q = next_queue(NULL); q; q = next_queue(q)) {
			if (lock_try(&q->lock)) {
				use_release(q, obj);
				queue_unlock(q);
				continue;
			}
			/* Pairs with queue_unlock(), which then drops the object. */
			atomic_store(&q->look, true);
			if (lock_try(&q->lock))
				queue_unlock(q);
		}
	object_put(obj);
}

void registry_stats(struct pst_queue *only, struct pst_stats *ret)
{
	struct counters sum = { 0 };
	struct list *e;

	for (struct pst_queue *q = next_queue(NULL); q; q = next_queue(q)) {
		if (q->nr_busy && try_lock(q)) {
			if (!q->waiting)
				queue_progress(q);
			queue_unlock(q);
		}
		look_after(q);
	}
	pthread_mutex_lock(&registry.lock);
	if (!only)
		counters_add(&sum, &registry.retired);
	list_for_each (e, &registry.queues) {
		struct pst_queue *q = list_entry(e, struct pst_queue, link);

		if (only && q != only)
			continue;
		ret->inflight += q->nr_inflight; /* read before the counters, see gauge() */
		ret->busy += q->nr_busy;
		counters_add(&sum, &q->st);
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
}

int queue_new(const struct pst_queue_opts *o, struct pst_queue **ret)
{
	uint32_t depth = o->depth ? o->depth : QUEUE_DEPTH_DEFAULT;
	/* The queue can move depth + nr_parts ranges of requests at a time. */
	unsigned nr_parts = MAX(depth, 64u - MIN(depth, 64u));
	struct pst_queue *q = carry_queue_new();
	static atomic_uint made;
	int r;

	if (!q)
		return err_set(ENOMEM, "out of memory");
	*q = (struct pst_queue){
		.holder.number = atomic_fetch_add(&made, 1),
		.depth = depth,
		.timeout_ns = (o->timeout_ms ? o->timeout_ms : TIMEOUT_DEFAULT_MS) * NSEC_PER_MSEC,
		.next_deadline = PST_NO_DEADLINE,
		.fd_once = o->flags & PST_QUEUE_FD_ONCE,
		.efd = -1,
	};
	list_init(&q->link);
	list_init(&q->free);
	list_init(&q->prepared);
	list_init(&q->held);
	list_init(&q->started);
	list_init(&q->done);
	list_init(&q->busy);
	list_init(&q->inflight);
	alarm_init(&q->alarm, queue_ring);
	atomic_init(&q->ring_at, PST_NO_DEADLINE);
	if (!uses_init(q) || !carry_init(q, nr_parts)) {
		queue_destroy(q);
		return err_set(ENOMEM, "out of memory for a queue of depth %u", depth);
	}
	q->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (q->efd < 0) {
		r = err_set(errno, "no descriptor for a queue: %s", err_name(errno));
		queue_destroy(q);
		return r;
	}
	q->backend = io_backend_pick(o->backend, &q->backend_detail);
	if (!q->backend) {
		queue_destroy(q);
		r = (o->backend == PST_BACKEND_THREADS ? &threads_backend : &uring_backend)
			    ->check();
		return r < 0 ? r : -ENOSYS;
	}
	r = io_ctx_new(q->backend, depth + nr_parts, &q->ctx);
	if (io_backend_is_refused(q->backend, r)) {
		log_info("no ring for a queue, threads instead: %s", err_text());
		q->backend = &threads_backend;
		q->backend_detail = -r;
		r = io_ctx_new(q->backend, depth + nr_parts, &q->ctx);
	}
	if (q->backend_detail)
		q->backend_reason = PST_WHY_NO_URING;
	if (r < 0) {
		queue_destroy(q);
		return r;
	}
	q->mover = (struct mover){
		.backend = q->backend, .ctx = q->ctx, .others = &q->others, .efd = q->efd
	};
	registry_sweep();
	pthread_mutex_lock(&registry.lock);
	list_add_tail(&registry.queues, &q->link);
	pthread_mutex_unlock(&registry.lock);
	*ret = q;
	return 0;
}

void queue_free(struct pst_queue *q)
{
	if (q->has_fd)
		clock_del(&q->alarm);
	pthread_mutex_lock(&registry.lock);
	q->refs++;
	pthread_mutex_unlock(&registry.lock);
	queue_wind_up(q);
	pthread_mutex_lock(&registry.lock);
	q = queue_unref(q);
	pthread_mutex_unlock(&registry.lock);
	if (q)
		queue_destroy(q);
	/* A queue with a hanging operation stays until a later call finds it idle. */
	registry_sweep();
}
