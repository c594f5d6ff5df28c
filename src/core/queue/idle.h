/* SPDX-License-Identifier: MIT */
/*
 * Queues that calls which wait have used, kept for the next such call.
 *
 * A queue has staging memory and threads of a device, so it ends when nobody asked for it for a
 * second, or earlier where somebody lacks staging memory (idle_free()).
 */
#ifndef PST_IDLE_H
#define PST_IDLE_H

#include "core/queue/queue.h"

/* A queue that nobody else uses until idle_give(); errors of queue_new(). */
int idle_take(struct pst_queue **ret);
/* The same, or NULL where none is left that was used before. */
struct pst_queue *idle_take_used(void);
/* NULL: nothing.  A queue in which something is under way ends now. */
void idle_give(struct pst_queue *q);
/* End all that are idle, and wait for those that end already.  Only a queue's lock is held. */
void idle_free(void);

#endif
