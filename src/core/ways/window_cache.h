/* SPDX-License-Identifier: MIT */
/*
 * A cache of windows for small requests (window_cache.c).
 */
#ifndef PST_WINDOW_CACHE_H
#define PST_WINDOW_CACHE_H

#include "core/queue/object.h"

struct window;

/*
 * Return the window that contains byte off of an allocation; the byte is at *ret_at in the window.
 * The window stays open until hold_put(hold). If *hold holds another window on entry, that hold is
 * put.  Return NULL if there is no window, and set *ret_err; ENOSPC: too many are open now.
 */
const struct window *window_cache_get(const struct holder *by, struct region *r, uint64_t off,
				      uint64_t *ret_at, struct hold **hold, int *ret_err);
/*
 * Return true if the window with byte off is open or worth opening.  Mapping and unmapping a long
 * window takes longer than staging some small requests, so a window is worthwhile only after enough
 * requests for it.
 */
bool window_cache_pays(struct region *r, uint64_t off);
/* Free the cached windows of a region that is no longer used. */
void window_cache_free(struct region *r);

#endif
