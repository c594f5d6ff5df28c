/* SPDX-License-Identifier: MIT */
/*
 * A queue has a share of an engine for each device that it uses.
 */
#ifndef PST_SHARE_H
#define PST_SHARE_H

#include "file/disk.h"
#include "core/ways/way.h"

#define SLOT_RESERVED 2u /* slots that every queue is sure of */

/* The checksum of a range of a request, in piece order. */
struct crc_range {
	uint64_t pos, len;
	uint32_t crc;
};

/*
 * An engine keeps this of a request.  The engine's lock covers it.
 */
struct req_engine {
	struct share *share;
	struct list active;  /* engine's list of requests with something to start */
	struct order *order; /* with the stream that it names, or NULL */
	struct feed *feed;   /* of a read that the stream waits for, or NULL */
	struct list feeds;   /* engine's list of those */
	bool handed_back;
	bool counted;            /* in engine->nr_reqs */
	bool dead;               /* its completion went out: nobody takes results any more */
	unsigned nr_jobs;        /* in flight */
	atomic_uint nr_building; /* of these; a worker looks at their segments without the lock */
	struct list jobs;        /* of these, those with a slot */
	unsigned nr_touch;       /* jobs whose copies may touch the memory now */
	unsigned nr_file;        /* jobs whose file operations are in flight */
	struct transfer *redo;   /* not moved without slots: to be staged */
	struct crc_range *crcs;  /* checksums of jobs, in any order */
	unsigned nr_crcs, max_crcs;
};

struct engine_req {
	struct way_req base;
	struct req_engine eng;
};

struct engine_queue {
	struct way_queue base;
	struct list shares;   /* of engines */
	struct order *orders; /* of the pst_queue_submit() under way */
};

static inline struct req_engine *req_engine(const struct req *r)
{
	return &container_of(r, struct engine_req, base.req)->eng;
}

static inline struct engine_queue *queue_engine(const struct pst_queue *q)
{
	return container_of(q, struct engine_queue, base.q);
}

/* The request that is on a list by that link of its eng. */
#define req_by_link(el, link) (&list_entry(el, struct engine_req, eng.link)->base.req)

/* A queue's part of an engine. */
struct share {
	struct list link; /* of its queue */
	struct engine *engine;
	/* 0, or why the engine was made without rings: a positive errno. */
	_Atomic int ring_err;
	/* The engine's lock covers all below, but fresh and fresh_end. */
	unsigned nr_slots;          /* slots in use */
	unsigned nr_copying;        /* jobs at the copier */
	uint64_t slotted;           /* bytes in slots of bounded jobs at the copier */
	uint64_t disk_bytes[DISKS]; /* its part of those in engine->disks */
	struct list parked[DISKS];  /* requests that wait until that has less to read; then it is */
	struct list parking;        /* on the engine's list of these */
	uint64_t less_since;        /* they are less than its part, 0: they were not */
	struct req *fresh; /* of the pst_queue_submit() under way, that the engine is to get */
	struct req **fresh_end;
};

#endif
