/* SPDX-License-Identifier: MIT */
/*
 * How every public call begins.
 */
#ifndef PST_GUARD_H
#define PST_GUARD_H

#include "base/base.h"
#include "base/fork.h"

static inline void errno_restore(const int *saved)
{
	errno = *saved;
}

/* Every call begins with it: errno stays the caller's; -EOWNERDEAD in a forked child. */
#define GUARD()                                      \
	_cleanup_(errno_restore) int _errno = errno; \
	do {                                         \
		int _g = fork_guard();               \
		if (unlikely(_g < 0))                \
			return _g;                   \
	} while (0)

#endif
