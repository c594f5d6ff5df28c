/* SPDX-License-Identifier: MIT */
/*
 * The workers of a mount, one for each user with rings, and what is published.
 *
 * A publication is a name in 3fs-virt/iovs.  It belongs to the user and the process that made it,
 * and ends with that process, or with the worker that serves it.  No other user may see it.
 *
 * Any thread may make every call. int results are 0 or -errno.
 */
#ifndef MOUNT_BROKER_H
#define MOUNT_BROKER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "usrbio/mount/caller.h"
#include "usrbio/proto/link.h"
#include "usrbio/proto/name.h"
#include "usrbio/proto/tally.h"

struct broker;

/* Limits: of workers at once, except root's, and of one user's publications. */
struct broker_quota {
	unsigned users;
	unsigned links; /* most buffers and rings of a user */
	unsigned rings;
	uint64_t bytes; /* most bytes of shared memory of a user; 0: no limit */
};

/* A user's metrics. */
struct broker_user {
	uid_t uid;
	pid_t pid;         /* PID of the worker, or 0 */
	const char *state; /* state of the worker: running, stopped by a signal, dead, or none */
	unsigned nr_rings, nr_buffers;
	uint64_t bytes;                  /* bytes of published shared memory */
	uint64_t nr_starts, nr_failures; /* attempts to start a worker */
	uint64_t nr_lies;                /* readings of its counters that were inconsistent */
	struct usrbio_sum sum;           /* sum over all workers of the user */
};

#define BROKER_USERS 4096u

/* Return the first BROKER_USERS users, to be freed, and the number of further ones.  Return 0 or
 * -ENOMEM. */
int broker_look(struct broker *b, struct broker_user **ret, size_t *ret_nr, size_t *ret_hidden);

/*
 * Let the kernel drop its cache of a range, because rings are about to write there, or have written
 * (ends).
 */
typedef void (*broker_forget)(void *arg, uint64_t ino, uint64_t off, uint64_t len, bool ends);

int broker_new(const struct broker_quota *quota, broker_forget forget, void *arg,
	       struct broker **ret);
/* End the workers and free the broker; no other call may run. */
void broker_free(struct broker *b);

#define BROKER_TARGET_MAX USRBIO_GDR_MAX

/* A publication at one moment. */
struct broker_link {
	uint64_t index; /* not reused before all others were used */
	char name[USRBIO_NAME_MAX];
	char target[BROKER_TARGET_MAX];
	uid_t uid;
	gid_t gid;
};

/*
 * Publish shared memory; fd is the memory that the target names, and stays the caller's.  Return:
 * 0; -EINVAL for a name; -EEXIST for a name or UUID in use; -EDQUOT; -EMFILE if the user has as
 * many links or rings as allowed; -ESRCH if the process has ended; an -errno of the worker.
 */
int broker_publish(struct broker *b, const struct caller *c, const char *name, const char *target,
		   int fd, uint64_t size, struct broker_link *ret);

/*
 * As broker_publish(), of device memory, which the target describes.  It must be the calling
 * process', or published here by a process of the same user that lives.
 *
 * Return: as there; -EINVAL and -EPROTONOSUPPORT for a target; -EPERM for memory of another
 * process, and for a process that cannot be seen.
 */
int broker_publish_device(struct broker *b, const struct caller *c, const char *name,
			  const char *target, struct broker_link *ret);

/* -ENOENT; -EPERM for that of another user. */
int broker_find(struct broker *b, uid_t uid, const char *name, struct broker_link *ret);
int broker_find_index(struct broker *b, uid_t uid, uint64_t index, struct broker_link *ret);
int broker_unpublish(struct broker *b, uid_t uid, const char *name);

/* Return the user's first link with at least that index; -ENOENT if there is none. */
int broker_next(struct broker *b, uid_t uid, uint64_t index, struct broker_link *ret);

/* Return the name, without a slash, of the semaphore that clients of that user post. */
int broker_sem(struct broker *b, const struct caller *c, enum usrbio_priority priority,
	       char ret_name[USRBIO_SHM_NAME_MAX]);

/* The users whose rings may name an open file by its number; NULL: nobody. */
struct broker_file;

/* An open file. */
struct broker_open {
	uint64_t number;
	uint64_t cached;  /* the kernel's number for its cache of the file, or 0 if it has none */
	int fd;           /* its descriptor, which the caller keeps open; -1: name */
	const char *name; /* by which the worker opens the file itself, copied */
	uint32_t how;     /* for name: LINK_FILE_* */
};

/* Let the user's rings name the file, until broker_file_remove().  Call broker_tell() next. */
int broker_file_add(struct broker *b, uid_t uid, struct broker_file **file,
		    const struct broker_open *o);

/*
 * Tell the user's worker, if there is one, of files that it does not know.  The user may keep the
 * worker from answering for a few seconds, so hold nothing that another thread waits for.
 */
void broker_tell(struct broker *b, uid_t uid);
void broker_file_remove(struct broker *b, struct broker_file **file);

#endif
