/* SPDX-License-Identifier: MIT */
/*
 * Executors, the rings that they serve, and the requests of those rings.
 *
 * An executor has a thread with a queue, and each ring has a queue for its client, which helps.
 * Work is done in passes, each with one of the queues (struct runner).  Everything here is under
 * the executor's lock unless it is atomic or never changes.
 *
 * A pass gives each ring that has something to do a turn, highest priority first, submits once,
 * takes completions, and wakes the clients.  A turn is limited in entries and bytes, and shorter
 * while rings of a higher priority are busy, or while two runners work on a ring.  Submitting and
 * reaping move bytes without the lock, so that the thread and the clients work in parallel.  Each
 * accepted entry becomes an item, each transfer a request.  A result that waits for the order of
 * its batch does not block a request.  A thread that leaves an executor arms its queue's descriptor
 * only if requests are in flight (PST_QUEUE_FD_ONCE).
 *
 * 	kicked rings -> run[priority] -> a turn each -> items, requests -> queue
 * 	queue -> items, in the order of their batch -> completions
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
#define CTX_DEPTH 256u                /* requests that an executor has in flight */
#define EXECUTOR_RESERVE 8u           /* requests reserved for each of the two lower priorities */
#define QUANTUM 32u                   /* most entries of a ring in one pass */
#define QUANTUM_FEW 4u                /* the same while rings of a higher priority are busy */
#define QUANTUM_BYTES MIB(4)          /* most bytes of requests started for a ring in one pass */
#define RETRY_NS (10 * NSEC_PER_MSEC) /* time between retries, if nothing wakes the thread */

#define NO_ITEM UINT32_MAX

/*
 * An item is a copied entry until its completion is published.  Items of a batch are chained: only
 * the first may be published, and then makes the next one the first.
 */
struct item {
	uint64_t user_data;
	int64_t result;
	int32_t index;
	uint32_t next;       /* next item of the batch, or next free item */
	uint64_t taken : 62; /* executor->clock when it was taken */
	uint64_t first : 1, done : 1;
};

/* How far a runner has come with a request. */
enum request_step {
	REQUEST_AGAIN,    /* the queue has no room, so the request waits */
	REQUEST_PREPARED, /* the queue has it */
	REQUEST_OVER,     /* it has a result */
};

/* A transfer.  It waits, then a runner has it, and then perhaps the runner's queue. */
struct request {
	struct list link; /* on executor->free, ring->waiting or ring->started */
	struct server_ring *ring;
	struct runner *runner; /* its runner, once it is started */
	bool out;              /* the runner has it */
	struct request *next;  /* next in the runner */
	uint32_t item;
	struct usrbio_args args;
	struct server_file *file;     /* its file, until the queue has it; else NULL */
	struct server_buffer *buffer; /* its buffer, until the queue has it; else NULL */
	struct pst_mem *mem;          /* memory of the buffer; NULL: not available yet */
	uint64_t mem_off;
	struct slot slot;       /* slot between file and window */
	struct import *import;  /* import of the window, referenced while slot is used */
	enum request_step step; /* set by the runner, as the rest */
	int64_t result;
	uint32_t paths, why;
	int32_t detail;
	bool told; /* server_opts.writes is told of what it writes */
	dev_t dev; /* dev and ino, to find writes that overlap */
	ino_t ino;
};

struct server_ring {
	struct executor *executor;
	struct shm shm;
	bool for_read, forbid_holes;
	enum usrbio_priority priority;

	/* Written by the client: a cache line of its own. */
	_Alignas(64) atomic_bool kicked; /* on executor->kicked */
	struct server_ring *next_kicked;

	_Alignas(64) struct list link; /* on executor->rings */
	struct list run;               /* on executor->run[priority] if it may have work; or on
					* stalled */
	struct list timed;             /* on executor->timed if batch.due is set */
	struct list touched;           /* on executor->touched if completions must be published */
	bool stalled;                  /* on executor->stalled: has work but no room */
	bool ending, broken;
	bool more; /* there were entries for another batch at the last look */

	uint32_t sq_tail, cq_head; /* the server's own copies of its markers */
	struct batch batch;
	uint32_t batch_left; /* entries of the current batch that were not taken yet */
	uint32_t batch_last; /* the last item of that batch, or NO_ITEM */

	struct item *items;  /* slots - 1 */
	uint32_t nr_items;   /* items in use */
	uint32_t free_item;  /* chain of free items, or NO_ITEM */
	uint32_t fresh_item; /* items from here on were never used */

	struct list waiting; /* requests in their order */
	struct list started;
	unsigned nr_requests;      /* requests on waiting and started */
	_Atomic uint32_t entry_ns; /* nanoseconds that one of its requests takes on average */
	unsigned nr_helpers;       /* clients that are making a pass for it */
	struct runner runner;      /* runner of the clients */
	struct server_ring_stats st;
};

enum executor_state {
	EXECUTOR_AWAKE,
	EXECUTOR_SLEEPS_BRIEFLY, /* wakes up soon by itself */
	EXECUTOR_SLEEPS,         /* sleeps until the eventfd is written */
};

struct executor {
	/* Used by any thread. */
	_Atomic(struct server_ring *) kicked; /* kicked rings, latest first */
	_Atomic int state;                    /* enum executor_state */
	atomic_uint wanted;                   /* threads that wait in executor_enter() */
	atomic_bool stop;
	atomic_bool came;       /* a client has helped recently */
	atomic_bool left;       /* a client left work for the thread */
	atomic_bool called;     /* the thread was called because there is work for both */
	atomic_uint skip_calls; /* calls to skip: recent ones found no work */
	bool alone;             /* one CPU: the thread does not work in parallel with clients */
	int efd;

	_Alignas(64) pthread_mutex_t lock;
	pthread_cond_t quiet; /* signalled when a runner comes back, or an ending ring has
			       * nothing in flight */
	struct server *w;
	unsigned idx;
	unsigned nr_rings; /* under the server's lock */
	unsigned nr_ending;
	unsigned nr_waits; /* threads that wait for runners to come back */
	uint64_t nr_forgets;
	pthread_t thread;
	struct runner runner; /* runner of the thread */
	struct list runners;
	int epfd; /* epoll descriptor of the runners' queues */
	struct table_cache cache;
	struct list rings, run[USRBIO_PRIORITIES], stalled, timed, touched;
	struct list free;
	unsigned nr_free;
	bool call_thread;           /* the thread must continue a client's work */
	uint64_t call_device;       /* that device's engine must be started by the thread */
	struct server_ring *lender; /* ring to serve first, with its own runner; or NULL */
	bool shares;                /* the thread was called and has not finished */
	unsigned trust;             /* how likely clients are to help */
	uint64_t wake_at;           /* when the thread wakes by itself */
	struct usrbio_lane *lane;   /* its lane of the tally, or NULL */
	uint64_t clock;             /* the clock's last reading, if the executor counts */
	struct request reqs[CTX_DEPTH];
};

struct server {
	struct table table;
	pthread_mutex_t lock;
	unsigned max_executors, nr_executors;
	bool guard;
	void (*writes)(const struct server_range *ranges, unsigned nr);
	struct usrbio_tally *tally; /* the tally, or NULL */
	struct executor *executors[EXECUTORS_MAX];
};

/* ------------------------------------------------------------------- executors */

int executor_new(struct server *w, unsigned idx, struct executor **ret);
struct executor *executor_free(struct executor *ex);

/* Take the lock, for all but those who make passes. */
void executor_enter(struct executor *ex);
void executor_leave(struct executor *ex);

/* Read the clock if the executor counts: when entries are taken, and when bytes were moved. */
static inline void executor_clock(struct executor *ex)
{
	if (ex->lane)
		ex->clock = now_ns();
}

/* Make the thread check everything soon. */
void executor_wake(struct executor *ex);

/* Tell the executor that the ring may have work. */
void executor_kick(struct executor *ex, struct server_ring *r);
/* Put the kicked rings on the run lists. */
void executor_take_kicked(struct executor *ex);
/* Put the ring on the stalled list: it has work but no room. */
void executor_stall(struct executor *ex, struct server_ring *r);
/* Run stalled rings again, because there may be room now. */
void executor_take_stalled(struct executor *ex);

/* Make passes on the executor's thread; true if anything happened. */
bool executor_work(struct executor *ex);
/* The executor's thread. */
void *executor_main(void *arg);

/*
 * Do everything that needs no waiting, for all rings or for one, with the caller's runner.
 * Releases the lock meanwhile.  Return true if anything happened.
 */
bool executor_pass(struct executor *ex, struct runner *h, struct server_ring *only);
/* Make a pass as a client. */
enum server_help executor_help(struct executor *ex, struct server_ring *r);
/* Make a pass as a thread that was told of entries: what it cannot do, others will. */
void executor_serve(struct executor *ex, struct server_ring *r);
/* Return true if two runners work on the ring, or are about to. */
bool executor_is_shared(const struct executor *ex, const struct server_ring *r);

/* Forget a file or buffer: requests that wait for it find another, or fail. */
void executor_forget(struct executor *ex, const struct server_file *f,
		     const struct server_buffer *b);

/* ------------------------------------------------------------------- rings */

/* Create a ring that is not on an executor yet. */
int ring_new(const struct server_ring_opts *o, bool guard, struct server_ring **ret);
void ring_free(struct server_ring *r);

/* Take up to quantum entries and start as many requests as possible; true if anything happened. */
bool ring_turn(struct server_ring *r, struct runner *h, unsigned quantum);
/* Estimate how long the entries that were not taken yet may need, without the lock. */
uint64_t ring_work(const struct server_ring *r);
/* Return true if the ring has work that needs no further kick. */
bool ring_hungry(const struct server_ring *r);
/* Record the result of a request, which is published in the order of its batch. */
void ring_settle(struct request *q, int64_t result);
/* Publish completions, and wake the client. */
void ring_publish(struct server_ring *r);
/* Drop entries that were taken but not started. */
void ring_drop(struct server_ring *r);
/* Cancel requests that were started with the runner, which nobody else has taken. */
void ring_cancel(struct server_ring *r, const struct runner *h);

/* ---------------------------------------------------------------- requests */

/* Find and check the file and buffer of the request's arguments.  Return 0, or the -errno that is
 * its result. */
int request_check(struct request *q);

/* Give the request to the runner; false if it must wait. */
bool request_start(struct request *q, struct runner *h);
/* The runner's calls, without the lock.  The runner tries the request first, and prepares it if
 * that fails (REQUEST_AGAIN). */
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
 * For a file that is opened by its name: have it opened.  Return true once it is open; otherwise
 * the request has no memory, and the step is REQUEST_OVER if it cannot be opened.  Called first.
 */
bool request_open(struct request *q);
/*
 * For memory of another process: find the memory that the bytes move to or from, which may be a
 * slot.  The step is REQUEST_OVER if there is none; there is no memory if it is not available yet.
 * Called after request_open().
 */
void request_place(struct request *q);
/* Undo request_place(): the request must wait, or has ended. */
void request_unplace(struct request *q);
/* Move bytes through the window that libpenstock has put into a slot. */
void request_land(struct request *q, struct pst_done *d);
void request_tried(struct request *q, struct pst_done *d);
void request_prep(struct request *q);
/* Handle a request that the runner gives back. */
void request_moved(struct request *q);
/* Handle a started request that must wait after all. */
void request_back(struct request *q);

/* Handle the completion of the queue. */
void request_done(struct request *q, const struct pst_done *d);

/* Convert a result of libpenstock to the client's. */
int64_t request_result(int64_t res);

#endif
