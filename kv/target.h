/* SPDX-License-Identifier: MIT */
/* The memory of a block, as an item gives it: one piece, or segments. */
#ifndef KV_TARGET_H
#define KV_TARGET_H

#include <penstock_kv.h>

#include "base/base.h"

/* Memory of one block, limited to the part that a request moves. */
struct target {
	struct pst_mem *mem;
	struct pst_mem *wrapped; /* wrap that target_done() frees, or NULL */
	struct pst_seg *segs;    /* allocated copy; NULL: one piece at @off */
	uint64_t nr_segs, off;
};

/* Prepare an item's memory for the first len bytes of a block.  The caller calls target_done(),
 * even after a failure.  Return 0 or -errno. */
int target_init(struct target *t, const struct pst_kv_item *item, uint64_t len);
/* Release the target.  busy: a request that has ended may still use the memory. */
void target_done(struct pst_kv *kv, struct target *t, bool busy);

/* Return the end of the bytes that an item uses, counted from its mem_off. */
uint64_t target_extent(const struct pst_kv_item *item);

/* Copy the block's len bytes to the target (put), or from the target (take).  Return 0 or
 * -errno. */
int target_put(const struct target *t, const void *block, uint64_t len);
int target_take(const struct target *t, void *block, uint64_t len);

#endif
