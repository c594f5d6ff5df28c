/* SPDX-License-Identifier: MIT */
/*
 * System calls of the library that fail on demand: a program that includes this has its own of
 * each, and the loader gives them to every library in it.
 *
 *	for (unsigned nth = 1;; nth++) {
 *		trip_arm(nth, EIO);
 *		r = call();
 *		if (!trip_off())
 *			break;		// there was no nth call: it went through
 *		...			// it failed, and what must be left is looked at
 *	}
 */
#ifndef PST_TESTS_TRIP_H
#define PST_TESTS_TRIP_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static _Atomic unsigned trip_left; /* calls until the one that fails; 0: none does */
static _Atomic bool trip_hit;
static int trip_errno;
static const char *trip_name; /* of the call that failed */
static const char *trip_only; /* count calls of this name alone; NULL: all */

/* The nth call from now on fails so. */
static inline void trip_arm(unsigned nth, int err)
{
	trip_errno = err;
	trip_hit = false;
	trip_left = nth;
}

/* Stop failing calls.  Return true if one has failed. */
static inline bool trip_off(void)
{
	trip_left = 0;
	return trip_hit;
}

static bool trip(const char *name)
{
	if (!trip_left || (trip_only && strcmp(name, trip_only) != 0) ||
	    atomic_fetch_sub(&trip_left, 1) != 1)
		return false;
	trip_name = name;
	trip_hit = true;
	errno = trip_errno;
	return true;
}

/* The libc's own, looked for once each. */
#define TRIP_REAL(name)                              \
	static __typeof__(&name) real;               \
	if (!real) {                                 \
		void *sym = dlsym(RTLD_NEXT, #name); \
		memcpy(&real, &sym, sizeof(real));   \
	}

/* Visible, so that the loader prefers it. */
#define TRIP(ret, failure, name, args, use)                  \
	__attribute__((visibility("default"))) ret name args \
	{                                                    \
		TRIP_REAL(name)                              \
		return trip(#name) ? failure : real use;     \
	}

TRIP(int, -1, shm_open, (const char *name, int flags, mode_t mode), (name, flags, mode))
TRIP(int, -1, ftruncate, (int fd, off_t len), (fd, len))
TRIP(int, -1, fallocate, (int fd, int mode, off_t off, off_t len), (fd, mode, off, len))
TRIP(int, -1, symlinkat, (const char *to, int dir, const char *name), (to, dir, name))
TRIP(ssize_t, -1, readlinkat, (int dir, const char *name, char *buf, size_t len),
     (dir, name, buf, len))

#endif
