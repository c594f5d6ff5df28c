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

#include "core/sched/engine.h"

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
