/* SPDX-License-Identifier: MIT */
/*
 * Arenas: slots that are allocated and pinned together (arena.c).
 */
#ifndef PST_ARENA_H
#define PST_ARENA_H

#include "core/sched/engine.h"

/* Slots that were allocated together. */
struct arena {
	struct list link; /* on the pool's list */
	const struct mem_ops *ops;
	unsigned device;
	unsigned age; /* order of creation: a lower number is older */
	unsigned nr, nr_used;
	struct job *free;
	char *buf;
	uint64_t len, pinned;
	struct io_buf *reg;
	struct mem_late late;
	struct job jobs[];
};

/* Bytes of all pools that are pinned or are being pinned. */
extern _Atomic uint64_t pinned_bytes;

/*
 * Return the number of slots of an arena.  All arenas of a pool have the same size, so that the
 * pool can shrink to any share.  Arenas are small, because the driver blocks other threads while it
 * pins one.
 */
unsigned arena_slots(const struct engine *e);
/* Allocate and pin an arena, and cut it into slots.  The caller has charged its bytes to the limit;
 * after a failure they are uncharged, perhaps a moment later. */
int arena_make(struct engine *e, struct arena **ret);
/* Free arenas.  Called without a lock, because unpinning calls the driver. */
void arenas_free(struct list *arenas);

/* Add an arena to the pool, under the engine's lock. */
void arena_add(struct pool *p, struct arena *a);
/* Remove an arena without slots in use from the pool, under the engine's lock. */
void arena_del(struct pool *p, struct arena *a);
/* Return the oldest arena with a free slot, so that the youngest arenas become idle; under the
 * engine's lock. */
struct arena *arena_roomy(struct pool *p);
/* Return a free slot to its arena, under the engine's lock. */
void slot_put(struct pool *p, struct job *j);

#endif
