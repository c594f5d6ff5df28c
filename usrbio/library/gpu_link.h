/* SPDX-License-Identifier: MIT */
/*
 * How device memory is known to a daemon: a link beneath its mount that carries CUDA's IPC
 * handle.  The handle opens the whole allocation; it goes to the daemon and nowhere else.
 */
#ifndef USRBIO_GPU_LINK_H
#define USRBIO_GPU_LINK_H

#include <penstock.h>
#include <stdint.h>

#include "usrbio/proto/id.h"

struct iov;

/*
 * Publish iov->mem as device iov->device: the daemon has opened and registered it on return.
 * iov->link is set.
 *
 * Return: 0; -ENOTSUP for memory that CUDA IPC does not know; the error of symlink(2), which is
 * the daemon's answer.
 */
int gpu_link_make(struct iov *iov, const uint8_t id[USRBIO_ID_LEN]);

/*
 * Find memory that another process published, of iov->size bytes of device iov->device; iov->mount
 * is the daemon's.  ret->sz must be set, ret->uuid is left alone.
 *
 * Return: 0; -EINVAL for another device or size, or a target that is none of these; what
 * readlink(2) says.
 */
int gpu_link_read(const struct iov *iov, const uint8_t id[USRBIO_ID_LEN], struct pst_grant *ret);

#endif
