/* SPDX-License-Identifier: MIT */
/*
 * Reads that a stream of the program waits for (feed.c).
 */
#ifndef PST_FEED_H
#define PST_FEED_H

#include "core/sched/engine.h"

/* An engine without such reads. */
void feed_init(struct engine *e);

/* Write the list of the job's copies: 0 or -errno. */
int feed_list(struct job *j, const struct mem_copy *v, unsigned nr);

/* The path that the stream's copies take. */
uint32_t feed_path(const struct job *j);

/* Has the stream moved it?  1, 0, -errno. */
int feed_poll(struct job *j);

/* Under the lock, by the clock: end reads whose deadline has come. */
void feed_ring(struct engine *e, uint64_t now);

/*
 * In the thread that submits: begin the read, and put its copies on the stream that it names.  0 or
 * -errno with a sentence.
 */
int feed_begin(struct req *r);

/* The read is over, or never began. */
void feed_over(struct req *r);

#endif
