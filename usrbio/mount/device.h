/* SPDX-License-Identifier: MIT */
/*
 * Handles of device memory, as the broker takes them.  Whoever has the bytes of one can open the
 * memory, so they are taken from the process that they name and shown to its user alone.
 */
#ifndef MOUNT_DEVICE_H
#define MOUNT_DEVICE_H

#include "usrbio/mount/caller.h"
#include "usrbio/proto/link.h"

/*
 * Is the handle that process' own, and does it live?  The process is the caller's, pidfd is of it.
 *
 * Return: 0; -EINVAL for one that names no process, -EPERM for one of another process or user;
 * -ESRCH.
 */
int device_check(const struct usrbio_gdr *gdr, const struct caller *c, pid_t process, int pidfd);

/*
 * The descriptor of memory of the software device: the process' own, or opened with the caller's
 * rights.  Others have none, and *ret_fd is -1.
 *
 * Return: 0; -EINVAL when it is not the memory that is said; -EPERM, -EACCES; -EMFILE, -ENFILE.
 */
int device_open(const struct usrbio_gdr *gdr, const struct caller *c, pid_t process, int pidfd,
		int *ret_fd);

/* Does the process live? */
bool device_owner_lives(int pidfd);

#endif
