/* SPDX-License-Identifier: MIT */
/*
 * POSIX shared memory.  Names are without their slash.
 *
 * It is only its user's, mode 0600: a server of a plain directory and a daemon that runs as root
 * or as that user can open it, and nobody else.
 */
#ifndef USRBIO_SHM_H
#define USRBIO_SHM_H

#include <stddef.h>

#include "usrbio/proto/link.h"

/*
 * New memory, all of whose pages are there, bound to a NUMA node where numa is not below 0.  The
 * name says whose it is.
 *
 * Return: 0; -ENOSPC, -ENOMEM; what shm_open(3) and mmap(2) say else.
 */
int shm_create(size_t size, int numa, char ret_name[USRBIO_SHM_NAME_MAX], void **ret_base);

/*
 * The first bytes of memory that is there.
 *
 * Return: 0; -ENOENT; -EPERM when it is another user's; -EINVAL when it is smaller, or no
 * regular file; what shm_open(3) and mmap(2) say else.
 */
int shm_attach(const char *name, size_t size, void **ret_base);

void shm_remove(const char *name);

/* Bind memory to a node.  If that fails, it is logged and the memory used all the same. */
void shm_bind(void *base, size_t size, int numa);

#endif
