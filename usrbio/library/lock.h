/* SPDX-License-Identifier: MIT */
/* Locks of the library's tables, which are unlocked in a forked child, and a count of fork()s. */
#ifndef USRBIO_LOCK_H
#define USRBIO_LOCK_H

#include <stdbool.h>

/* Locks are taken in this order. */
enum lock {
	LOCK_MOUNTS,
	LOCK_FDS,
	LOCK_WRAPS,
	LOCK_SERVER,
	LOCKS,
};

void lock_take(enum lock which);
void lock_drop(enum lock which);

/*
 * Return the number of fork()s between the process that loaded the library and this one.  An object
 * that was made at another count belongs to a parent process.  Costs one load.
 */
unsigned lock_forks(void);

#endif
