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

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "mem/mem.h"

#define COPIER_BATCHES 2u   /* one is copied, and one waits so that the device does not */
#define COPIER_PIECES 1024u /* of a batch without lists */
#define COPIER_BYTES MIB(8) /* of a batch; more where one slot has more */

struct engine;
struct job;
struct worker;

struct batch {
	struct list jobs;
	uint64_t ticket;
};

struct copier {
	pthread_mutex_t lock; /* taken before the engine's; of everything up to v */
	struct mem_stream *stream;
	struct batch batches[COPIER_BATCHES]; /* under way, in order from first on */
	unsigned first, nr_batches;
	bool full; /* the stream has no room until a batch ends */
	struct mem_copy v[COPIER_PIECES];
	struct mem_sgl sgls[MEM_SGLS];

	struct list filled; /* jobs that wait; under the engine's lock */
	atomic_uint nr_filled;
	atomic_uint nr;            /* of jobs, with those of batches, */
	atomic_uint nr_warm;       /* and of warm ones */
	_Atomic uint64_t nr_bytes; /* in these */
	_Atomic uint64_t moved_at; /* when a batch last began or ended, or the first job came */
};

int copier_init(struct engine *e);
void copier_done(struct engine *e);

/* Under the engine's lock: the job's bytes are in its slot, or its device can copy them from their
 * source. */
void copier_add(struct engine *e, struct job *j);

/* End what the device has copied, and start what waits; true when something moved. */
bool copier_progress(struct worker *w);

#endif
