/* SPDX-License-Identifier: MIT */
/*
 * Hands: an executor's thread has one, and each ring has one for its clients.  Everything here is
 * under the executor's lock, which moving bytes lets go of.
 */
#ifndef SERVER_HAND_H
#define SERVER_HAND_H

#include <penstock.h>

#include "base/base.h"
#include "base/list.h"

struct executor;
struct request;

#define HAND_DEVICES 4u

/* A queue, and the requests that passes with it have under way. */
struct hand {
	struct list link;    /* executor->hands */
	struct pst_queue *q; /* NULL: there is none */
	int qfd;
	bool helps;                     /* a client makes this pass: nothing in it may block */
	bool taken;                     /* by a pass */
	bool out;                       /* which has let go of the lock */
	uint64_t out_since;             /* executor->nr_forgets then */
	uint64_t devices[HAND_DEVICES]; /* whose engines the queue has started */
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
static inline bool hand_knows(const struct hand *h, uint64_t device)
{
	for (unsigned i = 0; i < MIN(h->nr_devices, HAND_DEVICES); i++)
		if (h->devices[i] == device)
			return true;
	return false;
}

/* The ring's own hand comes and goes with the ring, without the lock. */
int hand_new(struct executor *ex, struct hand *h);
void hand_free(struct executor *ex, struct hand *h);
/* Its queue alone: the hand is not on the executor's list yet. */
int hand_init(struct executor *ex, struct hand *h);

/* A hand is one thread's while it is taken.  So are the calls of its queue. */
void hand_take(struct hand *h, bool helps);
void hand_drop(struct executor *ex, struct hand *h);

/*
 * Start the requests that the hand was given, and take completions.  Both move bytes, so that it
 * lets go of the lock meanwhile.  Did anything happen?
 */
bool hand_move(struct executor *ex, struct hand *h);

/*
 * If nobody has taken the hand and requests are in flight, its queue writes its descriptor when one
 * of them completes.  A thread arms the hands before it sleeps.
 */
void hand_arm(const struct hand *h);
void hands_arm(struct executor *ex);

/* Is no request submitted that has yet to complete?  Then no queue wakes the thread. */
bool hands_are_idle(const struct executor *ex);

/* Wait until every hand is back that has let go of the lock now. */
void hands_await(struct executor *ex);

#endif
