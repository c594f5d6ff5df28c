/* SPDX-License-Identifier: MIT */
/*
 * Publish device memory to a daemon: by a link below its mount that carries CUDA's IPC handle.  The
 * handle opens the whole allocation, so it goes to the daemon only.
 */
#ifndef USRBIO_GPU_LINK_H
#define USRBIO_GPU_LINK_H

#include <penstock.h>
#include <stdint.h>

#include "usrbio/proto/id.h"

struct iov;

/*
 * Publish iov->mem as memory of device iov->device, and set iov->link.  On return the daemon has
 * opened and registered the memory.
 *
 * Return: 0; -ENOTSUP for memory without a CUDA IPC handle; else the error of symlink(2), by which
 * the daemon answers.
 */
int gpu_link_make(struct iov *iov, const uint8_t id[USRBIO_ID_LEN]);

/*
 * Find iov->size bytes of device iov->device that another process published on iov->mount, the
 * mount of a daemon.  ret->sz must be set; ret->uuid is not written.
 *
 * Return: 0; -EINVAL for another device or size, or a link target of another form; the error of
 * readlink(2).
 */
int gpu_link_read(const struct iov *iov, const uint8_t id[USRBIO_ID_LEN], struct pst_grant *ret);

#endif
