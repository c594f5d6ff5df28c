/* SPDX-License-Identifier: MIT */
/*
 * Queues: the life of requests on memory and files.
 *
 * A queue neither chooses paths nor moves bytes: the layers above do (above.h). prep.c checks
 * requests, queue.c starts and ends them, complete.c completes them, and wait.c waits for them.
 * registry.c lists all queues of the process.
 *
 * Lock order: queue -> registry -> clock -> engines -> pools -> engine -> gds -> regions -> locks
 * inside mem/ and file/ -> work.  The registry's lock covers its list, and the references that
 * threads hold while they look at a queue.
 */
#ifndef PST_QUEUE_H
#define PST_QUEUE_H

#include <stdatomic.h>
#include <sys/eventfd.h>

#include <penstock.h>

#include "base/list.h"
#include "base/lock.h"
#include "core/queue/clock.h"
#include "core/queue/mover.h"
#include "core/queue/req.h"
#include "file/io.h"

#define QUEUE_DEPTH_DEFAULT 128u
#define QUEUE_DEPTH_MAX 4096u
#define TIMEOUT_DEFAULT_MS 300000u
#define CANCEL_GRACE_NS (100 * NSEC_PER_MSEC) /* longest wait of pst_queue_cancel() */
/* Maximum bytes that one pst_queue_submit() copies from the page cache. */
#define SUBMIT_COPY_MAX MIB(1)
/* Longest sleep, in ns, of a queue some of whose progress causes no event. */
#define PAUSE_NS NSEC_PER_MSEC

struct counters {
	_Atomic uint64_t requests, errors, timeouts, canceled, fallbacks;
	_Atomic uint64_t bytes[PST_PATH_MAX + 1];
	_Atomic uint64_t why[PST_WHY_MAX + 1];
};

/*
 * Every call holds the lock, except while the owner sleeps in pst_queue_reap(). Then waiting is
 * true, and other threads may read the uses but must not touch I/O context and requests.
 *
 * pst_mem_drain() and pst_mem_free() need the lock on other threads.  These calls only try to take
 * the lock, because the owner may hold it for as long as a file system or a driver takes.  If they
 * fail, queue_unlock() drops the object whose handle was freed, and pst_mem_drain() counts the
 * queue as in use.
 */
struct pst_queue {
	struct lock lock;
	struct list link;    /* on the registry's list */
	unsigned refs;       /* threads that use the queue without its lock; under the registry's
			      * lock */
	atomic_bool freed;   /* the program freed the queue; operations may be in flight */
	atomic_bool quiet;   /* freed, and nothing is in flight: the last reference destroys the
			      * queue */
	atomic_bool look;    /* set when handles of objects were freed while the lock was held */
	struct use *dropped; /* objects to be released after unlocking */
	const struct io_backend *backend;
	struct io_ctx *ctx;
	struct io_others others; /* I/O contexts of providers whose files were used */
	uint32_t backend_reason; /* PST_WHY_NO_URING if threads replace io_uring */
	int backend_detail;
	uint32_t depth;
	uint64_t timeout_ns;
	uint64_t seq;
	struct holder holder;
	bool waiting;
	unsigned spin_skip; /* how many of the next waits for an engine do not spin */

	void *reqs;                                       /* array of depth requests, allocated by
							   * carry_init() */
	struct list free, prepared, inflight, done, busy; /* requests by state, see life.h */
	struct list held, started; /* held: waits for writes; started: can make progress */
	unsigned nr_prepared, nr_done;
	_Atomic unsigned nr_inflight, nr_busy; /* changed by gauge() only */
	uint64_t copy_left; /* bytes that may be copied before other requests get a turn */
	bool more;          /* a request on started can continue without any event */
	bool asks;          /* a request on started waits for its lower file, see lower.h */
	unsigned nr_writes; /* writes that started and have not completed */
	unsigned nr_engine; /* requests submitted to engines and not returned */
	bool collects;      /* pst_queue_submit() is running: requests are given to engines in
			     * groups */
	unsigned nr_fresh;  /* requests of the current pst_queue_submit() that wait for
			     * carry_flush() */
	unsigned nr_given;  /* requests that the current pst_queue_submit() has given to engines */
	uint64_t next_deadline; /* CLOCK_MONOTONIC ns; no deadline in flight is before it */

	struct mover mover;

	struct use **uses; /* hash table of objects, see use.c */
	unsigned uses_bits, nr_uses;
	struct use *last_mem, *last_file; /* uses of the last request, or NULL */
	struct use *last_lower;           /* use of the most recent lower file, or NULL */

	_Atomic(struct req *) finished; /* stack of requests that engines returned, the latest on
					 * top */
	int efd;
	atomic_uint wake_in;      /* engines write efd after this many requests; 0: never */
	bool armed;               /* I/O context and engines write efd */
	bool has_fd;              /* the user sleeps on efd */
	bool fd_once;             /* PST_QUEUE_FD_ONCE: only queue_fd() arms efd, for one sleep */
	struct alarm alarm;       /* rings at ring_at or earlier */
	_Atomic uint64_t ring_at; /* CLOCK_MONOTONIC ns of the next deadline while armed, else
				   * PST_NO_DEADLINE */

	struct counters st;
};

static inline void count(_Atomic uint64_t *c, uint64_t n)
{
	/* No atomic addition is needed: only the holder of the queue's lock writes, and pst_stats()
	 * reads. */
	atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

/* Count the reason of a request that did not take the first path of its policy. */
static inline void count_reason(struct counters *st, uint32_t why)
{
	if (why == PST_WHY_NONE)
		return;
	count(&st->fallbacks, 1);
	count(&st->why[why], 1);
}

/*
 * Change a number that can also decrease.  pst_stats() reads the gauges before the counters, so a
 * request that has left a gauge is already in the counters.
 */
static inline void gauge(_Atomic unsigned *g, int by)
{
	atomic_store_explicit(g, atomic_load_explicit(g, memory_order_relaxed) + (unsigned)by,
			      memory_order_release);
}

/* complete.c: apply a step of the request's life, and run its actions. */
void req_act(struct req *r, const struct life_step *s);

/* Apply an event to the request (life.h). */
static inline void req_step(struct req *r, enum req_event event)
{
	const struct life_step *s = &life[r->state][event];

	if (s->acts == LIFE_NOTHING) {
		r->state = s->next;
	} else if (s->acts == LIFE_FREE) {
		r->state = s->next;
		list_move_tail(&r->q->free, &r->link);
	} else {
		req_act(r, s);
	}
}

/* Return true if the queue must poll, because some of its progress causes no event. */
static inline bool queue_polls(const struct pst_queue *q)
{
	return q->mover.parked || q->asks;
}

/* Make all progress that is possible without waiting. */
void queue_progress(struct pst_queue *q);
/* Cancel all requests, and wait up to CANCEL_GRACE_NS until they end; called without the lock. */
void queue_wind_up(struct pst_queue *q);
/* Lock a queue.  Unlocking may release objects, which takes as long as a close(2). */
static inline void queue_lock(struct pst_queue *q)
{
	lock_take(&q->lock);
}

/* The slow part of queue_unlock(): release dropped objects, and find objects whose handle was
 * freed. */
void queue_unlock_slow(struct pst_queue *q);

static inline void queue_unlock(struct pst_queue *q)
{
	if (unlikely(q->dropped || atomic_load_explicit(&q->look, memory_order_relaxed))) {
		queue_unlock_slow(q);
		return;
	}
	lock_drop(&q->lock);
	/* Pairs with registry_release(); queue_unlock_to() explains how. */
	if (unlikely(atomic_load(&q->look)) && lock_try(&q->lock))
		queue_unlock_slow(q);
}

/* Unlock for a caller that must not wait.  Dropped objects go to *dropped, which the caller passes
 * to use_end(); if dropped is NULL they stay with the queue. */
void queue_unlock_to(struct pst_queue *q, struct use **dropped);

/*
 * Return a request to its queue; called by engines, under their lock. q->finished is a stack and
 * not a ring with one producer, because several workers return requests.
 */
static inline void queue_push_finished(struct req *r)
{
	struct pst_queue *q = r->q;
	struct req *head = atomic_load_explicit(&q->finished, memory_order_relaxed);
	unsigned n;

	do
		r->next = head;
	while (!atomic_compare_exchange_weak(&q->finished, &head, r));
	/* Pairs with the store to wake_in, after which the owner reads finished. */
	n = atomic_load(&q->wake_in);
	while (n && !atomic_compare_exchange_weak(&q->wake_in, &n, n - 1))
		;
	if (n == 1)
		(void)eventfd_write(q->efd, 1);
}

/* wait.c: arm the alarm and the eventfd for deadlines, and for requests that end without an event
 * of I/O context or engine. */
void queue_notify(struct pst_queue *q);
/*
 * wait.c: sleep, without the lock, until one of these: the I/O context has finished nr operations;
 * another I/O context has finished one; engines have finished one request, or nr / 2 if they hold
 * all requests in flight.
 */
void queue_wait(struct pst_queue *q, unsigned nr, uint64_t deadline_ns);
/* wait.c: account for n reaped completions of a queue with a descriptor.  was_armed tells whether
 * the descriptor was armed before. */
void queue_reaped(struct pst_queue *q, bool was_armed, unsigned n);
/* wait.c: disarm the descriptor, because nobody sleeps on it. */
void queue_disarm(struct pst_queue *q);

/* ---------------------------------------------------------------- registry */

/* Return the number of requests of all queues that may touch the object.  Process finished
 * operations first. */
unsigned registry_uses(const struct object *obj);
/* Let queues without requests on the object drop it, because its handle was freed. */
void registry_release(struct object *obj);

/*
 * Process finished operations of queues that nobody reaps now: another queue may wait for one of
 * their writes.  The caller may hold any lock; queues whose lock is taken are skipped.  Dropped
 * objects go to *dropped, which the caller passes to use_end(); if @dropped is NULL they stay with
 * their queue.
 */
void registry_progress(struct use **dropped);

/* Return the counters of one queue, or of all queues if only is NULL. */
void registry_stats(struct pst_queue *only, struct pst_stats *ret);

/* ------------------------------------------------------- calls of the program */

/* The functions behind the public calls.  Their caller holds the queue's lock, except for
 * queue_new() and queue_free(). */
int queue_new(const struct pst_queue_opts *o, struct pst_queue **ret);
void queue_free(struct pst_queue *q);
int queue_prep(struct pst_queue *q, const struct pst_io *io);
int queue_submit(struct pst_queue *q);
unsigned queue_reap(struct pst_queue *q, struct pst_done *ret, unsigned min, unsigned max,
		    uint64_t deadline_ns);
int queue_cancel(struct pst_queue *q, uint64_t user_data);
/* Return an eventfd that is written while armed. */
int queue_fd(struct pst_queue *q);
/* Handle the alarm of a queue. */
void queue_ring(struct alarm *a);

#endif
