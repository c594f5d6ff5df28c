/* SPDX-License-Identifier: MIT */
/*
 * Targets of published names.
 *
 *	/dev/shm/NAME			shared memory; NAME is a POSIX name without its slash
 *	/dev/shm/sem.NAME		a POSIX semaphore
 *	gdr://v2/device/D/allocation/A/offset/O/size/S/ipc/HEX
 *
 * D is the device's number, A the size of the allocation, O and S the range in it, HEX the 128
 * digits of a CUDA IPC handle.  Numbers are decimal digits; A and S are not 0, O + S is at most A.
 */
#ifndef PST_USRBIO_LINK_H
#define PST_USRBIO_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define USRBIO_SHM_DIR "/dev/shm/"
#define USRBIO_SHM_NAME_MAX 256 /* bytes of a name, with its terminating 0 */
#define USRBIO_GDR_MAX 384      /* bytes of a gdr:// target, with its terminating 0 */
#define USRBIO_IPC_LEN 64

struct usrbio_gdr {
	int32_t device;
	uint64_t allocation; /* bytes of the allocation */
	uint64_t off;        /* first byte of the range in the allocation */
	uint64_t size;       /* bytes of the range */
	uint8_t ipc[USRBIO_IPC_LEN];
};

/*
 * Parse the name of shared memory in a target: one part directly below /dev/shm, neither "." nor
 * "..".  Return 0 or -EINVAL.
 */
int usrbio_link_shm(const char *target, char ret_name[USRBIO_SHM_NAME_MAX]);

/* Parse the name of a semaphore, as sem_open(3) takes it, with a slash.  Return 0 or -EINVAL. */
int usrbio_link_sem(const char *target, char ret_name[USRBIO_SHM_NAME_MAX]);

/* Return true if the target names device memory, in any version. */
bool usrbio_link_is_gdr(const char *target);

/*
 * Parse a target of version 2 in exactly its grammar.  Return 0; -EPROTONOSUPPORT for another
 * version, which no other process can use safely; -EINVAL.
 */
int usrbio_gdr_parse(const char *target, struct usrbio_gdr *ret);

void usrbio_gdr_format(const struct usrbio_gdr *gdr, char ret_target[USRBIO_GDR_MAX]);

#endif
