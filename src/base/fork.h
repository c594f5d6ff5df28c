/* SPDX-License-Identifier: MIT */
#ifndef PST_FORK_H
#define PST_FORK_H

#include "base/base.h"

/*
 * A page that fork() wipes in the child: MADV_WIPEONFORK, madvise(2).  NULL until the
 * first fork_guard(), zero in a child.
 */
extern const unsigned *_Atomic fork_page;

int fork_guard_slow(void);

/*
 * 0 in the process that loaded the library, -EOWNERDEAD in its forked children,
 * -ENOMEM when the page could not be had.  A load and a compare after the first call.
 */
static inline int fork_guard(void)
{
	const unsigned *page = fork_page;

	return likely(page && *page) ? 0 : fork_guard_slow();
}

/*
 * Would fork_guard() say -EOWNERDEAD?  It makes no page and no sentence, so that functions that
 * fork_guard() itself calls may ask.
 */
static inline bool fork_is_child(void)
{
	const unsigned *page = fork_page;

	return page && !*page;
}

#endif
