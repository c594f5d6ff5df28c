/* SPDX-License-Identifier: MIT */
/*
 * The 64 bytes in a gdr:// target by which another process opens device memory.
 *
 * For CUDA memory they are CUDA's IPC handle; only its PID word is interpreted here.  For memory of
 * libpenstock's software device they have the PID at the same offset, and name a descriptor of that
 * process.  Any process that may inspect that process can open the descriptor again.
 *
 * Any process that knows a CUDA handle can open the memory.  So these bytes are never logged, and
 * copies are wiped.
 */
#ifndef PST_USRBIO_IPC_H
#define PST_USRBIO_IPC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "usrbio/proto/link.h"

/* A descriptor of another process, and its file. */
struct usrbio_soft {
	uint8_t uuid[16]; /* UUID of the software device */
	pid_t pid;        /* PID of the process in its own PID namespace */
	int fd;
	uint64_t size; /* bytes of the allocation */
	uint64_t dev, ino;
};

/* Return the PID that the creator of the bytes has in its own PID namespace, which may differ from
 * ours.  0 if the bytes contain none. */
pid_t usrbio_ipc_pid(const uint8_t ipc[USRBIO_IPC_LEN]);

/* Return true for bytes of the software device. */
bool usrbio_ipc_is_soft(const uint8_t ipc[USRBIO_IPC_LEN]);

/* Parse the bytes.  Return 0, or -EINVAL for bytes of another kind, or impossible numbers. */
int usrbio_soft_parse(const uint8_t ipc[USRBIO_IPC_LEN], struct usrbio_soft *ret);

void usrbio_soft_format(const struct usrbio_soft *soft, uint8_t ret_ipc[USRBIO_IPC_LEN]);

/*
 * Open the descriptor again.  pid is the process' PID in this namespace, which may differ from
 * soft->pid.  The kernel checks the caller's credentials.  A descriptor of another file is not
 * opened.  Return: a descriptor for reading and writing, which the caller closes; -EINVAL if the
 * descriptor is of another file; -EPERM or -EACCES; -EMFILE, -ENFILE.
 */
int usrbio_soft_open(const struct usrbio_soft *soft, pid_t pid);

/* Return true if an open descriptor is of the handle's file. */
bool usrbio_soft_is(const struct usrbio_soft *soft, int fd);

#endif
