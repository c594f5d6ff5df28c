/* SPDX-License-Identifier: MIT */
/*
 * Arenas: slots that are allocated and pinned together (arena.c).
 */
#ifndef PST_ARENA_H
#define PST_ARENA_H

#include "core/sched/engine.h"

/* The slots that were allocated together. */
struct arena {
	struct list link; /* the pool's */
	const struct mem_ops *ops;
	unsigned device;
	unsigned age; /* lower is older */
	unsigned nr, nr_used;
	struct job *free;
	char *buf;
	uint64_t len, pinned;
	struct io_buf *reg;
	struct mem_late late;
	struct job jobs[];
};

/* Of all pools: pinned, or about to be. */
extern _Atomic uint64_t pinned_bytes;

/*
 * Slots of an arena.  All arenas of a pool have the same size, so that the pool can shrink to any
 * share.  They are small, because the driver keeps others waiting while it pins one.
 */
unsigned arena_slots(const struct engine *e);
/* Pinned memory, cut into slots.  Its bytes were charged; on failure they are not, or soon are
 * not. */
int arena_make(struct engine *e, struct arena **ret);
/* Without a lock: it calls the driver. */
void arenas_free(struct list *arenas);

/* Under the engine's lock: add the arena to the pool. */
void arena_add(struct pool *p, struct arena *a);
/* Under the engine's lock: take the arena, of which nothing is in use, out of the pool. */
void arena_del(struct pool *p, struct arena *a);
/* Under the engine's lock: the oldest with a free slot, so that the youngest become idle. */
struct arena *arena_roomy(struct pool *p);
/* Under the engine's lock: the slot is free, and back in its arena. */
void slot_put(struct pool *p, struct job *j);

#endif
