/* SPDX-License-Identifier: MIT */
/*
 * The workers of a mount, one for each user with rings, and what is published.
 *
 * A publication is a name in 3fs-virt/iovs.  It belongs to the user and to the process that made
 * it, and goes with that process, or with the worker that serves it.  Nobody else may look at it.
 *
 * Every call may be made from any thread.  int results are 0 or -errno.
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

/* Limits: of workers at once, but for root's, and of one user's publications. */
struct broker_quota {
	unsigned users;
	unsigned links; /* buffers and rings */
	unsigned rings;
	uint64_t bytes; /* of shared memory, together; 0: any */
};

/* A user, for who looks at numbers. */
struct broker_user {
	uid_t uid;
	pid_t pid;         /* of the worker, or 0 */
	const char *state; /* of it: running, stopped by a signal, dead, or none */
	unsigned nr_rings, nr_buffers;
	uint64_t bytes;                  /* of shared memory that is published */
	uint64_t nr_starts, nr_failures; /* to start a worker */
	uint64_t nr_lies;                /* looks at its counters that made no sense */
	struct usrbio_sum sum;           /* of all the user's workers */
};

#define BROKER_USERS 4096u

/* The first BROKER_USERS of them, to be freed, and how many there are besides.  0 or -ENOMEM. */
int broker_look(struct broker *b, struct broker_user **ret, size_t *ret_nr, size_t *ret_hidden);

/* The kernel is to forget what it has of a file: rings have written there. */
typedef void (*broker_forget)(void *arg, uint64_t ino, uint64_t off, uint64_t len);

int broker_new(const struct broker_quota *quota, broker_forget forget, void *arg,
	       struct broker **ret);
/* Ends the workers.  Nobody calls any more. */
void broker_free(struct broker *b);

#define BROKER_TARGET_MAX USRBIO_GDR_MAX

/* A publication, as it was when somebody looked. */
struct broker_link {
	uint64_t index; /* not used again before the last one was */
	char name[USRBIO_NAME_MAX];
	char target[BROKER_TARGET_MAX];
	uid_t uid;
	gid_t gid;
};

/*
 * Publish; fd is that of the shared memory which the target names, and the caller's.
 *
 * Return: 0; -EINVAL for a name; -EEXIST for a name or a UUID that is taken; -EDQUOT; -EMFILE when
 * the user has as many links or rings as he may; -ESRCH when the process is gone already; what the
 * worker says.
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

/* The user's first link with an index from there on.  -ENOENT: there is none. */
int broker_next(struct broker *b, uid_t uid, uint64_t index, struct broker_link *ret);

/* The name, without a slash, of the semaphore that clients of that user post. */
int broker_sem(struct broker *b, const struct caller *c, enum usrbio_priority priority,
	       char ret_name[USRBIO_SHM_NAME_MAX]);

/* The users whose rings may name an open file by its number; NULL: nobody. */
struct broker_file;

/* What is open. */
struct broker_open {
	uint64_t number;
	uint64_t cached; /* the kernel's name for what it keeps of it, or 0: it keeps nothing */
	int fd;          /* stays the caller's, and open */
};

/* The user may, until broker_file_remove().  Then broker_tell(). */
int broker_file_add(struct broker *b, uid_t uid, struct broker_file **file,
		    const struct broker_open *o);

/*
 * Tell the user's worker, if there is one, of files that it does not know.  He may keep it from
 * answering, so the caller waits a few seconds perhaps: nobody else may wait for the caller then.
 */
void broker_tell(struct broker *b, uid_t uid);
void broker_file_remove(struct broker *b, struct broker_file **file);

#endif
