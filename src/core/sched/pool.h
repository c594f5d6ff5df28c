/* SPDX-License-Identifier: MIT */
/*
 * Staging memory: the slots of an engine.
 *
 * Slots are allocated and pinned an arena at a time.  One limit holds for all engines of the
 * process.  Bytes are charged before they are allocated, so their sum never exceeds the limit.
 *
 * The limit first covers the reserve of each queue, which is allocated on the caller's thread
 * before the queue's first request is accepted.  The rest of the limit is divided evenly among the
 * pools.  The work queue allocates everything beyond the reserve: a worker that finds no free slot
 * asks for more, continues with the slots that it has, and is woken when there are new ones.
 *
 * A pool may have more than its share after the limit was lowered or another engine was started.
 * The pool then frees arenas as they become idle, and workers keep no free slots.  A worker takes a
 * free slot that it used last, else one of the oldest arena that has any, so the youngest arenas
 * become idle.  A pool within its share keeps its arenas until its engine ends, because pinning
 * takes long.
 */
#ifndef PST_POOL_H
#define PST_POOL_H

#include "core/sched/engine.h"

/* Register the pool of a new engine, whose slot_size is not set yet. */
void pool_init(struct engine *e);
/* Free the pool of an engine whose workers have ended. */
void pool_done(struct engine *e);

/*
 * Reserve the slots of one more share.  Return 0; -EBUSY if the limit has no room, even after
 * waiting for slots in use; -ENOMEM or an error of pinning.
 */
int pool_reserve(struct engine *e);
void pool_unreserve(struct engine *e);

/*
 * Take a slot for a share.  Return NULL if none is free; the pool then grows if it may.  Under the
 * engine's lock.  The worker gets a slot that it used before if one is free, because the slot's
 * bytes are in that CPU's cache.
 */
struct job *pool_take(struct engine *e, struct share *s, struct worker *w);
/* Give a slot back from its share, under the engine's lock. */
void pool_give(struct engine *e, struct share *s, struct job *j);

/*
 * Reserve slots for reads that a stream waits for.  Return 0; -EBUSY if the limit has no room, or
 * if too many are held by reads whose files hang; -ENOMEM or an error of pinning.
 */
int pool_feed(struct engine *e);
/* Replace slots that hanging reads hold, in the background; under the engine's lock. */
void pool_feed_later(struct engine *e);
/* Take a slot for a read that a stream waits for, or return NULL; under the engine's lock.
 * pool_give() returns the slot. */
struct job *pool_take_feed(struct engine *e);

/* Charge pinned memory that is not in a pool to the limit.  Return 0 or -EBUSY. */
int pool_charge(uint64_t len);
void pool_uncharge(uint64_t len);

/* Set the program's limit, 0 for none.  Return -EBUSY if queues have reserved more. */
int pool_limit(uint64_t bytes);
void pool_stats(uint64_t *ret_bytes, uint64_t *ret_limit);

#endif
