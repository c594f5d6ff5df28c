/* SPDX-License-Identifier: MIT */
/*
 * The device copies of an engine's reads.
 *
 * A device takes some microseconds to begin with a copy and to say that it is done, however long
 * the copy is.  So filled slots are not copied one by one: they wait while COPIER_BATCHES batches
 * are under way, and then go together as the next batch, on the one stream of the engine.  A slot
 * that finds the device idle goes at once.  A batch is not so large that most slots, or most of a
 * queue's requests, are under way with the device, and workers have nothing to fill.
 *
 * There is no thread for it.  Whoever has filled a slot, or looks for the end of one, does what
 * there is to do (copier_progress()), one thread at a time.  Others go on with their own work
 * meanwhile.
 */
#ifndef PST_COPIER_H
#define PST_COPIER_H

#include "core/sched/engine.h"

int copier_init(struct engine *e);
void copier_done(struct engine *e);

/* End what the device has copied, and start what waits; true when something moved. */
bool copier_progress(struct worker *w);

#endif
