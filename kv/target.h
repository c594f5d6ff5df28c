/* SPDX-License-Identifier: MIT */
/* The memory of a block: that of an item, in one piece or in segments. */
#ifndef KV_TARGET_H
#define KV_TARGET_H

#include <penstock_kv.h>

#include "base/base.h"

/* Memory of one block, and the part of it that a request moves. */
struct target {
	struct pst_mem *mem;
	struct pst_mem *wrapped; /* to be freed */
	struct pst_seg *segs;    /* allocated; NULL: the piece that begins at off */
	uint64_t nr_segs, off;
};

/* Prepare the memory of an item for the first len bytes of a block.  Call target_done() in any
 * case.  Return 0 or -errno. */
int target_init(struct target *t, const struct pst_kv_item *item, uint64_t len);
/* busy: a request that has ended may still use the memory. */
void target_done(struct pst_kv *kv, struct target *t, bool busy);

/* Return the end of the bytes that an item uses, from its mem_off on. */
uint64_t target_extent(const struct pst_kv_item *item);

/* Copy a block's len bytes to the target, or from the target.  Return 0 or -errno. */
int target_put(const struct target *t, const void *block, uint64_t len);
int target_take(const struct target *t, void *block, uint64_t len);

#endif
