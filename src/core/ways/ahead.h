/* SPDX-License-Identifier: MIT */
/*
 * Sequential reads of a file (ahead.c).
 */
#ifndef PST_AHEAD_H
#define PST_AHEAD_H

struct req;

/* Replace DIRECT by BUFFERED in the plan of a small sequential read, so that the kernel reads
 * ahead.  Return 0. */
int ahead_choose(struct req *r);
/* Stop counting the bytes of a completed request. */
void ahead_over(struct req *r);

#endif
