/* SPDX-License-Identifier: MIT */
#ifndef PST_POOL_H
#define PST_POOL_H

#include "core/engine.h"

/* The first slots of a new engine, whose slot_size and max_slots are set. */
int pool_start(struct engine *e);
/* Of an engine that ends: nothing uses its slots any more. */
void pool_free(struct engine *e);
/* More slots.  Under the engine's lock, which is dropped while memory is pinned. */
void pool_grow(struct engine *e);

#endif
