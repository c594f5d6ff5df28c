/* SPDX-License-Identifier: MIT */
/*
 * Executors, the rings that they serve, and the requests that come of those.
 *
 * An executor has a thread with a queue, and each ring has a queue for its client, that helps.
 * Work is done in passes, each with one of the queues (struct runner).  Everything here is under the
 * executor's lock unless it is atomic or never changes.
 *
 * A pass gives each ring that has something to do a turn, highest priority first, submits once,
 * takes completions, and wakes the clients.  A turn is bounded in entries and bytes, and
 * smaller while rings of a higher priority are busy, or while two runners are at work on a ring.
 * Submitting and reaping move bytes, so that a pass lets go of the lock meanwhile: the thread and
 * the clients work side by side.
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
#include "usrbio/server/runner.h"
#include "usrbio/server/import.h"
#include "usrbio/server/shm.h"
#include "usrbio/server/stage.h"
#include "usrbio/server/table.h"
#include "usrbio/server/server.h"

#define EXECUTORS_MAX 64u
#define CTX_DEPTH 256u                /* requests that an executor has under way */
#define EXECUTOR_RESERVE 8u           /* of these, for each of the two lower priorities */
#define QUANTUM 32u                   /* entries of a ring in one pass */
#define QUANTUM_FEW 4u                /* while rings of a higher priority are busy */
#define QUANTUM_BYTES MIB(4)          /* of requests started for a ring in one pass */
#define RETRY_NS (10 * NSEC_PER_MSEC) /* between tries, where nothing will wake us */

#define NO_ITEM UINT32_MAX

/*
 * An item is an entry that was copied, until its completion goes out.  Items of a batch are
 * chained: only the first may go out, and makes the next one the first.
 */
struct item {
	uint64_t user_data;
	int64_t result;
	int32_t index;
	uint32_t next;       /* of the batch, or of the free ones */
	uint64_t taken : 62; /* executor->clock then */
	uint64_t first : 1, done : 1;
};

/* How far a runner came with a request. */
enum request_step {
	REQUEST_AGAIN,    /* the queue has no room: it has to wait */
	REQUEST_PREPARED, /* it is the queue's */
	REQUEST_OVER,     /* it has its result */
};

/* Something to move.  It waits, then a runner has it, and then perhaps the runner's queue. */
struct request {
	struct list link; /* executor->free, ring->waiting or ring->started */
	struct server_ring *ring;
	struct runner *runner; /* once it is started */
	bool out;              /* it is with the runner */
	struct request *next;  /* there */
	uint32_t item;
	struct usrbio_args args;
	struct server_file *file;     /* until it is the queue's, else NULL */
	struct server_buffer *buffer; /* likewise */
	struct pst_mem *mem;          /* the buffer's; NULL: it is not to be had yet */
	uint64_t mem_off;
	struct slot slot;       /* between file and window */
	struct import *import;  /* of the window: a reference, while there is a slot */
	enum request_step step; /* the runner's, as the rest */
	int64_t result;
	uint32_t paths, why;
	int32_t detail;
	bool told; /* somebody is told of what it writes */
	dev_t dev; /* these tell whether writes overlap */
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
	unsigned nr_requests;      /* on these two lists */
	_Atomic uint32_t entry_ns; /* that one of its requests takes, by and large */
	unsigned nr_helpers;       /* clients that are in a pass for it */
	struct runner runner;      /* theirs */
	struct server_ring_stats st;
};

enum executor_state {
	EXECUTOR_AWAKE,
	EXECUTOR_SLEEPS_BRIEFLY, /* looks again soon by itself */
	EXECUTOR_SLEEPS,         /* until the eventfd is written */
};

struct executor {
	/* Any thread. */
	_Atomic(struct server_ring *) kicked; /* latest first */
	_Atomic int state;                    /* enum executor_state */
	atomic_uint wanted;                   /* threads that wait in executor_enter() */
	atomic_bool stop;
	atomic_bool came;       /* a client came to help lately */
	atomic_bool left;       /* and left something for the thread */
	atomic_bool called;     /* there is enough for both of them */
	atomic_uint skip_calls; /* so many calls would be in vain */
	bool alone;             /* on one CPU: nobody works beside a client */
	int efd;

	_Alignas(64) pthread_mutex_t lock;
	pthread_cond_t quiet; /* a runner came back, or an ending ring has nothing under way */
	struct server *w;
	unsigned idx;
	unsigned nr_rings; /* under the server's lock */
	unsigned nr_ending;
	unsigned nr_waits; /* for runners to come back */
	uint64_t nr_forgets;
	pthread_t thread;
	struct runner runner; /* the thread's */
	struct list runners;
	int epfd; /* of their queues */
	struct table_cache cache;
	struct list rings, run[USRBIO_PRIORITIES], stalled, timed, touched;
	struct list free;
	unsigned nr_free;
	bool call_thread;           /* the executor's thread has to go on with the client's work */
	uint64_t call_device;       /* for that device's engine */
	struct server_ring *lender; /* first for that ring and with its runner, or NULL */
	bool shares;                /* the thread was called, and has not finished */
	unsigned trust;             /* how sure it is that clients come and help */
	uint64_t wake_at;           /* when the thread wakes by itself */
	struct usrbio_lane *lane;   /* where it counts, or NULL */
	uint64_t clock;             /* the latest look at it, where it counts */
	struct request reqs[CTX_DEPTH];
};

struct server {
	struct table table;
	pthread_mutex_t lock;
	unsigned max_executors, nr_executors;
	bool guard;
	void (*writes)(const struct server_range *ranges, unsigned nr);
	struct usrbio_tally *tally; /* or NULL */
	struct executor *executors[EXECUTORS_MAX];
};

/* ------------------------------------------------------------------- executors */

int executor_new(struct server *w, unsigned idx, struct executor **ret);
struct executor *executor_free(struct executor *ex);

/* The lock, for everybody but those who make passes. */
void executor_enter(struct executor *ex);
void executor_leave(struct executor *ex);

/* Who counts looks at the clock: when entries are taken, and when bytes have been moved. */
static inline void executor_clock(struct executor *ex)
{
	if (ex->lane)
		ex->clock = now_ns();
}

/* Its thread looks at everything soon. */
void executor_wake(struct executor *ex);

/* The ring may have something to do. */
void executor_kick(struct executor *ex, struct server_ring *r);
/* Rings that were kicked stand on the run lists. */
void executor_take_kicked(struct executor *ex);
/* The ring has something to do, and no room for it. */
void executor_stall(struct executor *ex, struct server_ring *r);
/* There may be room now for rings that had none. */
void executor_take_stalled(struct executor *ex);

/* Passes by the executor's thread.  Did anything happen? */
bool executor_work(struct executor *ex);
/* That thread. */
void *executor_main(void *arg);

/*
 * Everything that can be done without waiting, for all rings or for one.  The runner is the
 * caller's.  Lets go of the lock meanwhile.  Did anything happen?
 */
bool executor_pass(struct executor *ex, struct runner *h, struct server_ring *only);
/* The same by a client. */
enum server_help executor_help(struct executor *ex, struct server_ring *r);
/* The same by a thread that was told of entries: if it cannot do everything, others will. */
void executor_serve(struct executor *ex, struct server_ring *r);
/* Are two runners at work on the ring, or about to be? */
bool executor_is_shared(const struct executor *ex, const struct server_ring *r);

/* Look-ups find them no more: requests that wait for them find others, or fail. */
void executor_forget(struct executor *ex, const struct server_file *f,
		     const struct server_buffer *b);

/* ------------------------------------------------------------------- rings */

/* Not on an executor yet. */
int ring_new(const struct server_ring_opts *o, bool guard, struct server_ring **ret);
void ring_free(struct server_ring *r);

/* Take up to so many entries and start as many requests as possible.  Did anything happen? */
bool ring_turn(struct server_ring *r, struct runner *h, unsigned quantum);
/* How long its entries may take that were not taken yet: a hint, without the lock. */
uint64_t ring_work(const struct server_ring *r);
/* Is there something to do for it that needs no further kick? */
bool ring_hungry(const struct server_ring *r);
/* A request is over; its result goes out when it is its turn. */
void ring_settle(struct request *q, int64_t result);
/* The client sees the completions, and is woken. */
void ring_publish(struct server_ring *r);
/* Drop entries that were taken and not started. */
void ring_drop(struct server_ring *r);
/* Cancel requests that were started with the runner, which nobody else has taken. */
void ring_cancel(struct server_ring *r, const struct runner *h);

/* ---------------------------------------------------------------- requests */

/* Find the file and buffer of its arguments, and check them.  0, or -errno that is its result. */
int request_check(struct request *q);

/* Give it to the runner.  False: it has to wait. */
bool request_start(struct request *q, struct runner *h);
/* The runner's calls, without the lock: it tries the request first, and prepares it if that was in
 * vain (REQUEST_AGAIN). */
static inline bool request_may_try(const struct request *q)
{
	return q->ring->for_read && !q->ring->forbid_holes && (!q->buffer->device || q->slot.stage);
}
static inline struct pst_io request_io(const struct request *q)
{
	return (struct pst_io){
		.op = q->ring->for_read ? PST_OP_READ : PST_OP_WRITE,
		.file = q->file->file,
		.mem = q->mem,
		.file_off = q->args.file_off,
		.mem_off = q->mem_off,
		.len = q->args.len,
		.user_data = (uintptr_t)q,
	};
}
/*
 * Of another process' memory: find what its bytes move to or from, which may be a slot; first of
 * all.  It has the step REQUEST_OVER if there is none, and no memory if there will be some.
 */
void request_place(struct request *q);
/* It has to wait after all, or is over, and needs none. */
void request_unplace(struct request *q);
/* libpenstock has moved its bytes, which are in a slot: they go through the window. */
void request_land(struct request *q, struct pst_done *d);
void request_tried(struct request *q, struct pst_done *d);
void request_prep(struct request *q);
/* The runner came back with it. */
void request_moved(struct request *q);
/* It was started, and has to wait after all. */
void request_back(struct request *q);

/* The queue has completed it. */
void request_done(struct request *q, const struct pst_done *d);

/* The result that a client gets for one of libpenstock's. */
int64_t request_result(int64_t res);

#endif
