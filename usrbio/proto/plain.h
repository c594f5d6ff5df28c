/* SPDX-License-Identifier: MIT */
/*
 * A plain directory: usrbio without a daemon.
 *
 *	DIR/3fs-virt/		0755, less what umask takes
 *	DIR/3fs-virt/plain	marker: one line, "usrbio plain directory 1"
 *	DIR/3fs-virt/iovs/	0700, links that processes publish, as on a mount
 *
 * All three belong to the one user whom the directory serves.  Directories of other users are
 * refused, and so are those that others may write to.  Nothing here follows a symbolic link that
 * another user could have put there.
 *
 * There is no lock.  If a maker or a remover is killed, the next one finishes its work.  iovs goes
 * only when it is empty, and a maker whose directory is removed makes it anew.  So any number of
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
 * Prepare a directory; one that is prepared is checked and left alone.
 *
 * Return: 0; -EEXIST when DIR/3fs-virt is something else; -EPERM when it is another user's, or
 * open to others; the errors of open(2) and mkdir(2).
 */
int usrbio_plain_make(const char *dir);

/*
 * Sweep and undo it.
 *
 * Return: 0; -EBUSY while anything is published there; -ENOENT when it is no plain directory;
 * -ENOTEMPTY when DIR/3fs-virt holds a file that is none of ours; -EPERM as above.
 */
int usrbio_plain_remove(const char *dir);

/*
 * Open DIR/3fs-virt/iovs, checked, close-on-exec.
 *
 * Return: the descriptor; -ENOENT when @dir is no plain directory; -EPERM when it is another
 * user's, or open to others.
 */
int usrbio_plain_open(const char *dir);

/*
 * The deepest plain directory that holds a canonical path and was made by root or by this user.
 *
 * Return: 0; -ENOENT when there is none; -EPERM, with the deepest in ret_dir, when there are only
 * others' or those that others may write to; -EINVAL when the path is not absolute; -EMFILE,
 * -ENFILE, -ENOMEM when it cannot be looked for.
 */
int usrbio_plain_find(const char *path, char ret_dir[PATH_MAX]);

/*
 * Remove links of dead processes from an iovs directory, and from /dev/shm memory of this user that
 * carries a dead owner, published or not.
 *
 * Names of processes that cannot be seen from here (usrbio_owner_alive()) and names whose target
 * carries no owner are kept, unless they are older than the machine's boot and lead nowhere; where
 * several machines may see the file system they are always kept.
 *
 * Return: how many names were removed, or -errno.
 */
int usrbio_plain_sweep(int iovs_fd);

#define USRBIO_USERS 16

/* The processes that publish in an iovs directory. */
struct usrbio_users {
	pid_t pids[USRBIO_USERS]; /* living processes, each once, in no order */
	unsigned nr_pids;         /* as many of them as fit */
	unsigned hidden;          /* names of processes that cannot be seen from here */
	unsigned others;          /* names without an owner */
	char other[USRBIO_USERS][NAME_MAX + 1]; /* as many of them as fit */
};

/* 0 or -errno. */
int usrbio_plain_users(int iovs_fd, struct usrbio_users *ret);

#endif
