/* SPDX-License-Identifier: MIT */
#include <linux/futex.h>
#include <sys/syscall.h>

#include "base/lock.h"

/* Sleep until the lock is free, and take it.  The thread that slept leaves it WANTED, because
 * others may sleep too. */
void lock_wait(struct lock *l)
{
	while (atomic_exchange(&l->state, LOCK_WANTED) != LOCK_FREE)
		(void)syscall(SYS_futex, &l->state, FUTEX_WAIT_PRIVATE, LOCK_WANTED, NULL);
}

/* The memory of the lock may be freed by now.  Then this call wakes nobody, or a thread that looks
 * again. */
void lock_wake(struct lock *l)
{
	(void)syscall(SYS_futex, &l->state, FUTEX_WAKE_PRIVATE, 1);
}
