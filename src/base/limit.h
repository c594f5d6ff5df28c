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
	LIMIT_POOL,     /* PST_POOL: bytes of staging memory, pool.c */
	LIMIT_PAGES,    /* PST_PAGES: bytes of page cache pinned for devices, pagecache.c */
	LIMIT_APERTURE, /* PST_APERTURE: bytes of windows in window_cache.c, per device */
	LIMIT_NR,
};

/* Return the limit that applies, in bytes; builtin is the library's default. */
uint64_t limit_get(enum limit l, uint64_t builtin);
/* Return the limit that would apply if the program set this one; 0 means not set. */
uint64_t limit_if(enum limit l, uint64_t set, uint64_t builtin);
/* Check whether the program may set this limit.  Return 0, or -EPERM with a sentence. */
int limit_check(enum limit l, uint64_t set);
/* Store the program's limit.  Only for limits_set() and functions that it calls. */
void limit_store(enum limit l, uint64_t set);
/* Return the limit that the program set, 0 for none. */
uint64_t limit_set(enum limit l);

#endif
