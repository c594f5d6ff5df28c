/* SPDX-License-Identifier: MIT */
/*
 * Lanes, the rings that they serve, and the requests that come of those.
 *
 * A lane is a thread and a queue.  Its work is done in passes, each by whoever holds its lock:
 * mostly the lane's own thread, or a client that helps.  Everything here is under the lane's
 * lock unless it is atomic or never changes.
 *
 *	kicked rings -> run[priority] -> a turn each -> items, requests -> queue
 *	queue -> items, in the order of their batch -> completions -> the client's semaphore
 *
 * Lock order: worker, lane, table.
 */
#ifndef WORKER_LANE_H
#define WORKER_LANE_H

#include <pthread.h>
#include <stdatomic.h>

#include <penstock.h>

#include "base/base.h"
#include "base/list.h"
#include "usrbio/server/batch.h"
#include "usrbio/server/shm.h"
#include "usrbio/server/table.h"
#include "usrbio/server/worker.h"

#define LANES_MAX 64u
#define LANE_DEPTH 256u		  /* requests that a lane has under way */
#define LANE_RESERVE 8u		  /* of these, for each of the two lower priorities */
#define QUANTUM 32u		  /* entries of a ring in one pass */
#define QUANTUM_FEW 4u		  /* while rings of a higher priority are busy */
#define QUANTUM_BYTES MIB(4)	  /* of requests started for a ring in one pass */
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
	struct list link; /* lane->free, ring->waiting or ring->started */
	struct worker_ring *ring;
	uint32_t item;
	struct usrbio_args args;
	struct worker_file *file;     /* while it waits, else NULL */
	struct worker_buffer *buffer; /* likewise */
	dev_t dev;		      /* what overlaps is told by these */
	ino_t ino;
};

struct worker_ring {
	struct lane *lane;
	struct shm shm;
	bool for_read, forbid_holes;
	enum usrbio_priority priority;

	/* The client's side of it: a line of its own. */
	_Alignas(64) atomic_bool kicked; /* on lane->kicked */
	struct worker_ring *next_kicked;

	_Alignas(64) struct list link; /* lane->rings */
	struct list run;	       /* lane->run[priority]: has work perhaps; or stalled */
	struct list timed;	       /* lane->timed: batch.due is set */
	struct list touched;	       /* lane->touched: completions are to be published */
	bool stalled; /* on lane->stalled: has something to do, and no room for it */
	bool ending, broken;
	bool more; /* there were entries for one more batch at the last look */

	uint32_t sq_tail, cq_head; /* as we know them */
	struct batch batch;
	uint32_t batch_left; /* entries of the batch that were not taken yet */
	uint32_t batch_last; /* the last item of it, or NO_ITEM */

	struct item *items; /* slots - 1 */
	uint32_t nr_items;  /* in use */
	uint32_t free_item; /* chain, or NO_ITEM */
	uint32_t fresh_item; /* from here on never used */

	struct list waiting; /* in their order */
	struct list started;
	unsigned nr_requests; /* on these two lists */
	struct worker_ring_stats st;
};

enum lane_state {
	LANE_AWAKE,
	LANE_NAPS,   /* looks again soon by itself */
	LANE_SLEEPS, /* until the eventfd is written */
};

struct lane {
	/* Any thread. */
	_Atomic(struct worker_ring *) kicked; /* latest first */
	_Atomic int state;		      /* enum lane_state */
	atomic_uint wanted;		      /* who wants the lock besides the lane's thread */
	atomic_bool stop;
	atomic_bool came; /* a client came to help lately */
	atomic_bool left; /* and left something for the thread */
	int efd;

	_Alignas(64) pthread_mutex_t lock;
	pthread_cond_t quiet; /* a ring that ends has nothing under way any more */
	struct worker *w;
	unsigned idx;
	unsigned nr_rings; /* under the worker's lock */
	pthread_t thread;
	struct pst_queue *q;
	int qfd;
	struct table_cache cache;
	struct list rings, run[USRBIO_PRIORITIES], stalled, timed, touched;
	struct list free;
	unsigned nr_free;
	unsigned nr_prepared; /* pst_queue_prep(), but not pst_queue_submit() yet */
	unsigned nr_inflight; /* pst_queue_prep() or later, not reaped */
	bool helped;	      /* a client makes this pass: nothing in it may block */
	bool call_thread;     /* the lane's thread has to go on with what the client left */
	uint64_t nr_taken;    /* entries, ever */
	unsigned trust;	      /* how sure it is that clients come and help */
	uint64_t wake_at;     /* when the thread wakes by itself */
	struct request reqs[LANE_DEPTH];
};

struct worker {
	struct table table;
	pthread_mutex_t lock;
	unsigned max_lanes, nr_lanes;
	bool guard;
	struct lane *lanes[LANES_MAX];
};

/* ------------------------------------------------------------------- lanes */

int lane_new(struct worker *w, unsigned idx, struct lane **ret);
struct lane *lane_free(struct lane *l);

/* The lock, for everybody but those who make passes. */
void lane_enter(struct lane *l);
void lane_leave(struct lane *l);

/* Its thread looks at everything soon. */
void lane_wake(struct lane *l);

/* The ring may have something to do. */
void lane_kick(struct lane *l, struct worker_ring *r);
/* Rings that were kicked stand on the run lists. */
void lane_take_kicked(struct lane *l);

/*
 * Everything that can be done without waiting, for all rings or for one.  Did anything happen?
 */
bool lane_pass(struct lane *l, struct worker_ring *only);
/* The same by a client.  False also when somebody else is at it. */
bool lane_help(struct lane *l, struct worker_ring *r);

/* They cannot be found any more: what waits for them finds others, or fails. */
void lane_forget(struct lane *l, const struct worker_file *f, const struct worker_buffer *b);

/* ------------------------------------------------------------------- rings */

/* Not on a lane yet. */
int ring_new(const struct worker_ring_opts *o, bool guard, struct worker_ring **ret);
void ring_free(struct worker_ring *r);

/* Take up to so many entries and start what can be started.  Did anything happen? */
bool ring_turn(struct worker_ring *r, unsigned quantum);
/* Is there something to do for it that needs no further kick? */
bool ring_hungry(const struct worker_ring *r);
/* A request is over; its result goes out when it is its turn. */
void ring_settle(struct request *q, int64_t result);
/* The client sees the completions, and is woken. */
void ring_publish(struct worker_ring *r);
/* What was taken and not started is dropped. */
void ring_drop(struct worker_ring *r);

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
