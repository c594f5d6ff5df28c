/* SPDX-License-Identifier: MIT */
/*
 * POSIX shared memory.  Names are without their slash.
 *
 * Mode 0600: only servers of the same user, and daemons that run as that user or as root, can open
 * it.
 */
#ifndef USRBIO_SHM_H
#define USRBIO_SHM_H

#include <stddef.h>

#include "usrbio/proto/link.h"

/*
 * Make shared memory, allocate all of its pages, and bind it to NUMA node numa unless that is
 * negative.  The name contains the owner.
 *
 * Return: 0; -ENOSPC, -ENOMEM; the errors of shm_open(3) and mmap(2).
 */
int shm_create(size_t size, int numa, char ret_name[USRBIO_SHM_NAME_MAX], void **ret_base);

/*
 * Map the first bytes of existing memory.
 *
 * Return: 0; -ENOENT; -EPERM if it belongs to another user; -EINVAL if it is smaller than size, or
 * no regular file; the errors of shm_open(3) and mmap(2).
 */
int shm_attach(const char *name, size_t size, void **ret_base);

void shm_remove(const char *name);

/* Bind memory to a node.  If that fails, log it; the memory stays usable. */
void shm_bind(void *base, size_t size, int numa);

#endif
