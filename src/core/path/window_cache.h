/* SPDX-License-Identifier: MIT */
/*
 * Windows on memory that small requests use, opened and closed behind them (window_cache.c).
 */
#ifndef PST_WINDOW_CACHE_H
#define PST_WINDOW_CACHE_H

#include "core/queue/object.h"

struct cached_window;
struct window;

/* A queue as a user of windows; under the queue's lock. */
struct cache_user {
	unsigned number; /* in the order of their making */
	uint64_t now;    /* when the queue was last looked after, to a few milliseconds */
};

/*
 * The window of an allocation that holds byte off, which is its byte *ret_at.  It stays open until
 * window_cache_put(*cached).  The caller may have one in *cached already; that one is put if it is
 * another.  NULL: there is none, and *ret_err says why; ENOSPC: not now, too much is open.
 */
const struct window *window_cache_get(const struct cache_user *by, struct region *r, uint64_t off,
				      uint64_t *ret_at, struct cached_window **cached,
				      int *ret_err);
void window_cache_put(const struct cache_user *by, struct cached_window *v);
/* Nobody uses the region any more. */
void window_cache_free(struct region *r);

#endif
