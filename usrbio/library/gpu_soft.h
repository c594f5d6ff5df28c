/* SPDX-License-Identifier: MIT */
/*
 * Memory of the software device for other processes.
 *
 * Links and handles have room for 64 bytes and cannot carry a descriptor, which this memory is.  So
 * the 64 bytes name a descriptor that the owner keeps open while its iov lives.  Another process
 * with the right to inspect the owner opens that descriptor again (usrbio/proto/ipc.h).
 */
#ifndef USRBIO_GPU_SOFT_H
#define USRBIO_GPU_SOFT_H

#include <penstock.h>

struct iov;

/*
 * Fill in grant->ipc of a grant that pst_mem_export() made of iov->mem, and keep its descriptor
 * open.  Grants of other kinds do not change.  Return 0, -EMFILE or -ENFILE.
 */
int gpu_soft_show(struct iov *iov, struct pst_grant *grant);

/*
 * Open the memory that grant->ipc names: set kind, uuid, size and fd, and wipe ipc.  Grants of
 * other kinds do not change.
 *
 * Return: 0; -EINVAL if the memory or its process is gone; -EPERM or -EACCES; -EMFILE, -ENFILE.
 */
int gpu_soft_find(struct pst_grant *grant);

#endif
