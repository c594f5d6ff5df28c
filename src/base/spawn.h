/* SPDX-License-Identifier: MIT */
/*
 * Run helper programs so that the calling program does not notice: it gets no SIGCHLD, and none of
 * its wait() calls returns for them.
 */
#ifndef PST_SPAWN_H
#define PST_SPAWN_H

#include "base/base.h"

struct spawn {
	const char *file; /* path of the helper program */
	char *const *argv;
	int fd;                           /* passed as descriptor 3; -1: none */
	bool (*enough)(const char *text); /* returns true if the output is complete */
};

/*
 * Run a program with the environment of this process, no signals blocked or ignored, and only the
 * descriptors 0 and 2 (/dev/null), 1 (the output) and 3 (fd).  Read its output until enough()
 * returns true, the program ends, ret is full or the deadline has passed; then kill it.
 *
 * Return: 0 with the output in ret, which may be incomplete; -ETIMEDOUT; -errno if the program
 * could not be started, such as -ENOENT.  Errors have a sentence (err_set()).
 */
int spawn_ask(const struct spawn *s, uint64_t deadline_ns, char *ret, size_t len);

#endif
