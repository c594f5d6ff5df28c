/* SPDX-License-Identifier: MIT */
/* Limits on the bytes that a disk reads at a time (disks.c).  Callers hold the engine's lock. */
#ifndef PST_DISKS_H
#define PST_DISKS_H

#include "core/sched/engine.h"

/*
 * Return true if the request's disk has enough to read (disk.h) and the request's queue has its
 * share of those bytes.  A job counts until the device has copied its bytes, although the disk
 * finishes earlier: so the jobs of a disk occupy few slots, and later reads reuse them.
 */
bool disk_is_busy(const struct req *r);
/* Count the job's bytes as being read from its disk, if it reads from one. */
void disk_begin(struct job *j);
/* Stop counting the job: it does not use the disk, has ended, or was stopped. */
void disk_end(struct job *j);
/* Make a worker check the disks again soon, even if a read hangs. */
void disks_look_soon(struct engine *e);
/* Park the request until its disk may read more, so that workers skip it until then. */
void disk_park(struct req *r);
/* Let one parked request start; queues take turns.  Return false if no parked request may start. */
bool disks_unpark(struct engine *e);

#endif
