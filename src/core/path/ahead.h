/* SPDX-License-Identifier: MIT */
/*
 * Reads that go through a file front to back (ahead.c).
 */
#ifndef PST_AHEAD_H
#define PST_AHEAD_H

#include "base/base.h"

struct req;

#define AHEAD_NR 16u

/* Where reads of a queue may be going front to back; ahead.c. */
struct ahead {
	uint64_t key; /* of the file, and where the last one ended */
	int nr;       /* in a row, up to AHEAD_MIN; below 0: too many were in flight */
	bool found;   /* since its place was last asked for */
};

/* The request has its plan: if it is a small read that goes on where others ended, the
 * kernel's read-ahead serves it better than O_DIRECT. */
void ahead_choose(struct req *r);

#endif
