/* SPDX-License-Identifier: MIT */
/*
 * Disks that have enough to read (disks.c).  Callers hold the engine's lock.
 */
#ifndef PST_DISKS_H
#define PST_DISKS_H

#include "core/sched/engine.h"

/*
 * Has the request's disk enough to read (disk.h)?  Queues with less than their part of that go on.
 *
 * A job counts until the device has copied its bytes, though the disk is through with it before.
 * So the slots of a disk's jobs are few, and the next reads go to the same ones.
 */
bool disk_is_busy(const struct req *r);
/* The job reads from its disk from now on, if it does. */
void disk_begin(struct job *j);
/* The disk does nothing for the job, the job is over, or nobody waits for it any more. */
void disk_end(struct job *j);
/* Somebody looks again before long, though what is read hangs. */
void disks_look_soon(struct engine *e);
/* The request waits for its disk.  Those that do are not looked at one by one each time. */
void disk_park(struct req *r);
/* One request that is parked may start something now: queues take turns.  False: none may. */
bool disks_unpark(struct engine *e);

#endif
