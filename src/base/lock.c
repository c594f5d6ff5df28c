/* SPDX-License-Identifier: MIT */
#include <linux/futex.h>
#include <sys/syscall.h>

#include "base/lock.h"

/* Sleep until the lock is free, and take it.  A thread that has slept leaves the state LOCK_WANTED,
 * because other threads may be sleeping as well. */
void lock_wait(struct lock *l)
{
	while (atomic_exchange(&l->state, LOCK_WANTED) != LOCK_FREE)
		(void)syscall(SYS_futex, &l->state, FUTEX_WAIT_PRIVATE, LOCK_WANTED, NULL);
}

/* Wake a thread that waits for the lock.  The lock's memory may have been freed already.  Then the
 * call wakes no thread, or one that sleeps on other data there and checks again. */
void lock_wake(struct lock *l)
{
	(void)syscall(SYS_futex, &l->state, FUTEX_WAKE_PRIVATE, 1);
}
