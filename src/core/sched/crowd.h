/* SPDX-License-Identifier: MIT */
/*
 * Do other threads want the CPUs of an engine's workers (crowd.c)?
 *
 * A worker that is interrupted keeps the slot it fills, and batches that ended wait until one runs
 * again.  The others go on into more and more slots, until these are in no CPU's cache any more,
 * and every copy takes longer.  So fewer bytes wait in slots for the device then.
 *
 * That holds for reads of what memory has, whose slots a CPU fills, and the bytes of other requests
 * do not count.  The bytes wait for nothing but the device, and a queue with less than its part of
 * them goes on, so nothing that hangs keeps others waiting.
 */
#ifndef PST_CROWD_H
#define PST_CROWD_H

#include "core/sched/engine.h"

/* A worker's thread begins a job: once in a while it looks whether it was interrupted. */
void crowd_look(struct crowd *c, struct crowd_look *look);
/* Does a CPU fill the request's slots, from memory? */
bool crowd_bounds(const struct req *r);
/* Under the engine's lock: is there a crowd, and has the read's queue enough bytes in slots that
 * wait for the device? */
bool crowd_has_enough(const struct req *r);

#endif
