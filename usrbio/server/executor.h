/* SPDX-License-Identifier: MIT */
/*
 * Executors, the rings that they serve, and the requests that come of those.
 *
 * An executor is a thread and a queue.  Its work is done in passes, each by whoever holds its
 * lock: mostly the executor's own thread, or a client that helps.  Everything here is under the
 * executor's lock unless it is atomic or never changes.
 *
 * A pass takes completions, gives each ring that has something to do a turn, highest priority
 * first, submits once, takes what that completed already, and wakes the clients.  A turn is
 * bounded in entries and bytes, and smaller while rings of a higher priority are busy.
 *
 * Each accepted entry becomes an item, each transfer a request.  A result held back for the order
 * of its batch does not hold back a request.  A thread that leaves an executor arms its queue's
 * descriptor only if requests are in flight (PST_QUEUE_FD_ONCE).
 *
 *	kicked rings -> run[priority] -> a turn each -> items, requests -> queue
 *	queue -> items, in the order of their batch -> completions -> the client's semaphore
 *
 * Lock order: server, executor, table.
 */
#ifndef SERVER_EXECUTOR_H
#define SERVER_EXECUTOR_H

#include <pthread.h>
#include <stdatomic.h>

#include <penstock.h>

#include "base/base.h"
#include "base/list.h"
#include "usrbio/server/batch.h"
#include "usrbio/server/shm.h"
#include "usrbio/server/table.h"
#include "usrbio/server/server.h"

#define EXECUTORS_MAX 64u
#define CTX_DEPTH 256u                /* requests that an executor has under way */
#define EXECUTOR_RESERVE 8u           /* of these, for each of the two lower priorities */
#define QUANTUM 32u                   /* entries of a ring in one pass */
#define QUANTUM_FEW 4u                /* while rings of a higher priority are busy */
#define QUANTUM_BYTES MIB(4)          /* of requests started for a ring in one pass */
#define RETRY_NS (10 * NSEC_PER_MSEC) /* when to try again what nothing will wake us for */

#define NO_ITEM UINT32_MAX

/*
 * What a ring owes a completion for, from the copy of its entry on.  Items of a batch are chained:
 * only the first may go out, and makes the next one the first.
 */
struct item {
	uint64_t user_data;
	int64_t result;
	int32_t index;
	uint32_t next; /* of the batch, or of the free ones */
	bool first, done;
};

/* Something to move.  Waits, then belongs to the queue. */
struct request {
	struct list link; /* executor->free, ring->waiting or ring->started */
	struct server_ring *ring;
	uint32_t item;
	struct usrbio_args args;
	struct server_file *file;     /* while it waits, else NULL */
	struct server_buffer *buffer; /* likewise */
	dev_t dev;                    /* what overlaps is told by these */
	ino_t ino;
};

struct server_ring {
	struct executor *executor;
	struct shm shm;
	bool for_read, forbid_holes;
	enum usrbio_priority priority;

	/* The client's side of it: a line of its own. */
	_Alignas(64) atomic_bool kicked; /* on executor->kicked */
	struct server_ring *next_kicked;

	_Alignas(64) struct list link; /* executor->rings */
	struct list run;               /* executor->run[priority]: has work perhaps; or stalled */
	struct list timed;             /* executor->timed: batch.due is set */
	struct list touched;           /* executor->touched: completions are to be published */
	bool stalled; /* on executor->stalled: has something to do, and no room for it */
	bool ending, broken;
	bool more; /* there were entries for one more batch at the last look */

	uint32_t sq_tail, cq_head; /* as we know them */
	struct batch batch;
	uint32_t batch_left; /* entries of the batch that were not taken yet */
	uint32_t batch_last; /* the last item of it, or NO_ITEM */

	struct item *items;  /* slots - 1 */
	uint32_t nr_items;   /* in use */
	uint32_t free_item;  /* chain, or NO_ITEM */
	uint32_t fresh_item; /* from here on never used */

	struct list waiting; /* in their order */
	struct list started;
	unsigned nr_requests; /* on these two lists */
	struct server_ring_stats st;
};

enum executor_state {
	EXECUTOR_AWAKE,
	EXECUTOR_NAPS,   /* looks again soon by itself */
	EXECUTOR_SLEEPS, /* until the eventfd is written */
};

struct executor {
	/* Any thread. */
	_Atomic(struct server_ring *) kicked; /* latest first */
	_Atomic int state;                    /* enum executor_state */
	atomic_uint wanted;                   /* who wants the lock besides the executor's thread */
	atomic_bool stop;
	atomic_bool came; /* a client came to help lately */
	atomic_bool left; /* and left something for the thread */
	int efd;

	_Alignas(64) pthread_mutex_t lock;
	pthread_cond_t quiet; /* a ring that ends has nothing under way any more */
	struct server *w;
	unsigned idx;
	unsigned nr_rings; /* under the server's lock */
	pthread_t thread;
	struct pst_queue *q;
	int qfd;
	struct table_cache cache;
	struct list rings, run[USRBIO_PRIORITIES], stalled, timed, touched;
	struct list free;
	unsigned nr_free;
	unsigned nr_prepared; /* pst_queue_prep(), but not pst_queue_submit() yet */
	unsigned nr_inflight; /* pst_queue_prep() or later, not reaped */
	bool helped;          /* a client makes this pass: nothing in it may block */
	bool call_thread;     /* the executor's thread has to go on with what the client left */
	uint64_t nr_taken;    /* entries, ever */
	unsigned trust;       /* how sure it is that clients come and help */
	uint64_t wake_at;     /* when the thread wakes by itself */
	struct request reqs[CTX_DEPTH];
};

struct server {
	struct table table;
	pthread_mutex_t lock;
	unsigned max_executors, nr_executors;
	bool guard;
	struct executor *executors[EXECUTORS_MAX];
};

/* ------------------------------------------------------------------- executors */

int executor_new(struct server *w, unsigned idx, struct executor **ret);
struct executor *executor_free(struct executor *ex);

/* The lock, for everybody but those who make passes. */
void executor_enter(struct executor *ex);
void executor_leave(struct executor *ex);

/* Its thread looks at everything soon. */
void executor_wake(struct executor *ex);

/* The ring may have something to do. */
void executor_kick(struct executor *ex, struct server_ring *r);
/* Rings that were kicked stand on the run lists. */
void executor_take_kicked(struct executor *ex);

/*
 * Everything that can be done without waiting, for all rings or for one.  Did anything happen?
 */
bool executor_pass(struct executor *ex, struct server_ring *only);
/* The same by a client.  False also when somebody else is at it. */
bool executor_help(struct executor *ex, struct server_ring *r);

/* They cannot be found any more: what waits for them finds others, or fails. */
void executor_forget(struct executor *ex, const struct server_file *f,
		     const struct server_buffer *b);

/* ------------------------------------------------------------------- rings */

/* Not on an executor yet. */
int ring_new(const struct server_ring_opts *o, bool guard, struct server_ring **ret);
void ring_free(struct server_ring *r);

/* Take up to so many entries and start what can be started.  Did anything happen? */
bool ring_turn(struct server_ring *r, unsigned quantum);
/* Is there something to do for it that needs no further kick? */
bool ring_hungry(const struct server_ring *r);
/* A request is over; its result goes out when it is its turn. */
void ring_settle(struct request *q, int64_t result);
/* The client sees the completions, and is woken. */
void ring_publish(struct server_ring *r);
/* What was taken and not started is dropped. */
void ring_drop(struct server_ring *r);

/* ---------------------------------------------------------------- requests */

/* Find what its arguments name, and check them.  0, or -errno that is its result. */
int request_check(struct request *q);

enum start {
	START_TAKEN, /* by the queue */
	START_LATER, /* it has to wait */
	START_OVER,  /* it has its result already */
};
enum start request_start(struct request *q, int64_t *ret_result);

/* The queue has completed it. */
void request_done(struct request *q, const struct pst_done *d);

/* What a client gets for a result of libpenstock's. */
int64_t request_result(int64_t res);

#endif
