/* SPDX-License-Identifier: MIT */
/*
 * Small requests that go by a window (small.c).
 */
#ifndef PST_SMALL_H
#define PST_SMALL_H

#include "core/queue/queue.h"

#define SMALL_MAX KIB(64) /* bytes of a request that may go by a window without being told */

/* True unless PST_WINDOW switches it off. */
bool small_enabled(void);
/* With plan.window: take the window where it is the better way. */
void small_choose(struct req *r);
/* The caller listed WINDOW: 0 and ready, or staged if that was listed too; -errno. */
int small_listed(struct req *r);
/* Where the CPU finds a piece, and how much of it; NULL with *ret_err: nowhere. */
char *small_addr(struct req *r, const struct piece *p, uint64_t *ret_room,
		 struct cached_window **ret_cached, int *ret_err);
/* Nothing is under way, and not all of it was resident: the engine does all of it. */
void small_give_up(struct req *r);

/* The request needs its window no longer, or does not get that far. */
static inline void small_let_go(struct req *r)
{
	if (unlikely(r->cached_window))
		window_cache_put(&r->q->cache_user, TAKE_PTR(r->cached_window));
}

#endif
