/* SPDX-License-Identifier: MIT */
/*
 * Do other threads want the CPUs of an engine's workers (contention.c)?
 *
 * A worker that is interrupted keeps the slot it fills, and batches that ended wait until one runs
 * again.  The others go on into more and more slots, until these are in no CPU's cache any more,
 * and every copy takes longer.  So fewer bytes wait in slots for the device then.
 *
 * That holds for reads of what memory has, whose slots a CPU fills, and the bytes of other requests
 * do not count.  The bytes wait for nothing but the device, and a queue with less than its part of
 * them goes on, so nothing that hangs keeps others waiting.
 */
#ifndef PST_CONTENTION_H
#define PST_CONTENTION_H

#include "core/sched/engine.h"

/* A worker's thread begins a job: once in a while it looks whether it was interrupted. */
void contention_check(struct contention *c, struct contention_check *look);
/* Does a CPU fill the request's slots, from memory? */
bool contention_limits(const struct req *r);
/* Under the engine's lock: is there a contention, and has the read's queue enough bytes in slots that
 * wait for the device? */
bool contention_has_enough(const struct req *r);

#endif
