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
	bool read_only;     /* nothing of the source is changed; rings may read */
	bool no_atime;      /* reading changes no times of access */
	bool no_exec;       /* no program is executed from it */
	bool kernel_cache;  /* files go through the kernel's cache of the mount */
	uint64_t timeout_s; /* for which the kernel believes names and attributes */
	uint64_t links;     /* that a user may publish: buffers and rings */
	uint64_t rings;     /* of these */
	uint64_t users;     /* that have workers at once, but for root */
	uint64_t memory;    /* bytes of shared memory that a user may publish; 0: any */
};

#define DAEMON_DEFAULTS                                                     \
	{                                                                   \
		.timeout_s = 1, .links = 16384, .rings = 1024, .users = 512 \
	}

/* The server takes this process over.  -errno with a sentence where it cannot. */
int daemon_start(const char *dir, const struct daemon_opts *o);

/*
 * Is there such a mount at that place, also one whose server has died?
 * 1 with its canonical path; 0; -errno with a sentence.
 */
int daemon_find(const char *given, char ret[PATH_MAX]);

/* Unmount it.  0 or -errno with a sentence. */
int daemon_stop(const char *dir);

#endif
