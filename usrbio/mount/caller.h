/* SPDX-License-Identifier: MIT */
/*
 * Act with the rights of a caller: user, group, supplementary groups and umask.
 *
 * Capabilities of a process that is not root's do not count.  Groups are those of the last second.
 * A server that is not root's serves only its own user, with whose rights it always acts.
 */
#ifndef MOUNT_CALLER_H
#define MOUNT_CALLER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct caller {
	uid_t uid;
	gid_t gid;
	pid_t pid; /* PID of the thread; 0: in another PID namespace, so its groups are unknown */
	mode_t umask;
};

/*
 * Take the rights of a caller, whichever the thread has now.  Return 0, and call caller_end()
 * later, or caller_begin() for another caller; -EPERM if the kernel refuses.
 */
int caller_begin(const struct caller *c);

/* Take the server's own rights; also before a thread or a process is started, which inherits
 * them. */
void caller_end(void);

/* Take the rights of nobody: none that depends on the user. */
int nobody_begin(void);

/* The supplementary groups of a thread, to be freed; none where it cannot be seen.  0 or -errno. */
int caller_groups(pid_t pid, gid_t **ret, size_t *ret_nr);

/* The process of a thread; -ESRCH. */
pid_t caller_process(pid_t pid);

/*
 * Return true if that is a PID of the process in any PID namespace, and the process belongs to the
 * caller's user.
 */
bool caller_is(const struct caller *c, pid_t process, pid_t pid);

/* Return true if the thread has a signal pending or is ending, or cannot be seen. */
bool caller_is_signalled(pid_t pid);

/* Find out whether the server is root's; called once, before there are other threads. */
void caller_init(void);

#endif
