/* SPDX-License-Identifier: MIT */
/*
 * A socket with a name, for its owner and root alone; or a port of the loopback, for all of this
 * machine, where somebody asks for that.
 *
 * The name is made with its mode and owner, never changed afterwards, in a folder where nobody else
 * may put anything in its place.  A name that a dead server has left is replaced; that of one that
 * lives is not.  Servers that look for that at the same time take turns, by a lock of the folder.
 */
#ifndef MOUNT_LISTEN_H
#define MOUNT_LISTEN_H

#include <limits.h>
#include <sys/types.h>

struct listen {
	int fd;  /* that accept(2) takes */
	int dir; /* of the name; -1: a port */
	char name[NAME_MAX + 1];
	char path[PATH_MAX];
	dev_t dev; /* of the name, to know it again */
	ino_t ino;
};

/*
 * path: where, a name or what usrbio_place_tcp() reads; NULL: in the folder of usrbio_place_dir(),
 * by the mount point.  Dead ones there are removed.
 *
 * Return: 0; -EADDRINUSE: a server that lives has the name or port; -EEXIST: it is something
 * else's; -EPERM: others may write to the folder; -EBUSY: somebody keeps the folder's lock; -errno.
 */
int listen_open(struct listen *l, const char *path, const char *mount);

/* Takes the name away, unless it is another's by now. */
void listen_close(struct listen *l);

#endif
