/* SPDX-License-Identifier: MIT */
/*
 * A runner is a queue with its requests in flight, used by a thread to make passes.  An executor's
 * thread has one, and each ring has one for its clients.  The executor's lock protects everything
 * here; it is released while bytes move.
 */
#ifndef SERVER_RUNNER_H
#define SERVER_RUNNER_H

#include <penstock.h>

#include "base/base.h"
#include "base/list.h"

struct executor;
struct request;

#define RUNNER_DEVICES 4u

/* A queue, and the requests that its passes have in flight. */
struct runner {
	struct list link;    /* on executor->runners */
	struct pst_queue *q; /* the queue, or NULL */
	int qfd;
	bool helps;                       /* the current pass is a client's and must not block */
	bool taken;                       /* a pass is using the runner */
	bool out;                         /* the pass has released the lock */
	uint64_t out_since;               /* executor->nr_forgets when the lock was released */
	uint64_t devices[RUNNER_DEVICES]; /* devices whose engines this queue started */
	unsigned nr_devices;
	struct request *first; /* requests to be started, in order */
	struct request **last;
	unsigned nr_prepared; /* requests prepared but not submitted */
	unsigned nr_inflight; /* requests prepared or submitted, but not reaped */
	uint64_t nr_taken;    /* entries taken since the beginning */
	uint64_t nr_started;  /* requests started since the beginning, without those put back */
	struct stage *stage;  /* staging memory for windows, or NULL */
};

/* Return true if this queue has started the engine of the device. */
static inline bool runner_knows(const struct runner *h, uint64_t device)
{
	for (unsigned i = 0; i < MIN(h->nr_devices, RUNNER_DEVICES); i++)
		if (h->devices[i] == device)
			return true;
	return false;
}

/* Create and free a ring's runner.  Caller does not hold the lock. */
int runner_new(struct executor *ex, struct runner *h);
void runner_free(struct executor *ex, struct runner *h);
/* Create only the queue; does not put the runner on the executor's list. */
int runner_init(struct executor *ex, struct runner *h);

/* Take and drop a runner.  Only one thread uses a taken runner and its queue. */
void runner_take(struct runner *h, bool helps);
void runner_drop(struct executor *ex, struct runner *h);

/*
 * Start the runner's requests and take completions.  Releases the lock while bytes move.  Return
 * true if anything happened.
 */
bool runner_move(struct executor *ex, struct runner *h);

/*
 * Arm the queue's descriptor, unless the runner is taken or has no request in flight: the
 * descriptor becomes readable when a request completes.  A thread arms the runners before it
 * sleeps.
 */
void runner_arm(const struct runner *h);
void runners_arm(struct executor *ex);

/* Return true if no submitted request is in flight: then no queue wakes the thread. */
bool runners_are_idle(const struct executor *ex);

/* Wait until every runner that has released the lock has taken it again. */
void runners_await(struct executor *ex);

#endif
