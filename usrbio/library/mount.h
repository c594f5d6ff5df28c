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

#define MOUNT_PATH_MAX 256 /* bytes of a mount point's path, with its NUL */

enum mount_kind {
	MOUNT_DAEMON = 1,
	MOUNT_PLAIN = 2,
};

/*
 * A mount point that was used; all objects published there share this struct.  Taking the first
 * reference removes leftovers from a plain directory.  iovs stays open until its path leads to
 * another directory.  The open directory tells a daemon that this process lives: when it is closed,
 * at exit or exec at the latest, the daemon removes the process' publications, including those that
 * the program made itself.  In a plain directory, keeping iovs open avoids a search for leftovers
 * for each ring.
 */
struct mount {
	enum mount_kind kind;
	char path[MOUNT_PATH_MAX];
	int iovs; /* open directory 3fs-virt/iovs */

	/* Identity of iovs, to notice another file system mounted there later, and a child's own
	 * descriptor. */
	dev_t dev;
	ino_t ino;
	unsigned forks;

	uid_t user;              /* daemon: user who mounted it, from mountinfo; root if unknown */
	char submit[PATH_MAX];   /* daemon: target of submit-ios when the mount was opened; or "" */
	_Atomic bool gone;       /* daemon: the daemon has ended, so its rings are dead */
	_Atomic unsigned asking; /* lock_forks() + 1 of the process that is asking the daemon */

	unsigned refs; /* under LOCK_MOUNTS */
	struct mount *next;
};

/*
 * Get the mount point of that path.
 *
 * Return: 0; -EINVAL for an empty path or one that is too long; -ENOENT if it is no mount of 3FS
 * and no plain directory; -EPERM for another user's plain directory.
 */
int mount_get(const char *path, struct mount **ret);
struct mount *mount_put(struct mount *m);
static inline void mount_putp(struct mount **m)
{
	(void)mount_put(*m);
}

/*
 * Find out whether the daemon still lives; the answer appears in m->gone later.  A thread asks,
 * because a daemon that hangs would block the caller.
 */
void mount_ask(struct mount *m);

/*
 * Find the kind of server of an open descriptor's file system.
 *
 * Return: enum mount_kind, with the directory in ret_plain for MOUNT_PLAIN; 0 if there is no
 * server; -EPERM, with the directory, for one that other users may have made; -EBADF for a closed
 * descriptor; -errno if unknown: -ENOTCONN without the daemon, -EMFILE.
 */
int mount_of_fd(int fd, char ret_plain[PATH_MAX]);

/* Log why such a directory is not used.  Return -EPERM. */
int mount_refuse(const char *plain);

/* Return the user who mounted the FUSE file system on that device, by mountinfo; root if none is
 * named. */
uid_t mount_user(dev_t dev);

/* Return true if HF3FS_USRBIO_DONT_CHECKFS_FOR_MP is "yes". */
bool mount_any_type(void);

#endif
