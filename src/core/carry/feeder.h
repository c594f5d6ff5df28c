/* SPDX-License-Identifier: MIT */
/*
 * Threads that read files for the streams that wait (feeder.c).
 */
#ifndef PST_FEEDER_H
#define PST_FEEDER_H

#include "core/sched/engine.h"

/* Have what reads need that a stream waits for: slots, threads, the clock.  0 or -errno. */
int feed_prepare(struct share *s);
/* The end of these threads. */
void feeders_done(struct engine *e);

#endif
