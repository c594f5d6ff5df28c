/* SPDX-License-Identifier: MIT */
/*
 * Executors, the rings that they serve, and the requests of those rings.
 *
 * An executor has a thread with a queue, and each ring has a queue for its client, which may help.
 * Work is done in passes, each with one of these queues (struct runner).  Everything here is
 * protected by the executor's lock unless it is atomic or constant.
 *
 * A pass gives each ring that has work a turn, highest priority first, submits once, takes
 * completions and wakes the clients.  A turn is limited in entries and bytes; the limits are lower
 * while rings of a higher priority are busy, or while two runners work on a ring.  Submitting and
 * reaping move bytes without the lock, so that thread and clients work in parallel.  Each accepted
 * entry becomes an item, each transfer a request.  A request can be reused before its item is
 * published in the order of its batch.  A thread that leaves an executor arms its queue's
 * descriptor only if requests are in flight (PST_QUEUE_FD_ONCE).
 *
 *	kicked rings -> run[priority] -> a turn each -> items, requests -> queue
 *	queue -> items, in the order of their batch -> completions
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
#define CTX_DEPTH 256u                /* maximum requests in flight per executor */
#define EXECUTOR_RESERVE 8u           /* requests reserved for each of the two lower priorities */
#define QUANTUM 32u                   /* maximum entries taken from a ring per turn */
#define QUANTUM_FEW 4u                /* QUANTUM while rings of a higher priority are busy */
#define QUANTUM_BYTES MIB(4)          /* maximum bytes of requests started per turn */
#define RETRY_NS (10 * NSEC_PER_MSEC) /* retry interval if no event will wake the thread */

#define NO_ITEM UINT32_MAX

/*
 * An entry, from copying it until its completion is published.  The items of a batch are chained:
 * only the first is published, and the next one then becomes first.
 */
struct item {
	uint64_t user_data;
	int64_t result;
	int32_t index;
	uint32_t next;       /* next item of the batch, or next free item */
	uint64_t taken : 62; /* executor->clock when the entry was taken, ns */
	uint64_t first : 1, done : 1;
};

/* Progress of a request in a runner. */
enum request_step {
	REQUEST_AGAIN,    /* no room in the queue: the request waits */
	REQUEST_PREPARED, /* in the queue */
	REQUEST_OVER,     /* has a result */
};

/* A transfer.  It waits on its ring, then belongs to a runner, then usually to the runner's
 * queue. */
struct request {
	struct list link; /* on executor->free, ring->waiting or ring->started */
	struct server_ring *ring;
	struct runner *runner; /* runner that started it; NULL: not started */
	bool out;              /* the runner is moving it without the lock */
	struct request *next;  /* next request of the runner */
	uint32_t item;
	struct usrbio_args args;
	struct server_file *file;     /* NULL once the queue has the request */
	struct server_buffer *buffer; /* NULL once the queue has the request */
	struct pst_mem *mem;          /* memory for the request; NULL: not available yet */
	uint64_t mem_off;
	struct slot slot;       /* host memory for a window; slot.stage NULL: none */
	struct import *import;  /* import of the window, with a reference while slot is used */
	enum request_step step; /* progress; the runner sets this and the members up to detail */
	int64_t result;
	uint32_t paths, why;
	int32_t detail;
	bool told; /* server_opts.writes is called for the request's range */
	dev_t dev; /* dev and ino identify the file, to find overlapping writes */
	ino_t ino;
};

struct server_ring {
	struct executor *executor;
	struct shm shm;
	bool for_read, forbid_holes;
	enum usrbio_priority priority;

	/* Written by clients, so it has a separate cache line. */
	_Alignas(64) atomic_bool kicked; /* on executor->kicked */
	struct server_ring *next_kicked;

	_Alignas(64) struct list link; /* on executor->rings */
	struct list run;               /* on executor->run[priority] or executor->stalled */
	struct list timed;             /* on executor->timed if batch.due is set */
	struct list touched;           /* on executor->touched if completions must be published */
	bool stalled;                  /* on executor->stalled: has work but no room */
	bool ending, broken;
	bool more; /* another batch was present at the last check */

	uint32_t sq_tail, cq_head; /* private copies of the server's markers */
	struct batch batch;
	uint32_t batch_left; /* entries of the current batch not taken yet */
	uint32_t batch_last; /* last item of the current batch, or NO_ITEM */

	struct item *items;  /* slots - 1 items */
	uint32_t nr_items;   /* items in use */
	uint32_t free_item;  /* first of the chain of free items, or NO_ITEM */
	uint32_t fresh_item; /* first item that was never used */

	struct list waiting; /* requests to be started, in order */
	struct list started;
	unsigned nr_requests;      /* length of waiting and started */
	_Atomic uint32_t entry_ns; /* average time per request, estimated from sizes, ns */
	unsigned nr_helpers;       /* clients that are making a pass for the ring */
	struct runner runner;      /* the clients' runner */
	struct server_ring_stats st;
};

enum executor_state {
	EXECUTOR_AWAKE,
	EXECUTOR_SLEEPS_BRIEFLY, /* sleeps, and wakes up soon by itself */
	EXECUTOR_SLEEPS,         /* sleeps until the eventfd is written */
};

struct executor {
	/* Used by any thread. */
	_Atomic(struct server_ring *) kicked; /* stack of kicked rings, newest first */
	_Atomic int state;                    /* enum executor_state */
	atomic_uint wanted;                   /* threads that wait in executor_enter() */
	atomic_bool stop;
	atomic_bool came;       /* true: a client took entries recently */
	atomic_bool left;       /* a client left work for the thread */
	atomic_bool called;     /* the thread was called to share the work */
	atomic_uint skip_calls; /* calls to skip: recent ones found no work */
	bool alone;             /* single CPU: thread and clients do not work in parallel */
	int efd;

	_Alignas(64) pthread_mutex_t lock;
	pthread_cond_t quiet; /* signalled when a runner returns, or an ending ring has no
			       * request left */
	struct server *w;
	unsigned idx;
	unsigned nr_rings; /* under the server's lock */
	unsigned nr_ending;
	unsigned nr_waits; /* threads in runners_await() */
	uint64_t nr_forgets;
	pthread_t thread;
	struct runner runner; /* the thread's own runner */
	struct list runners;
	int epfd; /* epoll descriptor with the runners' queues */
	struct table_cache cache;
	struct list rings, run[USRBIO_PRIORITIES], stalled, timed, touched;
	struct list free;
	unsigned nr_free;
	bool call_thread;           /* the thread must continue a client's work */
	uint64_t call_device;       /* device whose engine the thread must start */
	struct server_ring *lender; /* ring to serve first, with its own runner; or NULL */
	bool shares;                /* the thread was called and still works */
	unsigned trust;             /* 0 to TRUST_MAX: how often clients help */
	uint64_t wake_at;           /* when the sleeping thread wakes by itself, ns */
	struct usrbio_lane *lane;   /* counters of this executor, or NULL */
	uint64_t clock;             /* last reading of the clock, ns; only if lane is set */
	struct request reqs[CTX_DEPTH];
};

struct server {
	struct table table;
	pthread_mutex_t lock;
	unsigned max_executors, nr_executors;
	bool guard;
	void (*writes)(const struct server_range *ranges, unsigned nr);
	struct usrbio_tally *tally; /* counters, or NULL */
	struct executor *executors[EXECUTORS_MAX];
};

/* ------------------------------------------------------------------- executors */

int executor_new(struct server *w, unsigned idx, struct executor **ret);
struct executor *executor_free(struct executor *ex);

/* Take the lock, with priority over helping passes.  Helping passes do not use this. */
void executor_enter(struct executor *ex);
void executor_leave(struct executor *ex);

/* Read the clock, if the executor counts.  Called when entries are taken and when bytes were
 * moved. */
static inline void executor_clock(struct executor *ex)
{
	if (ex->lane)
		ex->clock = now_ns();
}

/* Wake the thread, and make it check everything. */
void executor_wake(struct executor *ex);

/* Tell the executor that the ring may have work. */
void executor_kick(struct executor *ex, struct server_ring *r);
/* Put the kicked rings on the run lists. */
void executor_take_kicked(struct executor *ex);
/* Put the ring on the stalled list: it has work but no room. */
void executor_stall(struct executor *ex, struct server_ring *r);
/* Run stalled rings again, because there may be room now. */
void executor_take_stalled(struct executor *ex);

/* Make passes on the executor's thread.  Return true if anything happened. */
bool executor_work(struct executor *ex);
/* The executor's thread. */
void *executor_main(void *arg);

/*
 * Make a pass for all rings, or for one, with the caller's runner.  Never blocks on requests; the
 * lock is released while bytes move.  Return true if anything happened.
 */
bool executor_pass(struct executor *ex, struct runner *h, struct server_ring *only);
/* Help as a client: make passes for its ring. */
enum server_help executor_help(struct executor *ex, struct server_ring *r);
/* Serve a ring on a thread of the owner that knows of new entries; leave requests that would block
 * to other threads. */
void executor_serve(struct executor *ex, struct server_ring *r);
/* Return true if two runners work on the ring, or are about to. */
bool executor_is_shared(const struct executor *ex, const struct server_ring *r);

/* Forget a removed file or buffer: requests that name it and were not started find another one, or
 * fail. */
void executor_forget(struct executor *ex, const struct server_file *f,
		     const struct server_buffer *b);

/* ------------------------------------------------------------------- rings */

/* Create a ring that is not on an executor yet. */
int ring_new(const struct server_ring_opts *o, bool guard, struct server_ring **ret);
void ring_free(struct server_ring *r);

/* Take up to quantum entries and start as many requests as possible.  Return true if anything
 * happened. */
bool ring_turn(struct server_ring *r, struct runner *h, unsigned quantum);
/* Estimate the time that entries not taken yet need, in ns.  Needs no lock. */
uint64_t ring_work(const struct server_ring *r);
/* Return true if the ring has work that needs no further kick. */
bool ring_hungry(const struct server_ring *r);
/* Record a request's result; it is published in the order of its batch. */
void ring_settle(struct request *q, int64_t result);
/* Publish completions, and wake the client. */
void ring_publish(struct server_ring *r);
/* Drop entries that were taken but not started. */
void ring_drop(struct server_ring *r);
/* Cancel requests that were started with that runner, which no thread has taken. */
void ring_cancel(struct server_ring *r, const struct runner *h);

/* ---------------------------------------------------------------- requests */

/* Find and check the file and buffer of the request's arguments.  Return 0, or the -errno to
 * complete it with. */
int request_check(struct request *q);

/* Give the request to the runner.  Return false if it must wait. */
bool request_start(struct request *q, struct runner *h);
/* Calls of the runner, made without the lock.  The runner tries requests for which this is true,
 * and prepares those whose try failed (REQUEST_AGAIN). */
static inline bool request_may_try(const struct request *q)
{
	return q->ring->for_read && !q->ring->forbid_holes && !q->file->named &&
	       (!q->buffer->device || q->slot.stage);
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
 * Open the request's file if it is opened by name.  Return true once it is open; otherwise the
 * request has no memory, and its step is REQUEST_OVER if opening failed.  Call this first.
 */
bool request_open(struct request *q);
/*
 * Find the memory to use for memory of another process: a slot, or the imported memory.  Without
 * memory, the step is REQUEST_OVER after an error, and unchanged while it is not available yet.
 * Call this after request_open().
 */
void request_place(struct request *q);
/* Undo request_place() for a request that must wait or has ended. */
void request_unplace(struct request *q);
/* Move bytes between a slot and its window after the file operation. */
void request_land(struct request *q, struct pst_done *d);
void request_tried(struct request *q, struct pst_done *d);
void request_prep(struct request *q);
/* Handle a request that the runner returns. */
void request_moved(struct request *q);
/* Handle a started request that must wait again. */
void request_back(struct request *q);

/* Handle a completion of the queue. */
void request_done(struct request *q, const struct pst_done *d);

/* Convert a result of libpenstock to one for the client. */
int64_t request_result(int64_t res);

#endif
