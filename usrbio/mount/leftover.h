/* SPDX-License-Identifier: MIT */
/*
 * Shared memory in /dev/shm that nobody else removes: that of clients that were killed, and
 * semaphores of a killed server.  Only names that carry their owner (usrbio/proto/owner.h) are
 * removed, with the rights of the user whose file it is.
 */
#ifndef MOUNT_LEFTOVER_H
#define MOUNT_LEFTOVER_H

#include <stdbool.h>
#include <sys/stat.h>

#include "usrbio/mount/caller.h"

/* Memory of a client: its name in /dev/shm, and the file that had it when it was published. */
struct leftover {
	char name[256]; /* "": not to be removed */
	dev_t dev;
	ino_t ino;
};

/*
 * Note what to remove if the process ends without removing its link: the target of the link, and a
 * descriptor of it.  Nothing for memory that another process or program named.
 */
void leftover_of(const struct caller *c, pid_t process, const char *target, int fd,
		 struct leftover *ret);

/* The process has ended. */
void leftover_remove(const struct leftover *l, uid_t uid, gid_t gid);

#define LEFTOVER_ALL ((uid_t)-1)

/*
 * Remove what ended processes of a user have left, or of all users, published or not.  Processes
 * that cannot be seen from here count as alive.  Return how many files were removed.
 */
unsigned leftover_sweep(uid_t of);

#endif
