/* SPDX-License-Identifier: MIT */
/*
 * A plain directory: usrbio without a daemon.
 *
 *	DIR/3fs-virt/		0755
 *	DIR/3fs-virt/plain	marker: one line, "usrbio plain directory 1"
 *	DIR/3fs-virt/iovs/	0700, what processes publish: links, as on a mount
 *
 * All three belong to the one user whom the directory serves; anything else is refused.
 * Shared memory whose name carries its owner
 *
 *	hf3fs-iov-UUID.pPID.sSTART.nNAMESPACE
 *
 * can be told from what a dead process left behind: PID with its start time in clock ticks since
 * boot, in the PID namespace with that inode number.  Links to other names are other programs';
 * they are kept unless they are older than the machine's boot and lead nowhere.
 *
 * Nothing here follows a symbolic link that another user could have put there.
 */
#ifndef PST_USRBIO_PLAIN_H
#define PST_USRBIO_PLAIN_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/usrbio_id.h"
#include "proto/usrbio_link.h"

#define USRBIO_VIRT "3fs-virt"
#define USRBIO_IOVS "3fs-virt/iovs"
#define USRBIO_PLAIN_MARKER "3fs-virt/plain"

/* Whose shared memory it is. */
struct usrbio_owner {
	pid_t pid;
	uint64_t start; /* field 22 of /proc/PID/stat */
	uint64_t pidns; /* inode number of /proc/PID/ns/pid */
};

/*
 * Prepare a directory; one that is prepared is checked and left alone.
 *
 * Return: 0; -EEXIST when DIR/3fs-virt is something else; -EPERM when it is another user's;
 * what mkdirat(2) and openat(2) say.
 */
int usrbio_plain_make(const char *dir);

/* Undo it.  -EBUSY while living processes publish there; -ENOENT when it is no plain directory. */
int usrbio_plain_remove(const char *dir);

/*
 * Open DIR/3fs-virt/iovs, checked, close-on-exec.
 *
 * Return: the descriptor; -ENOENT when @dir is no plain directory; -EPERM when it is another
 * user's, or open to others.
 */
int usrbio_plain_open(const char *dir);

/*
 * The deepest plain directory that holds a canonical path.
 *
 * Return: 0; -ENOENT when there is none.
 */
int usrbio_plain_find(const char *path, char ret_dir[PATH_MAX]);

/* This process.  0 or -errno: without /proc nobody can be told apart. */
int usrbio_owner_self(struct usrbio_owner *ret);

/* A name without its slash for new shared memory. */
void usrbio_owner_shm(const struct usrbio_owner *owner, const uint8_t id[USRBIO_ID_LEN],
		      char ret_name[USRBIO_SHM_NAME_MAX]);

/* The owner in such a name; -EINVAL when it carries none. */
int usrbio_owner_parse(const char *shm_name, struct usrbio_owner *ret);

/* 1 when it lives, 0 when it is gone, -errno when that cannot be seen from here. */
int usrbio_owner_alive(const struct usrbio_owner *owner);

/*
 * Remove what dead processes left in an iovs directory, and their shared memory.
 *
 * Return: how many links were removed, or -errno.
 */
int usrbio_plain_sweep(int iovs_fd);

#endif
