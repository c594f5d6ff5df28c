/* SPDX-License-Identifier: MIT */
/*
 * Mount points: file systems whose daemon speaks usrbio, and plain directories.
 */
#ifndef USRBIO_MOUNT_H
#define USRBIO_MOUNT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mount_kind {
	MOUNT_DAEMON = 1,
	MOUNT_PLAIN = 2,
};

/*
 * One for each mount point in use, shared by all that is published there.  The first reference
 * sweeps a plain directory.  To a daemon the open directory says that this process lives: when
 * it is closed, at exit or exec at the latest, the daemon removes what the process published.
 * It stays open for good.
 */
struct mount {
	enum mount_kind kind;
	char path[256];
	int iovs;      /* open 3fs-virt/iovs */
	unsigned refs; /* of the table, under its lock */
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
 * What serves the file system of an open descriptor; for MOUNT_PLAIN with the directory.
 * 0 when it is on none.
 */
enum mount_kind mount_of_fd(int fd, char ret_plain[PATH_MAX]);

#endif
