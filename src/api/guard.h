/* SPDX-License-Identifier: MIT */
/*
 * The guards at the beginning of public calls.
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
 * For calls without cancellation points, or with NO_CANCEL() around each of them: keep the caller's
 * errno, and return -EOWNERDEAD in a forked child.
 */
#define GUARD_LIGHT()                                \
	_cleanup_(errno_restore) int _errno = errno; \
	do {                                         \
		int _g = fork_guard();               \
		if (unlikely(_g < 0))                \
			return _g;                   \
	} while (0)

/* For all other calls: GUARD_LIGHT(), and disable thread cancellation. */
#define GUARD()      \
	NO_CANCEL(); \
	GUARD_LIGHT()

#endif
