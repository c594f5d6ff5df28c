/* SPDX-License-Identifier: MIT */
/*
 * Sequential reads of a file (ahead.c).
 */
#ifndef PST_AHEAD_H
#define PST_AHEAD_H

struct req;

/* Leave a small sequential read to the kernel's read-ahead, once the request has its plan.  Return
 * 0. */
int ahead_choose(struct req *r);
/* Uncount a completed request. */
void ahead_over(struct req *r);

#endif
