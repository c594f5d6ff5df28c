/* SPDX-License-Identifier: MIT */
/*
 * How much memory may be pinned, or mapped.  A bound comes from the program
 * (pst_limits_set()), else from the environment, else it is the library's own; the program may
 * not go above that of the environment.
 */
#ifndef PST_LIMIT_H
#define PST_LIMIT_H

#include "base/base.h"

enum limit {
	LIMIT_POOL,     /* PST_POOL: staging memory, pool.c */
	LIMIT_PAGES,    /* PST_PAGES: page cache pinned for devices, pagecache.c */
	LIMIT_APERTURE, /* PST_APERTURE: windows of window_cache.c, on each device */
	LIMIT_NR,
};

/* The bound that holds; builtin is the library's own. */
uint64_t limit_get(enum limit l, uint64_t builtin);
/* The bound that would hold if the program set it so; 0 is not at all. */
uint64_t limit_if(enum limit l, uint64_t set, uint64_t builtin);
/* May the program set it so?  0 or -EPERM with a sentence. */
int limit_check(enum limit l, uint64_t set);
/* By limits_set() and functions that it calls. */
void limit_store(enum limit l, uint64_t set);
/* As the program set it, 0 for not. */
uint64_t limit_set(enum limit l);

#endif
