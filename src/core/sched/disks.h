/* SPDX-License-Identifier: MIT */
/*
 * Limits of what a disk reads at a time (disks.c).  Callers hold the engine's lock.
 */
#ifndef PST_DISKS_H
#define PST_DISKS_H

#include "core/sched/engine.h"

/*
 * Return true if the request's disk has enough to read (disk.h) and the request's queue has its
 * share of that.  A job counts until the device has copied its bytes, although the disk ends
 * earlier, so the jobs of a disk use few slots and the next reads use the same ones.
 */
bool disk_is_busy(const struct req *r);
/* Count the job as reading from its disk, if it does. */
void disk_begin(struct job *j);
/* Uncount the job: the disk is not used, the job is over, or nobody waits for it. */
void disk_end(struct job *j);
/* Make sure that the disks are checked again soon, even if a read hangs. */
void disks_look_soon(struct engine *e);
/* Park the request until its disk may read more.  Parked requests are not checked one by one each
 * time. */
void disk_park(struct req *r);
/* Let one parked request start; queues take turns.  Return false if none may. */
bool disks_unpark(struct engine *e);

#endif
