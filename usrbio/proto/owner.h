/* SPDX-License-Identifier: MIT */
/*
 * The owner of shared memory, which is written into the memory's name:
 *
 * hf3fs-iov-UUID.pPID.sSTART.nPLACE
 * sem.hf3fs-submit-ios.UUID.pPID.sSTART.nPLACE	a server's semaphore
 *
 * START is the process' start time in clock ticks since boot: it differs if the PID was reused.
 * PLACE is a hash of the machine's boot, the PID namespace and the time namespace, because PID and
 * START are valid only there.  All numbers are decimal.
 */
#ifndef PST_USRBIO_OWNER_H
#define PST_USRBIO_OWNER_H

#include <stdint.h>
#include <sys/types.h>

#include "usrbio/proto/id.h"
#include "usrbio/proto/link.h"

struct usrbio_owner {
	pid_t pid;
	uint64_t start; /* start time: field 22 of /proc/PID/stat */
	uint64_t place; /* hash that is equal only in the same boot and namespaces */
};

/*
 * Describe this process; call this again after fork(). Return: 0; -EXDEV if /proc belongs to
 * another PID namespace; -errno without /proc.  After an error owners cannot be compared.
 */
int usrbio_owner_self(struct usrbio_owner *ret);

/* Write a name, without its slash, for new shared memory. */
void usrbio_owner_shm(const struct usrbio_owner *owner, const uint8_t id[USRBIO_ID_LEN],
		      char ret_name[USRBIO_SHM_NAME_MAX]);

/* Write a name, without its slash, for a semaphore of the server @owner. */
void usrbio_owner_sem(const struct usrbio_owner *owner, const uint8_t id[USRBIO_ID_LEN],
		      char ret_name[USRBIO_SHM_NAME_MAX]);

/* Parse the owner in such a name.  Return 0, or -EINVAL if it has none. */
int usrbio_owner_parse(const char *shm_name, struct usrbio_owner *ret);

/*
 * Find out whether the owner lives.  A zombie counts as gone; exec(2) keeps the owner.  Return: 1;
 * 0 if it is gone; -EXDEV if it belongs to another place; -EACCES if the kernel hides it.
 */
int usrbio_owner_alive(const struct usrbio_owner *owner);

#endif
