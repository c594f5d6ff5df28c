/* SPDX-License-Identifier: MIT */
/*
 * Reads that a stream of the program waits for (feed.c).
 */
#ifndef PST_FEED_H
#define PST_FEED_H

#include "core/sched/engine.h"

/* Initialize an engine without feeds. */
void feed_init(struct engine *e);

/* Write the list of the job's copies.  Return 0 or -errno. */
int feed_list(struct job *j, const struct mem_copy *v, unsigned nr);

/* Return the PST_PATH_* of the stream's copies. */
uint32_t feed_path(const struct job *j);

/* Return 1 if the stream has moved the job, 0 if not yet, or -errno. */
int feed_poll(struct job *j);

/* End reads whose deadline has passed; called by the clock, under the lock. */
void feed_ring(struct engine *e, uint64_t now);

/*
 * Begin the read and put its copies on its stream, on the submitting thread.  Return 0, or -errno
 * with a sentence.
 */
int feed_begin(struct req *r);

/* Free the feed of a read that has ended or never began. */
void feed_over(struct req *r);

#endif
