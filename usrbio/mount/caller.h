/* SPDX-License-Identifier: MIT */
/*
 * The thread acts with the rights of who called: user, group, supplementary groups and umask.
 *
 * Rights of a process that is not root's and has capabilities do not count.  Groups are those of
 * the last second.  A server that is not root's serves its own user, as whom it acts anyway.
 */
#ifndef MOUNT_CALLER_H
#define MOUNT_CALLER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct caller {
	uid_t uid;
	gid_t gid;
	pid_t pid; /* the thread's; 0: in another PID namespace, its groups are not known */
	mode_t umask;
};

/*
 * Take the rights of a caller, whoever's the thread has.
 *
 * Return: 0, and then caller_end(), or caller_begin() for another one; -EPERM where the kernel does
 * not let us.
 */
int caller_begin(const struct caller *c);

/* Take the server's own rights.  Before a thread or a process is started, too: it inherits them. */
void caller_end(void);

/* As caller_begin(), of nobody: without any right that depends on the user. */
int nobody_begin(void);

/* The supplementary groups of a thread, to be freed; none where it cannot be seen.  0 or -errno. */
int caller_groups(pid_t pid, gid_t **ret, size_t *ret_nr);

/* The process of a thread; -ESRCH. */
pid_t caller_process(pid_t pid);

/*
 * Is that a number of the process, in whichever PID namespace, and is it a process of the caller's
 * user?
 */
bool caller_is(const struct caller *c, pid_t process, pid_t pid);

/* Has the thread a signal to take, or does it end?  Also true where it cannot be seen. */
bool caller_is_signalled(pid_t pid);

/* Once, before there are other threads: is the server root's? */
void caller_init(void);

#endif
