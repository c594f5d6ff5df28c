/* SPDX-License-Identifier: MIT */
/*
 * Thread cancellation.
 *
 * A thread that is cancelled while it holds a lock of the library would leave the lock taken
 * forever.  So calls that may reach a cancellation point (pthreads(7)) disable cancellation.
 */
#ifndef PST_BASE_CANCEL_H
#define PST_BASE_CANCEL_H

#include <pthread.h>

#include "base/base.h"

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

/* Disable cancellation until the end of the block. */
#define NO_CANCEL() _cleanup_(cancel_restore) int _cancel = cancel_disable()

#endif
