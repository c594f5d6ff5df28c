/* SPDX-License-Identifier: MIT */
#ifndef PST_PAGECACHE_H
#define PST_PAGECACHE_H

#include "core/queue/object.h"

/* The file's mapping for a device, made if need be; NULL when it cannot or may not be. */
struct mapping *pagecache_mapping(struct pst_file *f, const struct mem_ops *ops, unsigned device);
/* All of a file that is being closed: unpinned in the background, and counted until it is. */
void pagecache_free(struct pst_file *f);

/* Are these bytes pinned?  With pin_now they are, if they are resident and it can be. */
bool pagecache_ready(struct mapping *m, uint64_t off, uint64_t len, bool pin_now);
/* Where the device finds them.  Not for the CPU. */
const void *pagecache_at(const struct mapping *m, uint64_t off);
/* Has the file not changed since it was mapped?  Asked before and after each copy. */
bool pagecache_still(struct mapping *m);
/* These bytes came out of the page cache through the pool: a unit is pinned when they come
 * again. */
void pagecache_seen(struct mapping *m, uint64_t off, uint64_t len);

void pagecache_stats(uint64_t *ret_bytes, uint64_t *ret_limit, uint64_t *ret_ns);

#endif
