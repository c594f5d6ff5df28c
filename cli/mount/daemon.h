/* SPDX-License-Identifier: MIT */
/* Mounts served by a separate process, penstock-mount. */
#ifndef CLI_MOUNT_DAEMON_H
#define CLI_MOUNT_DAEMON_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct daemon_opts {
	const char *source;
	const char *metrics; /* path or address of the metrics socket, or "none" */
	bool foreground;
	bool allow_other;   /* serve all users */
	bool read_only;     /* the source is read-only; rings may only read */
	bool no_atime;      /* reading does not change access times */
	bool no_exec;       /* programs on the mount cannot be executed */
	bool kernel_cache;  /* files use the kernel's page cache */
	uint64_t timeout_s; /* seconds for which the kernel caches names and attributes */
	uint64_t links;     /* maximum links (buffers and rings) per user */
	uint64_t rings;     /* maximum rings per user; rings count as links too */
	uint64_t users;     /* maximum users besides root with workers at the same time */
	uint64_t uid;       /* owner of the files, if the source is a storage service; or
			     * DAEMON_SELF */
	uint64_t gid;
	uint64_t memory; /* maximum bytes of shared memory per user; 0: unlimited */
};

#define DAEMON_SELF UINT64_MAX /* use the server's user and group */

#define DAEMON_DEFAULTS                                                                          \
	{                                                                                        \
		.timeout_s = 1, .links = 16384, .rings = 1024, .users = 512, .uid = DAEMON_SELF, \
		.gid = DAEMON_SELF                                                               \
	}

/* Replace this process by the server.  Return only on failure, with -errno and a sentence. */
int daemon_start(const char *dir, const struct daemon_opts *o);

/*
 * Find a mount at that path, even if its server is dead.  Return 1 with its canonical path; 0 if
 * there is none; or -errno with a sentence.
 */
int daemon_find(const char *given, char ret[PATH_MAX]);

/* Unmount the mount at dir.  Return 0, or -errno with a sentence. */
int daemon_stop(const char *dir);

#endif
