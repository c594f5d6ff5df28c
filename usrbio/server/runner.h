/* SPDX-License-Identifier: MIT */
/*
 * Runners.  A runner is a queue with its requests in flight, with which a thread makes passes.  An
 * executor's thread has one, and each ring has one for its clients.  Everything here is under the
 * executor's lock, which is released while bytes move.
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
	bool helps;                       /* a client makes the current pass, which must not
					   * block */
	bool taken;                       /* a pass uses the runner */
	bool out;                         /* that pass has released the lock */
	uint64_t out_since;               /* executor->nr_forgets at that time */
	uint64_t devices[RUNNER_DEVICES]; /* devices whose engines the queue has started */
	unsigned nr_devices;
	struct request *first; /* requests to be started, in their order */
	struct request **last;
	unsigned nr_prepared; /* prepared but not submitted */
	unsigned nr_inflight; /* prepared or submitted, but not reaped */
	uint64_t nr_taken;    /* entries taken since the beginning */
	uint64_t nr_started;  /* requests started since the beginning, without those that had to
			       * wait */
	struct stage *stage;  /* staging for small requests through windows, or NULL */
};

/* Return true if the queue has started the engine of that device. */
static inline bool runner_knows(const struct runner *h, uint64_t device)
{
	for (unsigned i = 0; i < MIN(h->nr_devices, RUNNER_DEVICES); i++)
		if (h->devices[i] == device)
			return true;
	return false;
}

/* Create and free a ring's own runner, without the lock. */
int runner_new(struct executor *ex, struct runner *h);
void runner_free(struct executor *ex, struct runner *h);
/* Create only the queue; the runner is not on the executor's list yet. */
int runner_init(struct executor *ex, struct runner *h);

/* Take and drop a runner.  While it is taken, only one thread uses it and its queue. */
void runner_take(struct runner *h, bool helps);
void runner_drop(struct executor *ex, struct runner *h);

/*
 * Start the runner's requests and take completions.  Both move bytes, so the lock is released
 * meanwhile.  Return true if anything happened.
 */
bool runner_move(struct executor *ex, struct runner *h);

/*
 * Arm the queue's descriptor, if nobody has taken the runner and requests are in flight: it becomes
 * readable when one completes.  A thread arms the runners before it sleeps.
 */
void runner_arm(const struct runner *h);
void runners_arm(struct executor *ex);

/* Return true if no submitted request has yet to complete: then no queue wakes the thread. */
bool runners_are_idle(const struct executor *ex);

/* Wait until every runner has come back that has released the lock now. */
void runners_await(struct executor *ex);

#endif
