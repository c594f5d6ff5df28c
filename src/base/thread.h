/* SPDX-License-Identifier: MIT */
#ifndef PST_THREAD_H
#define PST_THREAD_H

#include <pthread.h>

#include "base/base.h"

/*
 * Start a thread of the library with all signals blocked, so that the program's handlers do not run
 * on it.  Return 0, or -EAGAIN with a sentence.
 */
int thread_start(pthread_t *ret, void *(*fn)(void *), void *arg);

/*
 * Initialize a lock that is held briefly.  A thread that finds it locked spins before it sleeps,
 * because a sleeper wakes up long after the lock is free.
 */
static inline void mutex_init_brief(pthread_mutex_t *lock)
{
	pthread_mutexattr_t attr;

	(void)pthread_mutexattr_init(&attr);
	(void)pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
	(void)pthread_mutex_init(lock, &attr);
	(void)pthread_mutexattr_destroy(&attr);
}

/* Initialize a condition variable whose deadlines are times of now_ns(), a clock that cannot be
 * set. */
static inline void cond_init_monotonic(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(cond, &attr);
	(void)pthread_condattr_destroy(&attr);
}

/* Wait until a time of now_ns(), UINT64_MAX for no limit.  Return 0 or ETIMEDOUT. */
static inline int cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t deadline_ns)
{
	struct timespec ts = {
		.tv_sec = (time_t)(deadline_ns / NSEC_PER_SEC),
		.tv_nsec = (long)(deadline_ns % NSEC_PER_SEC),
	};

	if (deadline_ns == UINT64_MAX)
		return pthread_cond_wait(c, lock);
	return pthread_cond_timedwait(c, lock, &ts);
}

#endif
