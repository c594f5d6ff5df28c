/* SPDX-License-Identifier: MIT */
/*
 * Do other threads want the CPUs of an engine's workers (crowd.c)?
 *
 * A worker that is interrupted keeps the slot it fills, and batches that ended wait until one runs
 * again.  The others go on into more and more slots, until these are in no CPU's cache any more,
 * and every copy takes longer.  So fewer slots wait for the device then.
 */
#ifndef PST_CROWD_H
#define PST_CROWD_H

#include <stdatomic.h>

#include "base/base.h"

struct engine;

/* Of an engine. */
struct crowd {
	atomic_bool here;
	_Atomic uint64_t since; /* seen last */
};

/* What a worker knows of its own thread, from its last look on. */
struct crowd_look {
	unsigned nr_jobs;     /* begun since */
	uint64_t nr_switches; /* times that it was interrupted, ever, */
	uint64_t cpu_ns;      /* and how long it has run */
};

/* A worker's thread begins a job: once in a while it looks whether it was interrupted. */
void crowd_look(struct crowd *c, struct crowd_look *look);
/* Under the engine's lock: is there a crowd, and do so many slots wait for the device that reads
 * take no more? */
bool crowd_has_enough(const struct engine *e);

#endif
