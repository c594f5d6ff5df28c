/* SPDX-License-Identifier: MIT */
/*
 * Contention for the CPUs of an engine's workers (contention.c).
 *
 * A worker that is interrupted keeps the slot that it fills, and batches that have ended wait until
 * a worker runs again.  The other workers use more and more slots, until no CPU's cache holds them
 * and every copy takes longer.  So under contention fewer bytes may wait in slots for the device.
 *
 * The limit applies only to reads whose slots a CPU fills from memory.  The bytes of such reads
 * wait for nothing but the device, and a queue below its share continues, so a hanging file blocks
 * no other request.
 */
#ifndef PST_CONTENTION_H
#define PST_CONTENTION_H

#include "core/sched/engine.h"

/* Check, every few jobs, whether the thread was interrupted.  Called when a worker begins a job. */
void contention_check(struct contention *c, struct contention_check *look);
/* Return true if a CPU fills the request's slots from memory. */
bool contention_limits(const struct req *r);
/* Return true under contention if the read's queue has enough bytes in slots that wait for the
 * device; under the engine's lock. */
bool contention_has_enough(const struct req *r);

#endif
