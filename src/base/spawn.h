/* SPDX-License-Identifier: MIT */
/*
 * Programs that the library starts.  The program that uses the library hears nothing of them:
 * no SIGCHLD, and no wait() of its own that returns for them.
 */
#ifndef PST_SPAWN_H
#define PST_SPAWN_H

#include <sys/types.h>

#include "base/base.h"

struct spawn {
	const char *file; /* where it lies */
	char *const *argv;
	int fd;	 /* that it finds as descriptor 3; -1 for none */
	int out; /* that it finds as its output; all but these two are closed or /dev/null */
};

/*
 * Start it with the environment of the process and no signals blocked or ignored.  It is
 * killed when the calling thread ends.
 *
 * Return: 0; -errno with a sentence, -ENOENT among others.
 */
int spawn_start(const struct spawn *s, pid_t *ret_pid);

/*
 * Kill it, and wait a moment for its end.  One that hangs in the kernel is looked at again by
 * later calls.
 */
void spawn_end(pid_t pid);

#endif
