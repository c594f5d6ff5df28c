/* SPDX-License-Identifier: MIT */
/*
 * Queues: the life of requests on memory and files.
 *
 * A queue chooses no way for bytes and moves none: it asks the rooms above it (above.h).
 *
 * prep.c checks requests, queue.c starts them and ends them early, complete.c completes them, and
 * wait.c waits for them.  registry.c has all queues of the process.
 *
 * Lock order: queue -> registry -> clock -> engines -> pools -> engine -> gds -> regions ->
 * locks inside mem/ and file/ -> work.  The registry's lock covers its list, and the references
 * that threads hold while they look at a queue.
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
#define CANCEL_GRACE_NS (100 * NSEC_PER_MSEC) /* what pst_queue_cancel() promises */
#define SUBMIT_COPY_MAX MIB(1)                /* out of the page cache within pst_queue_submit() */
#define PAUSE_NS NSEC_PER_MSEC                /* longest sleep where no event tells all there is */

struct counters {
	_Atomic uint64_t requests, errors, timeouts, canceled, fallbacks;
	_Atomic uint64_t bytes[PST_PATH_MAX + 1];
	_Atomic uint64_t why[PST_WHY_MAX + 1];
};

/*
 * Every call holds the lock, but not while the owner sleeps in pst_queue_reap().  Then waiting is
 * true, and other threads may look at the uses but must not touch I/O context and requests.
 *
 * The lock is there for pst_mem_drain() and pst_mem_free() on other threads.  The owner may hold it
 * for as long as a file system or a driver takes, so other threads only try to take it.  If they
 * fail, queue_unlock() lets go of an object whose handle was freed meanwhile, and pst_mem_drain()
 * counts the queue as in use.
 */
struct pst_queue {
	struct lock lock;
	struct list link;    /* registry */
	unsigned refs;       /* of threads that look at it; under the registry's lock */
	atomic_bool freed;   /* the program freed it; something of it may not be quiet */
	atomic_bool quiet;   /* freed, and nothing is under way: the last reference destroys it */
	atomic_bool look;    /* objects died while the lock was taken */
	struct use *dropped; /* objects to be let go of without the lock */
	const struct io_backend *backend;
	struct io_ctx *ctx;
	struct io_others others; /* of providers whose files it has seen */
	uint32_t backend_reason; /* PST_WHY_NO_URING where threads stand in for it */
	int backend_detail;
	uint32_t depth;
	uint64_t timeout_ns;
	uint64_t seq;
	struct holder holder;
	bool waiting;
	unsigned spin_skip; /* waits for an engine that do not look first */

	void *reqs;                                       /* depth of them; carry_init() */
	struct list free, prepared, inflight, done, busy; /* requests by state, see life.h */
	struct list held, started; /* those in flight that wait: for writes; to be gone on with */
	unsigned nr_prepared, nr_done;
	_Atomic unsigned nr_inflight, nr_busy; /* by gauge() */
	uint64_t copy_left; /* bytes that may still be copied before others have a look */
	bool more;          /* one on started can go on at once, without any event */
	bool asks;          /* one on started asks for the file beneath again, see lower.h */
	unsigned nr_writes; /* started, not completed */
	unsigned nr_engine; /* requests that an engine has */
	bool collects;      /* pst_queue_submit() is under way: engines get requests in groups */
	unsigned nr_fresh;  /* requests of it that wait for carry_flush() */
	unsigned nr_given;  /* requests of it that engines have */
	uint64_t next_deadline; /* no deadline in flight is earlier */

	struct mover mover;

	struct use **uses; /* a hash table of objects; use.c */
	unsigned uses_bits, nr_uses;
	struct use *last_mem, *last_file; /* those of the last request, or NULL */
	struct use *last_lower;           /* likewise of the file beneath the last such file */

	_Atomic(struct req *) finished; /* from engines, latest first */
	int efd;
	atomic_uint wake_in;      /* engines write efd after so many requests; 0: never */
	bool armed;               /* I/O context and engines write efd */
	bool has_fd;              /* the user sleeps on efd */
	bool fd_once;             /* after queue_fd() only, until the next call */
	struct alarm alarm;       /* rings at ring_at or before */
	_Atomic uint64_t ring_at; /* the next deadline while armed, else PST_NO_DEADLINE */

	struct counters st;
};

static inline void count(_Atomic uint64_t *c, uint64_t n)
{
	/* One writer, under the queue's lock; pst_stats() may read from elsewhere. */
	atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

/* A request took another path than the first of its policy, for that reason. */
static inline void count_reason(struct counters *st, uint32_t why)
{
	if (why == PST_WHY_NONE)
		return;
	count(&st->fallbacks, 1);
	count(&st->why[why], 1);
}

/*
 * The same for a number that goes down, too.  pst_stats() reads the gauges first: a request that
 * is not under way any more is counted.
 */
static inline void gauge(_Atomic unsigned *g, int by)
{
	atomic_store_explicit(g, atomic_load_explicit(g, memory_order_relaxed) + (unsigned)by,
			      memory_order_release);
}

/* complete.c: go that step, with its actions. */
void req_act(struct req *r, const struct life_step *s);

/* The event that the request's life goes on by (life.h). */
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

/* Does something under way have no event that wakes the queue when it may go on? */
static inline bool queue_polls(const struct pst_queue *q)
{
	return q->mover.parked || q->asks;
}

/* Everything that can be done without waiting. */
void queue_progress(struct pst_queue *q);
/* End all requests, and give them a little time to end by themselves; without the lock. */
void queue_wind_up(struct pst_queue *q);
/* The lock of a queue.  Letting go of it may end objects, which takes as long as a close(2). */
static inline void queue_lock(struct pst_queue *q)
{
	lock_take(&q->lock);
}

/* There are objects to end, or to look for. */
void queue_unlock_slow(struct pst_queue *q);

static inline void queue_unlock(struct pst_queue *q)
{
	if (unlikely(q->dropped || atomic_load_explicit(&q->look, memory_order_relaxed))) {
		queue_unlock_slow(q);
		return;
	}
	lock_drop(&q->lock);
	/* Pairs with registry_release(): see queue_unlock_to(). */
	if (unlikely(atomic_load(&q->look)) && lock_try(&q->lock))
		queue_unlock_slow(q);
}

/* The same for a caller that must not wait: the objects go to *dropped, for use_end(), or stay with
 * the queue if dropped is NULL. */
void queue_unlock_to(struct pst_queue *q, struct use **dropped);

/*
 * Called by engines, under their lock: hand a request back to its queue.  q->finished is a stack,
 * and not a ring with one producer, because several workers hand requests back.
 */
static inline void queue_push_finished(struct req *r)
{
	struct pst_queue *q = r->q;
	struct req *head = atomic_load_explicit(&q->finished, memory_order_relaxed);
	unsigned n;

	do
		r->next = head;
	while (!atomic_compare_exchange_weak(&q->finished, &head, r));
	/* Pairs with the store to wake_in before the owner looks at finished. */
	n = atomic_load(&q->wake_in);
	while (n && !atomic_compare_exchange_weak(&q->wake_in, &n, n - 1))
		;
	if (n == 1)
		(void)eventfd_write(q->efd, 1);
}

/* wait.c: while armed, deadlines and requests that end without I/O context or engine must wake,
 * too. */
void queue_notify(struct pst_queue *q);
/*
 * wait.c: sleep until the I/O context has finished nr operations, or another I/O context has
 * finished anything, or engines half of nr requests where they have all of the queue's; without
 * the lock meanwhile.
 */
void queue_wait(struct pst_queue *q, unsigned nr, uint64_t deadline_ns);
/* wait.c: n completions were reaped of a queue with a descriptor, which was readable or not. */
void queue_reaped(struct pst_queue *q, bool was_armed, unsigned n);
/* wait.c: nobody sleeps on the descriptor any more. */
void queue_disarm(struct pst_queue *q);

/* ---------------------------------------------------------------- registry */

/* Requests of any queue that may touch the object; first finds those that got quiet meanwhile. */
unsigned registry_uses(const struct object *obj);
/* The object's handle is gone: queues without requests on it let go of it. */
void registry_release(struct object *obj);

/*
 * Take finished operations of queues that nobody reaps just now: another queue may wait only for a
 * write of theirs.  Under any lock; it does nothing where others hold the locks that it needs.
 * Objects that go with it are for the caller's use_end(), or stay with their queue where @dropped
 * is NULL.
 */
void registry_progress(struct use **dropped);

/* The counters of one queue, or of all. */
void registry_stats(struct pst_queue *only, struct pst_stats *ret);

/* ------------------------------------------------------- calls of the program */

/* The public calls make these, under the queue's lock but for new and free. */
int queue_new(const struct pst_queue_opts *o, struct pst_queue **ret);
void queue_free(struct pst_queue *q);
int queue_prep(struct pst_queue *q, const struct pst_io *io);
int queue_submit(struct pst_queue *q);
unsigned queue_reap(struct pst_queue *q, struct pst_done *ret, unsigned min, unsigned max,
		    uint64_t deadline_ns);
int queue_cancel(struct pst_queue *q, uint64_t user_data);
/* An eventfd that is written while armed. */
int queue_fd(struct pst_queue *q);
/* The alarm of a queue. */
void queue_ring(struct alarm *a);

#endif
