/* SPDX-License-Identifier: MIT */
/* Mounts of disks and of file systems of the network, out of /proc/self/mountinfo. */
#ifndef CLI_MOUNTS_H
#define CLI_MOUNTS_H

#include "tools/common/util.h"

#define MOUNTS_MAX 64

struct mount {
	char path[4096];  /* as the kernel has it: any bytes but NUL */
	char type[64];    /* "ext4" */
	char source[256]; /* "/dev/nvme0n1p1" */
	unsigned major, minor;
};

/*
 * One mount of each device, the one with the shortest path.  How many were written, and in
 * *ret_more how many there was no room for; -errno with a sentence.
 */
int mounts_find(struct mount ret[MOUNTS_MAX], unsigned *ret_more);

#endif
