/* SPDX-License-Identifier: MIT */
/*
 * Reads that go through a file front to back (ahead.c).
 */
#ifndef PST_AHEAD_H
#define PST_AHEAD_H

struct req;

/* The request has its plan: if it is a small read that goes on where others ended, the
 * kernel's read-ahead serves it better than O_DIRECT.  0. */
int ahead_choose(struct req *r);
/* A request completes that it counted. */
void ahead_over(struct req *r);

#endif
