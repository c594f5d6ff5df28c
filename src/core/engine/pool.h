/* SPDX-License-Identifier: MIT */
/*
 * Staging memory: the slots of an engine.
 *
 * Slots are allocated and pinned an arena at a time.  One bound holds for all engines of the
 * process.  Bytes are charged before they are allocated, so their sum never passes the bound.
 *
 * The bound first covers the reserve of each queue.  Those slots are allocated on the caller's
 * thread, before the queue's first request is taken.  The rest of the bound is divided evenly
 * among the pools.
 *
 * The work queue allocates everything beyond the reserve.  A worker that finds no free slot asks it
 * for more, goes on with the slots it has, and is woken when there are new ones.
 *
 * A pool may have more than its part, because the bound was lowered or another engine was started.
 * It then gives arenas back as they become idle.  A worker takes one of the free slots that it used
 * last, else one of the oldest arena that has some, so the youngest arenas become idle; in a pool
 * with too much, workers keep none.  Otherwise a pool keeps its arenas until its engine
 * ends, because pinning them again would take long.
 */
#ifndef PST_POOL_H
#define PST_POOL_H

#include "base/list.h"
#include "base/work.h"

struct engine;
struct job;
struct share;
struct worker;

struct pool {
	struct list link; /* of all pools */
	/* Under the pools' lock. */
	unsigned nr_shares; /* changes under the engine's lock, too */
	uint64_t reserve;   /* bytes that they are sure of */

	/* Under the engine's lock. */
	struct list arenas; /* oldest first */
	struct list *roomy; /* none before it has a free slot */
	unsigned ages;      /* of the next arena */
	unsigned nr_slots, nr_free;
	unsigned nr_busy;    /* shares that have a slot */
	unsigned max_slots;  /* its part of the bound */
	unsigned unmet;      /* free slots that shares below SLOT_RESERVED may claim */
	bool growing;        /* asked for, or under way */
	bool failed;         /* the last time it was tried */
	uint64_t not_before; /* when to try again */
	struct work work;    /* grows, and gives back */

	/* Slots for reads that a stream waits for, and for nothing else: a job with any other slot
	 * may have to wait for that stream.  Under the engine's lock. */
	struct list feed_arenas;
	struct job *feed_free;
	unsigned nr_feed;
	unsigned nr_feed_lost; /* of these, in use by requests that were stopped */
	uint64_t feed_bytes;   /* part of reserve; under the pools' lock */
	struct work feed_work; /* has more of them; feed_done() ends it */
};

/* A new engine, which has no slot_size yet, takes part. */
void pool_init(struct engine *e);
/* Its workers are gone: nothing uses a slot any more. */
void pool_done(struct engine *e);

/*
 * Have room for the slots that one more share is sure of.  0; -EBUSY when the bound has none
 * for it, perhaps after waiting some time for slots in use; -ENOMEM and the errors of pinning.
 */
int pool_reserve(struct engine *e);
void pool_unreserve(struct engine *e);

/*
 * A slot for a share, or NULL, and then the pool grows if it may.  Under the engine's lock.  The
 * worker gets one that it used before, if one is free: its bytes are in that core's cache.
 */
struct job *pool_take(struct engine *e, struct share *s, struct worker *w);
/* Back from the share that it was taken for.  Under the engine's lock. */
void pool_give(struct engine *e, struct share *s, struct job *j);

/*
 * Have slots for reads that a stream waits for.  0; -EBUSY when the bound has no room, or too many
 * are in use by reads whose files hang; -ENOMEM and the errors of pinning.
 */
int pool_feed(struct engine *e);
/* Some of them hang: replace those in the background.  Under the engine's lock. */
void pool_feed_later(struct engine *e);
/* One of them, or NULL; under the engine's lock, as is pool_give(). */
struct job *pool_take_feed(struct engine *e);

/* Pinned memory of another kind that counts too: room for it within the bound, or -EBUSY. */
int pool_charge(uint64_t len);
void pool_uncharge(uint64_t len);

/* The bound that the program sets, 0 for none; -EBUSY when it is less than queues are sure of. */
int pool_limit(uint64_t bytes);
void pool_stats(uint64_t *ret_bytes, uint64_t *ret_limit);

#endif
