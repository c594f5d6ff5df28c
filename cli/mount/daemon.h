/* SPDX-License-Identifier: MIT */
/* Mounts that have a server of their own, penstock-mount. */
#ifndef CLI_MOUNT_DAEMON_H
#define CLI_MOUNT_DAEMON_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct daemon_opts {
	const char *source;
	const char *metrics; /* path or address of the socket for numbers, or "none" */
	bool foreground;
	bool allow_other;   /* it must serve all users */
	bool read_only;     /* the source is read-only; rings may only read */
	bool no_atime;      /* reading does not change access times */
	bool no_exec;       /* programs cannot be executed from it */
	bool kernel_cache;  /* files use the kernel's page cache of the mount */
	uint64_t timeout_s; /* seconds for which the kernel caches names and attributes */
	uint64_t links;     /* most links (buffers and rings) of one user */
	uint64_t rings;     /* most rings among these */
	uint64_t users;     /* most users besides root that have workers at the same time */
	uint64_t uid;       /* owner of the files of a storage service; DAEMON_SELF */
	uint64_t gid;
	uint64_t memory; /* bytes of shared memory that a user may publish; 0: any */
};

#define DAEMON_SELF UINT64_MAX /* the user and group of the server */

#define DAEMON_DEFAULTS                                                                          \
	{                                                                                        \
		.timeout_s = 1, .links = 16384, .rings = 1024, .users = 512, .uid = DAEMON_SELF, \
		.gid = DAEMON_SELF                                                               \
	}

/* Replace this process by the server.  Return only on failure: -errno with a sentence. */
int daemon_start(const char *dir, const struct daemon_opts *o);

/*
 * Find a mount at that place, also one whose server has died.  Return 1 with its canonical path; 0
 * if there is none; or -errno with a sentence.
 */
int daemon_find(const char *given, char ret[PATH_MAX]);

/* Unmount it.  0 or -errno with a sentence. */
int daemon_stop(const char *dir);

#endif
