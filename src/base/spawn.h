/* SPDX-License-Identifier: MIT */
/*
 * Programs that the library asks something.  The program that uses the library hears nothing
 * of them: no SIGCHLD, and no wait() of its own that returns for them.
 */
#ifndef PST_SPAWN_H
#define PST_SPAWN_H

#include "base/base.h"

struct spawn {
	const char *file; /* where it lies */
	char *const *argv;
	int fd;                           /* that it finds as descriptor 3; -1 for none */
	bool (*enough)(const char *text); /* has it said what it was asked? */
};

/*
 * Run it with the environment of the process, no signals blocked or ignored, and no
 * descriptors but 0, 2 (/dev/null), 1 and 3.  Take what it writes, until it is enough, it ends,
 * ret is full or the deadline has passed; then kill it.
 *
 * Return: 0 with a string, which may not be enough; -ETIMEDOUT; -errno of starting it with a
 * sentence, -ENOENT among others.
 */
int spawn_ask(const struct spawn *s, uint64_t deadline_ns, char *ret, size_t len);

#endif
