/* SPDX-License-Identifier: MIT */
/* Engines, and the queues' shares of them (engines.c). */
#ifndef PST_ENGINES_H
#define PST_ENGINES_H

#include "core/sched/share.h"

/* Return the address of the share's ring_err: 0, or the positive errno that made threads replace
 * the engine's io_uring. */
const _Atomic int *share_ring_err(const struct share *s);

/* Return the queue's share of the device's engine, created at the first request.  Errors have a
 * sentence. */
int engine_share(struct pst_queue *q, const struct mem_ops *ops, unsigned device,
		 struct share **ret);

void engine_unshare(struct share *s);

#endif
