/* SPDX-License-Identifier: MIT */
/*
 * A cache of queues for calls that wait, such as pst_read().
 *
 * An idle queue holds staging memory and a device's threads.  So the cache frees a queue after an
 * idle second, or earlier if another queue lacks staging memory (idle_free()).
 */
#ifndef PST_IDLE_H
#define PST_IDLE_H

#include "core/queue/queue.h"

/* Take a queue until idle_give(); create one if none is idle.  Errors are those of queue_new(). */
int idle_take(struct pst_queue **ret);
/* Take a queue that was used before, or return NULL. */
struct pst_queue *idle_take_used(void);
/* Give a queue back, or free the queue if requests are in flight. NULL is ignored. */
void idle_give(struct pst_queue *q);
/* Free all idle queues, and wait for those that are being freed.  The caller may hold the lock of
 * one queue and no other. */
void idle_free(void);

#endif
