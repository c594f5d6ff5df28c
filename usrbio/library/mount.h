/* SPDX-License-Identifier: MIT */
/*
 * Mount points: file systems whose daemon speaks usrbio, and plain directories.
 */
#ifndef USRBIO_MOUNT_H
#define USRBIO_MOUNT_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MOUNT_PATH_MAX 256 /* of a name from a program, with its terminating 0 */

enum mount_kind {
	MOUNT_DAEMON = 1,
	MOUNT_PLAIN = 2,
};

/*
 * One for each mount point that was used, shared by all that is published there.  The first
 * reference sweeps a plain directory.
 *
 * It stays open for good, until something else is found at its path.  To a daemon the open
 * directory says that this process lives: when it is closed, at exit or exec at the latest, the
 * daemon removes the process' publications, also those that the program itself put there.  And to
 * open a plain directory anew for each ring would be to sweep it each time.
 */
struct mount {
	enum mount_kind kind;
	char path[MOUNT_PATH_MAX];
	int iovs; /* open 3fs-virt/iovs */

	/* Which one it is: another may be mounted there later, and a child opens its own. */
	dev_t dev;
	ino_t ino;
	unsigned forks;

	uid_t user;              /* daemon: who mounted it, as the kernel has it; root if unknown */
	char submit[PATH_MAX];   /* daemon: where submit-ios led when it was opened; "" */
	_Atomic bool gone;       /* daemon: it is, and its rings with it */
	_Atomic unsigned asking; /* lock_forks() + 1 of a process in which a thread finds out */

	unsigned refs; /* under the table's lock */
	struct mount *next;
};

/*
 * The mount point of that path.
 *
 * Return: 0; -EINVAL for an empty path or one that is too long; -ENOENT when there is none;
 * -EPERM when it is another user's plain directory.
 */
int mount_get(const char *path, struct mount **ret);
struct mount *mount_put(struct mount *m);
static inline void mount_putp(struct mount **m)
{
	(void)mount_put(*m);
}

/*
 * Find out whether a daemon is there still: m->gone says so later.  Does not wait: a thread of its
 * own asks, because a thread that asks a hanging daemon hangs.
 */
void mount_ask(struct mount *m);

/*
 * The kind of server of an open descriptor's file system.
 *
 * Return: enum mount_kind, for MOUNT_PLAIN with the directory; 0 when it is on none; -EPERM, with
 * the directory, when that is one that others may have made; -EBADF when it is not open; -errno
 * when it cannot be found out: -ENOTCONN without the daemon, -EMFILE.
 */
int mount_of_fd(int fd, char ret_plain[PATH_MAX]);

/* Say why such a directory is not used.  -EPERM. */
int mount_refuse(const char *plain);

/* The user who mounted the FUSE file system on that device, by mountinfo; root if it names none. */
uid_t mount_user(dev_t dev);

/* Does HF3FS_USRBIO_DONT_CHECKFS_FOR_MP say "yes"? */
bool mount_any_type(void);

#endif
