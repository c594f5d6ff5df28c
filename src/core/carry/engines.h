/* SPDX-License-Identifier: MIT */
/*
 * Engines, and the shares of queues in them (engines.c).
 */
#ifndef PST_ENGINES_H
#define PST_ENGINES_H

#include "core/sched/share.h"

/* Return the positive errno because of which threads replaced the engine's io_uring, or 0. */
const _Atomic int *share_ring_err(const struct share *s);

/* Get the queue's share of the device's engine, created at the first request. */
int engine_share(struct pst_queue *q, const struct mem_ops *ops, unsigned device,
		 struct share **ret);

void engine_unshare(struct share *s);

#endif
