/* SPDX-License-Identifier: MIT */
#ifndef PST_FORKED_H
#define PST_FORKED_H

#include "base/base.h"

/*
 * A page that fork() wipes in the child: MADV_WIPEONFORK, madvise(2).  The pointer is NULL until
 * the first fork_guard() (fork.c).  The page's first word is 0 in a child.
 */
extern const unsigned *_Atomic fork_page;

/*
 * Return true if fork_guard() would return -EOWNERDEAD.  Creates no page and sets no sentence, so
 * functions that fork_guard() calls may use it.
 */
static inline bool fork_is_child(void)
{
	const unsigned *page = fork_page;

	return page && !*page;
}

#endif
