/* SPDX-License-Identifier: MIT */
/*
 * Remove shared memory that ended processes left in /dev/shm: memory of killed clients, semaphores
 * of killed servers.  Only names that contain an owner (usrbio/proto/owner.h) are removed, with the
 * rights of the file's user.
 */
#ifndef MOUNT_LEFTOVER_H
#define MOUNT_LEFTOVER_H

#include <stdbool.h>
#include <sys/stat.h>

#include "usrbio/mount/caller.h"

/* A client's memory: its name in /dev/shm, and the file that had the name at publication. */
struct leftover {
	char name[256]; /* name in /dev/shm; "": do not remove */
	dev_t dev;
	ino_t ino;
};

/*
 * Record what to remove if the process ends without removing its link.  target is the link's
 * target, fd a descriptor of the memory.  Memory whose name does not contain this process is not
 * removed.
 */
void leftover_of(const struct caller *c, pid_t process, const char *target, int fd,
		 struct leftover *ret);

/* Remove the memory, after the process has ended. */
void leftover_remove(const struct leftover *l, uid_t uid, gid_t gid);

#define LEFTOVER_ALL ((uid_t)-1)

/*
 * Remove memory of ended processes of a user or of all users, published or not.  Processes that
 * cannot be seen count as living.  Return the number of removed files.
 */
unsigned leftover_sweep(uid_t of);

#endif
