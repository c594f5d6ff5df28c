/* SPDX-License-Identifier: MIT */
/*
 * Handles of device memory, as the broker accepts them.  Whoever has the bytes of a handle can open
 * the memory, so they are accepted only from the process that they name, and shown only to its
 * user.
 */
#ifndef MOUNT_DEVICE_H
#define MOUNT_DEVICE_H

#include "usrbio/mount/caller.h"
#include "usrbio/proto/link.h"

/*
 * Check that the handle belongs to that living process, which is the caller's; pidfd refers to it.
 * Return: 0; -EINVAL if the handle names no process, -EPERM for a handle of another process or
 * user; -ESRCH.
 */
int device_check(const struct usrbio_gdr *gdr, const struct caller *c, pid_t process, int pidfd);

/*
 * Get the descriptor of memory of the software device: the process' own, or opened with the
 * caller's rights.  Other memory has none, and *ret_fd is -1.  Return: 0; -EINVAL if it is not the
 * memory that the handle names; -EPERM, -EACCES; -EMFILE, -ENFILE.
 */
int device_open(const struct usrbio_gdr *gdr, const struct caller *c, pid_t process, int pidfd,
		int *ret_fd);

/* Return true if the process lives. */
bool device_owner_lives(int pidfd);

#endif
