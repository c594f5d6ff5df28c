/* SPDX-License-Identifier: MIT */
/*
 * Threads that read files for waiting streams (feeder.c).
 */
#ifndef PST_FEEDER_H
#define PST_FEEDER_H

#include "core/sched/engine.h"

/* Create what reads that a stream waits for need: slots, threads, the clock.  Return 0 or
 * -errno. */
int feed_prepare(struct share *s);
/* End these threads. */
void feeders_done(struct engine *e);

#endif
