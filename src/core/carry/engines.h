/* SPDX-License-Identifier: MIT */
/*
 * Engines, and the shares of queues in them (engines.c).
 */
#ifndef PST_ENGINES_H
#define PST_ENGINES_H

#include "core/sched/share.h"

/* Why threads stand in for the engine's rings: a positive errno, or 0. */
const _Atomic int *share_ring_err(const struct share *s);

/* The queue's share of the engine that serves the device; made at the first request. */
int engine_share(struct pst_queue *q, const struct mem_ops *ops, unsigned device,
		 struct share **ret);

void engine_unshare(struct share *s);

#endif
