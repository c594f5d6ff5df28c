/* SPDX-License-Identifier: MIT */
/*
 * Check handles of device memory for the broker.  Any process that knows a handle's bytes can open
 * the memory, so the broker accepts a handle only from the process that it names, and shows it only
 * to that process' user.
 */
#ifndef MOUNT_DEVICE_H
#define MOUNT_DEVICE_H

#include "usrbio/mount/caller.h"
#include "usrbio/proto/link.h"

/*
 * Check that the handle belongs to that living process of the caller; pidfd refers to the process.
 * Return: 0; -EINVAL if the handle names no process; -EPERM for a handle of another process or
 * user; -ESRCH.
 */
int device_check(const struct usrbio_gdr *gdr, const struct caller *c, pid_t process, int pidfd);

/*
 * Get the descriptor of memory of the software device, from the process or by opening it with the
 * caller's rights.  *ret_fd is -1 for CUDA memory.  Return: 0; -EINVAL for memory that the handle
 * does not name; -EPERM, -EACCES; -EMFILE, -ENFILE.
 */
int device_open(const struct usrbio_gdr *gdr, const struct caller *c, pid_t process, int pidfd,
		int *ret_fd);

/* Return true if the process lives. */
bool device_owner_lives(int pidfd);

#endif
