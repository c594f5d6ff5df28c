/* SPDX-License-Identifier: MIT */
/*
 * How every public call begins.
 */
#ifndef PST_GUARD_H
#define PST_GUARD_H

#include "base/cancel.h"
#include "base/fork.h"

static inline void errno_restore(const int *saved)
{
	errno = *saved;
}

/*
 * A call that reaches no cancellation point, but in places that say NO_CANCEL() themselves,
 * begins with it: errno stays the caller's; -EOWNERDEAD in a forked child.
 */
#define GUARD_LIGHT()                                \
	_cleanup_(errno_restore) int _errno = errno; \
	do {                                         \
		int _g = fork_guard();               \
		if (unlikely(_g < 0))                \
			return _g;                   \
	} while (0)

/* Every other call does; a thread is not cancelled in it. */
#define GUARD()      \
	NO_CANCEL(); \
	GUARD_LIGHT()

#endif
