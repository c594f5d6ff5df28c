/* SPDX-License-Identifier: MIT */
/*
 * Memory of the software device for other processes.  It is a descriptor, and links and handles
 * have room for 64 bytes: these name a descriptor that this process keeps open as long as the iov
 * lives, and whoever may look at the process opens it anew (usrbio/proto/ipc.h).
 */
#ifndef USRBIO_GPU_SOFT_H
#define USRBIO_GPU_SOFT_H

#include <penstock.h>

struct iov;

/*
 * Fill in grant->ipc of a grant that pst_mem_export() made of iov->mem, and keep its descriptor.
 * Grants of other kinds stay as they are.  0; -EMFILE, -ENFILE.
 */
int gpu_soft_show(struct iov *iov, struct pst_grant *grant);

/*
 * Open what grant->ipc names: kind, uuid, size and fd are set, ipc is wiped.  Grants of other
 * kinds stay as they are.
 *
 * Return: 0; -EINVAL when memory or process are gone; -EPERM or -EACCES; -EMFILE, -ENFILE.
 */
int gpu_soft_find(struct pst_grant *grant);

#endif
