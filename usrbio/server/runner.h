/* SPDX-License-Identifier: MIT */
/*
 * Runners: an executor's thread has one, and each ring has one for its clients.  Everything here is
 * under the executor's lock, which moving bytes lets go of.
 */
#ifndef SERVER_RUNNER_H
#define SERVER_RUNNER_H

#include <penstock.h>

#include "base/base.h"
#include "base/list.h"

struct executor;
struct request;

#define RUNNER_DEVICES 4u

/* A queue, and the requests that passes with it have under way. */
struct runner {
	struct list link;    /* executor->runners */
	struct pst_queue *q; /* NULL: there is none */
	int qfd;
	bool helps;                       /* a client makes this pass: nothing in it may block */
	bool taken;                       /* by a pass */
	bool out;                         /* which has let go of the lock */
	uint64_t out_since;               /* executor->nr_forgets then */
	uint64_t devices[RUNNER_DEVICES]; /* whose engines the queue has started */
	unsigned nr_devices;
	struct request *first; /* to be started, in their order */
	struct request **last;
	unsigned nr_prepared; /* pst_queue_prep(), but not pst_queue_submit() yet */
	unsigned nr_inflight; /* pst_queue_prep() or later, not reaped */
	uint64_t nr_taken;    /* entries, ever */
	uint64_t nr_started;  /* requests that did not come back to wait, ever */
	struct stage *stage;  /* for small requests to windows; or NULL */
};

/* Has its queue started the engine of that device? */
static inline bool runner_knows(const struct runner *h, uint64_t device)
{
	for (unsigned i = 0; i < MIN(h->nr_devices, RUNNER_DEVICES); i++)
		if (h->devices[i] == device)
			return true;
	return false;
}

/* The ring's own runner comes and goes with the ring, without the lock. */
int runner_new(struct executor *ex, struct runner *h);
void runner_free(struct executor *ex, struct runner *h);
/* Its queue alone: the runner is not on the executor's list yet. */
int runner_init(struct executor *ex, struct runner *h);

/* A runner is one thread's while it is taken.  So are the calls of its queue. */
void runner_take(struct runner *h, bool helps);
void runner_drop(struct executor *ex, struct runner *h);

/*
 * Start the requests that the runner was given, and take completions.  Both move bytes, so that it
 * lets go of the lock meanwhile.  Did anything happen?
 */
bool runner_move(struct executor *ex, struct runner *h);

/*
 * If nobody has taken the runner and requests are in flight, its queue writes its descriptor when one
 * of them completes.  A thread arms the runners before it sleeps.
 */
void runner_arm(const struct runner *h);
void runners_arm(struct executor *ex);

/* Is no request submitted that has yet to complete?  Then no queue wakes the thread. */
bool runners_are_idle(const struct executor *ex);

/* Wait until every runner is back that has let go of the lock now. */
void runners_await(struct executor *ex);

#endif
