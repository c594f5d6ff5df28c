/* SPDX-License-Identifier: MIT */
/*
 * A plain directory: usrbio without a daemon.
 *
 * DIR/3fs-virt/		0755, minus umask
 * DIR/3fs-virt/plain	marker: one line, "usrbio plain directory 1"
 * DIR/3fs-virt/iovs/	0700, links that processes publish, as on a mount
 *
 * All three belong to the user whom the directory serves.  Directories that belong to other users,
 * or that others may write to, are refused.  No symbolic link that another user could have made is
 * followed.
 *
 * There is no lock.  If a maker or a remover is killed, the next one finishes its work.  Only an
 * empty iovs is removed, and a maker whose directory is removed makes it again.  So any number of
 * processes may make, remove, open, sweep and publish at once.
 */
#ifndef PST_USRBIO_PLAIN_H
#define PST_USRBIO_PLAIN_H

#include <limits.h>
#include <stddef.h>
#include <sys/types.h>

#include "usrbio/proto/owner.h"

#define USRBIO_VIRT "3fs-virt"
#define USRBIO_IOVS "3fs-virt/iovs"
#define USRBIO_PLAIN_MARKER "3fs-virt/plain"

/*
 * Prepare a directory.  One that is already prepared is only checked.
 *
 * Return: 0; -EEXIST if DIR/3fs-virt is something else; -EPERM if it belongs to another user or
 * grants others too many rights; the errors of open(2) and mkdir(2).
 */
int usrbio_plain_make(const char *dir);

/*
 * Sweep a plain directory and remove its parts.
 *
 * Return: 0; -EBUSY while anything is published there; -ENOENT if it is no plain directory;
 * -ENOTEMPTY if DIR/3fs-virt holds a foreign file; -EPERM as for usrbio_plain_make().
 */
int usrbio_plain_remove(const char *dir);

/*
 * Check and open DIR/3fs-virt/iovs, close-on-exec.
 *
 * Return: the descriptor; -ENOENT if @dir is no plain directory; -EPERM if it belongs to another
 * user or grants others too many rights.
 */
int usrbio_plain_open(const char *dir);

/*
 * Find the deepest plain directory above a canonical path that root or this user made.
 *
 * Return: 0; -ENOENT if there is none; -EPERM if every one found belongs to another user or is
 * writable to others: ret_dir is then the deepest; -EINVAL if the path is not absolute; -EMFILE,
 * -ENFILE, -ENOMEM if the search failed.
 */
int usrbio_plain_find(const char *path, char ret_dir[PATH_MAX]);

/*
 * Remove links of dead processes from an iovs directory, and from /dev/shm memory of this user
 * whose owner is dead, published or not.
 *
 * A name is kept if its owner cannot be seen from here (usrbio_owner_alive()) or is unknown, unless
 * the name is older than the machine's boot and its target is missing.  On a file system that
 * several machines may mount such names are always kept.
 *
 * Return: number of removed names, or -errno.
 */
int usrbio_plain_sweep(int iovs_fd);

#define USRBIO_USERS 16

/* The processes that publish in an iovs directory. */
struct usrbio_users {
	pid_t pids[USRBIO_USERS]; /* living processes, each once, in no order */
	unsigned nr_pids;         /* number of entries of pids */
	unsigned hidden;          /* number of names whose owner cannot be seen from here */
	unsigned others;          /* number of names that contain no owner */
	char other[USRBIO_USERS][NAME_MAX + 1]; /* the first names without an owner */
};

/* List the processes.  Return 0 or -errno. */
int usrbio_plain_users(int iovs_fd, struct usrbio_users *ret);

#endif
