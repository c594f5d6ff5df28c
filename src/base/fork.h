/* SPDX-License-Identifier: MIT */
#ifndef PST_FORK_H
#define PST_FORK_H

#include "base/base.h"
#include "base/forked.h"

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

#endif
