/* SPDX-License-Identifier: MIT */
#include <pthread.h>

#include "lock.h"

static pthread_mutex_t locks[LOCKS] = {
	PTHREAD_MUTEX_INITIALIZER,
	PTHREAD_MUTEX_INITIALIZER,
	PTHREAD_MUTEX_INITIALIZER,
	PTHREAD_MUTEX_INITIALIZER,
};
_Static_assert(LOCKS == 4, "each has its initializer");

static unsigned forks; /* fork()s since load; written by a child's only thread */

void lock_take(enum lock which)
{
	(void)pthread_mutex_lock(&locks[which]);
}

void lock_drop(enum lock which)
{
	(void)pthread_mutex_unlock(&locks[which]);
}

unsigned lock_forks(void)
{
	return forks;
}

static void before(void)
{
	for (enum lock i = 0; i < LOCKS; i++)
		lock_take(i);
}

static void in_parent(void)
{
	for (enum lock i = LOCKS; i-- > 0;)
		lock_drop(i);
}

static void in_child(void)
{
	forks++;
	in_parent();
}

/* Register the fork handler at load: later, another thread may already be inside fork(). */
__attribute__((constructor)) static void watch_fork(void)
{
	(void)pthread_atfork(before, in_parent, in_child);
}
