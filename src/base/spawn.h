/* SPDX-License-Identifier: MIT */
/*
 * Run helper programs without the program noticing: no SIGCHLD, and no wait() of the program
 * returns for them.
 */
#ifndef PST_SPAWN_H
#define PST_SPAWN_H

#include "base/base.h"

struct spawn {
	const char *file; /* path of the program */
	char *const *argv;
	int fd;                           /* passed as descriptor 3; -1 for none */
	bool (*enough)(const char *text); /* returns true if the output is complete */
};

/*
 * Run a program with the environment of the process, no signals blocked or ignored, and no
 * descriptors but 0, 2 (/dev/null), 1 and 3.  Collect its output until enough() is true, the
 * program ends, ret is full or the deadline has passed; then kill it.  Return: 0 with a string,
 * which may be incomplete; -ETIMEDOUT; -errno of starting it, such as -ENOENT, with a sentence.
 */
int spawn_ask(const struct spawn *s, uint64_t deadline_ns, char *ret, size_t len);

#endif
