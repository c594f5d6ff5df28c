/* SPDX-License-Identifier: MIT */
/* Find mounts of disks and network file systems in /proc/self/mountinfo. */
#ifndef CLI_MOUNTS_H
#define CLI_MOUNTS_H

#include "tools/common/util.h"

#define MOUNTS_MAX 64

struct mount {
	char path[4096];  /* mount point; any bytes except NUL */
	char type[64];    /* file system type, such as "ext4" */
	char source[256]; /* source device, such as "/dev/nvme0n1p1" */
	unsigned major, minor;
};

/*
 * Find one mount per device, the one with the shortest path.  Return the number written, and in
 * *ret_more the number without room; -errno with a sentence.
 */
int mounts_find(struct mount ret[MOUNTS_MAX], unsigned *ret_more);

#endif
