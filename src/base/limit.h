/* SPDX-License-Identifier: MIT */
/*
 * Limits of pinned and mapped memory.
 *
 * A limit comes from the program (pst_limits_set()), else from the environment, else from the
 * library.  The program cannot exceed the environment's limit.
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

/* Return the limit in force; builtin is the library's default. */
uint64_t limit_get(enum limit l, uint64_t builtin);
/* Return the limit that would be in force if the program set it so; 0 means not set. */
uint64_t limit_if(enum limit l, uint64_t set, uint64_t builtin);
/* Check whether the program may set this limit.  Return 0, or -EPERM with a sentence. */
int limit_check(enum limit l, uint64_t set);
/* Store the program's limit; for limits_set() and functions that it calls. */
void limit_store(enum limit l, uint64_t set);
/* Return the limit that the program set, 0 for none. */
uint64_t limit_set(enum limit l);

#endif
