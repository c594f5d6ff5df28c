/* SPDX-License-Identifier: MIT */
/*
 * The device copies of an engine's reads.
 *
 * A device takes some microseconds to start a copy and to report its end, however short the copy
 * is.  So filled slots are not copied one by one.  They wait while COPIER_BATCHES batches are in
 * flight, and then start together as the next batch, on the engine's only stream.  A slot that
 * finds the device idle starts at once.  The size of a batch is limited, so that most slots, or
 * most of a queue's requests, are not in one batch while workers have nothing to fill.
 *
 * The copier has no thread.  Threads that fill slots, or wait for copies, call copier_progress(),
 * which one thread at a time executes.  Other callers return at once.
 */
#ifndef PST_COPIER_H
#define PST_COPIER_H

#include "core/sched/engine.h"

int copier_init(struct engine *e);
void copier_done(struct engine *e);

/* End copies that the device has finished, and start the next batches.  Return true if anything
 * changed. */
bool copier_progress(struct worker *w);

#endif
