/* SPDX-License-Identifier: MIT */
/*
 * An interposed monotonic clock (see calls.h): a test sets it ahead instead of waiting for
 * minutes.  Sleeps in progress do not notice.
 */
#ifndef PST_TESTS_CLOCK_H
#define PST_TESTS_CLOCK_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Atomic int64_t clock_ahead_s;

/* Visible to the library, which would call libc's otherwise. */
__attribute__((visibility("default"))) int clock_gettime(clockid_t id, struct timespec *ts)
{
	int r = (int)syscall(SYS_clock_gettime, id, ts);

	if (r == 0 && id == CLOCK_MONOTONIC)
		ts->tv_sec += clock_ahead_s;
	return r;
}

/* The library's condition variables use CLOCK_MONOTONIC, so translate the deadline back. */
__attribute__((visibility("default"))) int pthread_cond_timedwait(pthread_cond_t *cond,
								  pthread_mutex_t *lock,
								  const struct timespec *until)
{
	int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
#ifdef __SANITIZE_THREAD__
	/* The sanitizer's function has no symbol version. */
	void *fn = NULL;
#else
	/* x86 also has an older, incompatible version that dlsym() may return. */
	void *fn = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
#endif
	struct timespec ts = *until;

	if (!fn)
		fn = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
	memcpy(&real, &fn, sizeof(fn));
	ts.tv_sec -= clock_ahead_s;
	return real(cond, lock, &ts);
}

#endif
