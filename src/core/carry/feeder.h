/* SPDX-License-Identifier: MIT */
/* Feeders: threads that read files for reads that a stream waits for (feeder.c). */
#ifndef PST_FEEDER_H
#define PST_FEEDER_H

#include "core/sched/engine.h"

/* Create the slots, threads and clock for reads that a stream waits for.  Return 0 or -errno. */
int feed_prepare(struct share *s);
/* End the feeders of an engine. */
void feeders_done(struct engine *e);

#endif
