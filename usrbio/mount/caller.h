/* SPDX-License-Identifier: MIT */
/*
 * Act with the rights of a caller: user, group, supplementary groups and umask.
 *
 * Capabilities of processes that are not root's are ignored.  Groups may be one second old.  A
 * server that does not run as root serves only its own user, with that user's rights.
 */
#ifndef MOUNT_CALLER_H
#define MOUNT_CALLER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct caller {
	uid_t uid;
	gid_t gid;
	pid_t pid; /* thread; 0 if it is in another PID namespace, so its groups are unknown */
	mode_t umask;
};

/*
 * Take the rights of a caller in place of the thread's current ones.  Return 0, and later call
 * caller_end(), or caller_begin() for another caller; -EPERM if the kernel refuses.
 */
int caller_begin(const struct caller *c);

/* Take the server's own rights.  Also call this before starting a thread or process, which
 * inherits rights. */
void caller_end(void);

/* Take the rights of the user nobody, for calls whose result must not depend on the caller. */
int nobody_begin(void);

/* Read the supplementary groups of a thread; the caller frees *ret.  A thread that cannot be
 * seen has none.  Return 0 or -errno. */
int caller_groups(pid_t pid, gid_t **ret, size_t *ret_nr);

/* Return the process of a thread, or -ESRCH. */
pid_t caller_process(pid_t pid);

/* Return true if the process has that PID in any PID namespace and belongs to the caller's user. */
bool caller_is(const struct caller *c, pid_t process, pid_t pid);

/* Return true if the thread has a signal pending or is ending, or cannot be seen. */
bool caller_is_signalled(pid_t pid);

/* Find out whether the server runs as root.  Call this once, before starting threads. */
void caller_init(void);

#endif
