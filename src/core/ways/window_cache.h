/* SPDX-License-Identifier: MIT */
/*
 * Windows on memory that small requests use, opened and closed behind them (window_cache.c).
 */
#ifndef PST_WINDOW_CACHE_H
#define PST_WINDOW_CACHE_H

#include "core/queue/object.h"

struct window;

/*
 * The window of an allocation that holds byte off, which is its byte *ret_at.  It stays open until
 * hold_put(hold).  The caller may have one in *hold already; that one is put if it is another.
 * NULL: there is none, and *ret_err says why; ENOSPC: not now, too much is open.
 */
const struct window *window_cache_get(const struct holder *by, struct region *r, uint64_t off,
				      uint64_t *ret_at, struct hold **hold, int *ret_err);
/*
 * Is that window open, or is it worth opening?  To map and unmap a long one takes longer than to
 * stage some small requests, so that has to be asked for it often enough.
 */
bool window_cache_pays(struct region *r, uint64_t off);
/* Nobody uses the region any more, which has cached windows. */
void window_cache_free(struct region *r);

#endif
