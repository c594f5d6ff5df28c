/* SPDX-License-Identifier: MIT */
/*
 * A UNIX socket for its owner and root, or, if requested, a port of the loopback interface for all
 * users of the machine.
 *
 * The name is created with its final mode and owner, in a directory where nobody else can replace
 * it.  A name left by a dead server is replaced; a living server's is not.  A lock of the directory
 * serialises servers that check this.
 */
#ifndef MOUNT_LISTEN_H
#define MOUNT_LISTEN_H

#include <limits.h>
#include <sys/types.h>

struct listen {
	int fd;  /* listening socket */
	int dir; /* directory of the name; -1: a port */
	char name[NAME_MAX + 1];
	char path[PATH_MAX];
	dev_t dev; /* identity of the socket's name, to recognise it */
	ino_t ino;
};

/*
 * Open the socket.  path: a name, or an address for usrbio_place_tcp(); NULL: a name for the mount
 * point in usrbio_place_dir(), where dead servers' names are removed.
 *
 * Return: 0; -EADDRINUSE: a living server has the name or port; -EEXIST: the name is not a socket
 * of ours; -EPERM: others may write to the directory; -EBUSY: another process holds the directory's
 * lock; -errno.
 */
int listen_open(struct listen *l, const char *path, const char *mount);

/* Close the socket and remove its name, unless another server has it now. */
void listen_close(struct listen *l);

#endif
