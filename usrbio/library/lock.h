/* SPDX-License-Identifier: MIT */
/*
 * Locks of the tables, which a forked child finds free, and whose process this is.
 */
#ifndef USRBIO_LOCK_H
#define USRBIO_LOCK_H

#include <stdbool.h>

/* In this order. */
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
 * How many forks lie between the process that loaded the library and this one: an object made at
 * another count belongs to a parent.  Costs one load.
 */
unsigned lock_forks(void);

#endif
