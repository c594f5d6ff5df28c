/* SPDX-License-Identifier: MIT */
/*
 * Windows on memory that small requests use, opened and closed behind them (view.c).
 */
#ifndef PST_VIEW_H
#define PST_VIEW_H

#include "core/queue/object.h"

struct view;
struct window;

/* A queue as a user of windows; under the queue's lock. */
struct viewer {
	unsigned number; /* in the order of their making */
	uint64_t now;    /* when the queue was last looked after, to a few milliseconds */
};

/* Windows on an allocation (view.c): the one that holds byte off, which is its byte
 * *ret_at; open until view_put(*view).  The caller may have one in *view already, which is put if
 * it is another.  NULL: there is none, *ret_err says why; ENOSPC: not now, because too much is
 * open. */
const struct window *view_get(const struct viewer *by, struct region *r, uint64_t off,
			      uint64_t *ret_at, struct view **view, int *ret_err);
void view_put(const struct viewer *by, struct view *v);
/* Nobody uses the region any more. */
void views_free(struct region *r);

#endif
