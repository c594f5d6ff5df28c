/* SPDX-License-Identifier: MIT */
#ifndef PST_FORK_H
#define PST_FORK_H

#include "base/base.h"
#include "base/forked.h"

int fork_guard_slow(void);

/*
 * Return 0 in the process that loaded the library, -EOWNERDEAD in its forked children, -ENOMEM if
 * the page cannot be allocated.  Costs a load and a compare after the first call.
 */
static inline int fork_guard(void)
{
	const unsigned *page = fork_page;

	return likely(page && *page) ? 0 : fork_guard_slow();
}

#endif
