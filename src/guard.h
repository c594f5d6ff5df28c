/* SPDX-License-Identifier: MIT */
/*
 * How every public call begins.
 */
#ifndef PST_GUARD_H
#define PST_GUARD_H

#include <pthread.h>

#include "base/base.h"
#include "base/fork.h"

static inline void errno_restore(const int *saved)
{
	errno = *saved;
}

static inline int cancel_disable(void)
{
	int before;

	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}

static inline void cancel_restore(const int *before)
{
	(void)pthread_setcancelstate(*before, NULL);
}

/* A thread that is cancelled in here would leave locks taken. */
#define NO_CANCEL() _cleanup_(cancel_restore) int _cancel = cancel_disable()

/* Every call begins with it: errno stays the caller's; -EOWNERDEAD in a forked child; no
 * cancellation point. */
#define GUARD()                                      \
	NO_CANCEL();                                 \
	_cleanup_(errno_restore) int _errno = errno; \
	do {                                         \
		int _g = fork_guard();               \
		if (unlikely(_g < 0))                \
			return _g;                   \
	} while (0)

#endif
