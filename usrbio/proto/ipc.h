/* SPDX-License-Identifier: MIT */
/*
 * The 64 bytes in a gdr:// target by which another process opens device memory.
 *
 * They are CUDA's IPC handle, of which one word is known here: the process that made it.  Memory
 * of libpenstock's software device has bytes of the same form, with that word in the same place.
 * They name a descriptor of that process, which who may look at the process can open.
 *
 * Whoever knows a handle of CUDA can open the memory.  So nobody logs these bytes, and who has
 * had them wipes his copies.
 */
#ifndef PST_USRBIO_IPC_H
#define PST_USRBIO_IPC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "usrbio/proto/link.h"

/* A descriptor of another process, and what it is of. */
struct usrbio_soft {
	uint8_t uuid[16]; /* of the software device */
	pid_t pid;        /* as the process itself has it */
	int fd;
	uint64_t size; /* of the allocation, in bytes */
	uint64_t dev, ino;
};

/* The process that made them, as it or another PID namespace has it; 0 when they name none. */
pid_t usrbio_ipc_pid(const uint8_t ipc[USRBIO_IPC_LEN]);

/* Are they of the software device? */
bool usrbio_ipc_is_soft(const uint8_t ipc[USRBIO_IPC_LEN]);

/* 0; -EINVAL for bytes of another kind, or numbers that cannot be. */
int usrbio_soft_parse(const uint8_t ipc[USRBIO_IPC_LEN], struct usrbio_soft *ret);

void usrbio_soft_format(const struct usrbio_soft *soft, uint8_t ret_ipc[USRBIO_IPC_LEN]);

/*
 * Open the descriptor anew.  pid is that of the process here, which may not be what it has
 * itself.  The caller's credentials decide, and a descriptor that is not of that file is not
 * opened.
 *
 * Return: a descriptor for reading and writing, which is the caller's; -EINVAL when it is not of
 * that file; -EPERM or -EACCES; -EMFILE, -ENFILE.
 */
int usrbio_soft_open(const struct usrbio_soft *soft, pid_t pid);

/* Is an open descriptor of that file? */
bool usrbio_soft_is(const struct usrbio_soft *soft, int fd);

#endif
