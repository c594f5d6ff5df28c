/* SPDX-License-Identifier: MIT */
/*
 * Arrays and strings of the program.  The kernel copies them (base/uaccess.h): one that is not
 * there, or ends early, is an error and no signal.  Each call returns a code, with a line of the
 * log.
 */
#ifndef STREAMER_ARGS_H
#define STREAMER_ARGS_H

#include "base/base.h"

#include "code.h"

#define STRING_MAX KIB(64)        /* bytes: paths, patterns, credentials */
#define STRINGS_MAX (1024 * 1024) /* of an array */

/* A copy, to be freed, of nr elements of size bytes. */
int copy_array(const void *from, uint64_t nr, size_t size, void *ret);

/* A copy, to be freed, of a string. */
int copy_string(const char *from, char **ret);

/* Copies of strings. */
struct strings {
	char **at;
	uint64_t nr;
};

int copy_strings(const char *const *from, uint64_t nr, struct strings *ret);
/* Wipe and free them; all zero: there are none. */
void strings_done(struct strings *s);

#endif
