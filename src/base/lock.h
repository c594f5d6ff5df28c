/* SPDX-License-Identifier: MIT */
/*
 * A lock that one thread takes for each of its requests, and that others rarely take.  Taking it
 * costs one inline atomic operation; a pthread_mutex_t costs thirty instructions.
 */
#ifndef PST_LOCK_H
#define PST_LOCK_H

#include <stdatomic.h>

#include "base/base.h"

enum {
	LOCK_FREE,
	LOCK_TAKEN,
	LOCK_WANTED, /* the lock is taken, and a thread may be sleeping until it is free */
};

/* Zero is an unlocked lock.  A lock needs no destruction. */
struct lock {
	atomic_uint state;
};

void lock_wait(struct lock *l);
void lock_wake(struct lock *l);

static inline bool lock_try(struct lock *l)
{
	unsigned state = LOCK_FREE;

	return atomic_compare_exchange_strong(&l->state, &state, LOCK_TAKEN);
}

static inline void lock_take(struct lock *l)
{
	if (unlikely(!lock_try(l)))
		lock_wait(l);
}

static inline void lock_drop(struct lock *l)
{
	if (unlikely(atomic_exchange(&l->state, LOCK_FREE) == LOCK_WANTED))
		lock_wake(l);
}

#endif
