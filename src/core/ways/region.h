/* SPDX-License-Identifier: MIT */
/*
 * References to allocations (region.c).
 */
#ifndef PST_REGION_H
#define PST_REGION_H

#include "core/queue/object.h"

/* Return the region of an allocation, created if there is none.  Takes over @a, even on failure. */
int region_get(struct mem_alloc *a, struct region **ret);
/* Add a reference. */
struct region *region_again(struct region *r);
void region_put(struct region *r);

int object_new_mem(struct region *r, uint64_t off, uint64_t len, struct pst_mem **ret);

#endif
