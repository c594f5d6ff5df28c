/* SPDX-License-Identifier: MIT */
/*
 * Whose shared memory it is, written into its name:
 *
 *	hf3fs-iov-UUID.pPID.sSTART.nPLACE
 *	sem.hf3fs-submit-ios.UUID.pPID.sSTART.nPLACE	a server's semaphore
 *
 * PID with its start time in clock ticks since boot, so that a number that was used again is
 * not taken for the old process.  Both mean something only where they come from: PLACE stands for
 * the machine's boot, the PID namespace and the time namespace.  All numbers are decimal.
 */
#ifndef PST_USRBIO_OWNER_H
#define PST_USRBIO_OWNER_H

#include <stdint.h>
#include <sys/types.h>

#include "usrbio/proto/id.h"
#include "usrbio/proto/link.h"

struct usrbio_owner {
	pid_t pid;
	uint64_t start; /* field 22 of /proc/PID/stat */
	uint64_t place; /* the same number only in the same boot and namespaces */
};

/*
 * This process, whichever thread asks; to be asked again after fork().
 *
 * Return: 0; -EXDEV when /proc is another PID namespace's; -errno where there is no /proc.  Nobody
 * can be told apart then.
 */
int usrbio_owner_self(struct usrbio_owner *ret);

/* A name without its slash for new shared memory. */
void usrbio_owner_shm(const struct usrbio_owner *owner, const uint8_t id[USRBIO_ID_LEN],
		      char ret_name[USRBIO_SHM_NAME_MAX]);

/* A name, as sem_open(3) takes it but for the slash, for a semaphore of the server @owner. */
void usrbio_owner_sem(const struct usrbio_owner *owner, const uint8_t id[USRBIO_ID_LEN],
		      char ret_name[USRBIO_SHM_NAME_MAX]);

/* The owner in such a name; -EINVAL when it carries none. */
int usrbio_owner_parse(const char *shm_name, struct usrbio_owner *ret);

/*
 * Does it live?  A process that was not waited for yet is gone.  One that calls exec(2) stays
 * the same.
 *
 * Return: 1; 0 when it is gone; -EXDEV when it is of another place, -EACCES when the kernel hides
 * it: that cannot be seen from here.
 */
int usrbio_owner_alive(const struct usrbio_owner *owner);

#endif
