/* SPDX-License-Identifier: MIT */
/*
 * Copy the program's arrays and strings through the kernel (base/uaccess.h), so that unmapped
 * memory causes an error and no signal.  Each call returns a code, and logs failures.
 */
#ifndef STREAMER_ARGS_H
#define STREAMER_ARGS_H

#include "base/base.h"

#include "code.h"

#define STRING_MAX KIB(64)        /* maximum bytes of a path, pattern or credential */
#define STRINGS_MAX (1024 * 1024) /* maximum strings in an array */

/* Copy nr elements of size bytes; free the copy. */
int copy_array(const void *from, uint64_t nr, size_t size, void *ret);

/* Copy a string; free the copy. */
int copy_string(const char *from, char **ret);

/* Copied strings. */
struct strings {
	char **at;
	uint64_t nr;
};

int copy_strings(const char *const *from, uint64_t nr, struct strings *ret);
/* Wipe and free the strings; a zeroed struct has none. */
void strings_done(struct strings *s);

#endif
