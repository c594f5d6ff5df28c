/* SPDX-License-Identifier: MIT */
/*
 * Let the library's system calls fail on demand.  The program defines these calls itself, so the
 * loader binds all of its libraries to them.
 *
 * 	for (unsigned nth = 1;; nth++) {
 * 		trip_arm(nth, EIO);
 * 		r = call();
 * 		if (!trip_off())
 * 			break;		// fewer than nth calls: it succeeded
 * 		...			// it failed: check the state
 * 	}
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

static _Atomic unsigned trip_left; /* calls until the one that fails; 0: off */
static _Atomic bool trip_hit;
static int trip_errno;
static const char *trip_name; /* name of the call that failed */
static const char *trip_only; /* count only calls of this name; NULL: all */

/* Let the nth call from now on fail with err. */
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

/* Look up libc's function once. */
#define TRIP_REAL(name)                              \
	static __typeof__(&name) real;               \
	if (!real) {                                 \
		void *sym = dlsym(RTLD_NEXT, #name); \
		memcpy(&real, &sym, sizeof(real));   \
	}

/* Export the function, so that the loader prefers it. */
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
