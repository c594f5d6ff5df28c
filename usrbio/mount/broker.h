/* SPDX-License-Identifier: MIT */
/*
 * The workers of a mount, one per user with rings, and everything published.
 *
 * A publication is a name in 3fs-virt/iovs.  It belongs to the user and the process that made it,
 * and ends with that process or with the worker that serves it.  Other users cannot see it.
 *
 * All calls may be made from any thread.  int results are 0 or -errno.
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

/* Limits.  users: the maximum number of users with workers at the same time, not counting root. */
struct broker_quota {
	unsigned users;
	unsigned links; /* maximum buffers and rings of a user */
	unsigned rings;
	uint64_t bytes; /* maximum bytes of a user's shared memory; 0: no limit */
};

/* A user's metrics. */
struct broker_user {
	uid_t uid;
	pid_t pid;         /* process ID of the worker, or 0 */
	const char *state; /* state of the worker: running, stopped by a signal, dead, or none */
	unsigned nr_rings, nr_buffers;
	uint64_t bytes;                  /* bytes of published shared memory */
	uint64_t nr_starts, nr_failures; /* workers started, and failed attempts to start one */
	uint64_t nr_lies;                /* readings of the worker's counters that were invalid */
	struct usrbio_sum sum;           /* sums over all workers of the user, also dead ones */
};

#define BROKER_USERS 4096u

/* Get the first BROKER_USERS users; the caller frees *ret.  *ret_hidden is the number of further
 * users.  Return 0 or -ENOMEM. */
int broker_look(struct broker *b, struct broker_user **ret, size_t *ret_nr, size_t *ret_hidden);

/*
 * Make the kernel write back and drop its cache of a range.  Called before rings write to the
 * range, and again with ends set after they have written to it.
 */
typedef void (*broker_forget)(void *arg, uint64_t ino, uint64_t off, uint64_t len, bool ends);

int broker_new(const struct broker_quota *quota, broker_forget forget, void *arg,
	       struct broker **ret);
/* End the workers and free the broker.  No other call may be in progress. */
void broker_free(struct broker *b);

#define BROKER_TARGET_MAX USRBIO_GDR_MAX

/* A copy of a publication's public part. */
struct broker_link {
	uint64_t index; /* number of the publication; never used twice */
	char name[USRBIO_NAME_MAX];
	char target[BROKER_TARGET_MAX];
	uid_t uid;
	gid_t gid;
};

/*
 * Publish shared memory.  fd is a descriptor of the memory that the target names; the caller closes
 * it.  Return: 0; -EINVAL for an invalid name; -EEXIST for a name or UUID in use; -EDQUOT if the
 * user would exceed the bytes; -EMFILE if the user would exceed the links or rings; -ESRCH if the
 * process has ended; -errno of the worker.
 */
int broker_publish(struct broker *b, const struct caller *c, const char *name, const char *target,
		   int fd, uint64_t size, struct broker_link *ret);

/*
 * Publish device memory, which the target describes.  The memory must belong to the calling
 * process, or be published here by a living process of the same user.
 *
 * Return: errors of broker_publish(); -EINVAL and -EPROTONOSUPPORT for the target; -EPERM for
 * memory of another process, and for a calling process that cannot be seen.
 */
int broker_publish_device(struct broker *b, const struct caller *c, const char *name,
			  const char *target, struct broker_link *ret);

/* Find or remove a publication.  Return 0; -ENOENT; -EPERM if it belongs to another user. */
int broker_find(struct broker *b, uid_t uid, const char *name, struct broker_link *ret);
int broker_find_index(struct broker *b, uid_t uid, uint64_t index, struct broker_link *ret);
int broker_unpublish(struct broker *b, uid_t uid, const char *name);

/* Find the user's first publication with at least that index.  Return 0 or -ENOENT. */
int broker_next(struct broker *b, uid_t uid, uint64_t index, struct broker_link *ret);

/* Find the name, without its slash, of the semaphore that clients of the caller's user post. */
int broker_sem(struct broker *b, const struct caller *c, enum usrbio_priority priority,
	       char ret_name[USRBIO_SHM_NAME_MAX]);

/* An open file with the users whose rings may name it by its number; NULL: no users. */
struct broker_file;

/* Facts about an open file for workers. */
struct broker_open {
	uint64_t number;
	uint64_t cached;  /* number under which the kernel caches the file; 0: not cached */
	int fd;           /* descriptor, which the caller keeps open; -1: use name */
	const char *name; /* name by which the worker opens the file; copied */
	uint32_t how;     /* LINK_FILE_*, for opening by name */
};

/* Let the user's rings name the file, until broker_file_remove().  Call broker_tell() next. */
int broker_file_add(struct broker *b, uid_t uid, struct broker_file **file,
		    const struct broker_open *o);

/*
 * Tell the user's worker, if there is one, about files that it does not know yet.  The user can
 * delay the worker's answer for some seconds, so hold no lock that other threads need.
 */
void broker_tell(struct broker *b, uid_t uid);
void broker_file_remove(struct broker *b, struct broker_file **file);

#endif
