/* SPDX-License-Identifier: MIT */
/* A queue has one share of an engine for each device that it uses. */
#ifndef PST_SHARE_H
#define PST_SHARE_H

#include "file/disk.h"
#include "core/ways/way.h"

#define SLOT_RESERVED 2u /* slots reserved for every queue */

/* Checksum of a range of a request, bytes in piece order. */
struct crc_range {
	uint64_t pos, len;
	uint32_t crc;
};

/* The data that an engine keeps for a request.  The engine's lock covers it. */
struct req_engine {
	struct share *share;
	struct list active;  /* on the engine's list of requests with something to start */
	struct order *order; /* what waits for the request's stream, or NULL */
	struct feed *feed;   /* the feed of a read that a stream waits for, or NULL */
	struct list feeds;   /* on engine->feeds */
	bool handed_back;
	bool counted;            /* counted in engine->nr_reqs */
	bool dead;               /* the request has completed, so drop results */
	unsigned nr_jobs;        /* jobs in flight */
	atomic_uint nr_building; /* jobs whose segments a worker reads without the lock */
	struct list jobs;        /* jobs with a slot */
	unsigned nr_touch;       /* jobs whose copies may touch device memory */
	unsigned nr_file;        /* jobs whose file operations are in flight */
	struct transfer *redo;   /* transfers that moved no byte, whose pieces must be staged */
	struct crc_range *crcs;  /* checksums of the request's jobs, in any order */
	unsigned nr_crcs, max_crcs;
	bool crcs_lost;    /* an element of crcs is missing, for lack of memory */
	struct list check; /* on the engine's list of requests that wait for a check */
	bool checked;      /* a check has begun, or the request waits for one */
	bool verified;     /* the check has compared all pieces and found no difference */
	bool has_crc;      /* the check has set res.crc */
};

struct engine_req {
	struct way_req base;
	struct req_engine eng;
};

struct engine_queue {
	struct way_queue base;
	struct list shares;   /* the queue's shares of engines */
	struct order *orders; /* orders that the current pst_queue_submit() created */
};

static inline struct req_engine *req_engine(const struct req *r)
{
	return &container_of(r, struct engine_req, base.req)->eng;
}

static inline struct engine_queue *queue_engine(const struct pst_queue *q)
{
	return container_of(q, struct engine_queue, base.q);
}

/* Return the request that contains list element el as member eng.link. */
#define req_by_link(el, link) (&list_entry(el, struct engine_req, eng.link)->base.req)

/* A queue's share of an engine. */
struct share {
	struct list link; /* on the list of the share's queue */
	struct engine *engine;
	/* 0, or the positive errno that made threads replace the engine's io_uring */
	_Atomic int ring_err;
	/* The engine's lock covers the members below, except fresh and fresh_end. */
	unsigned nr_slots;          /* slots that the queue's jobs use */
	unsigned nr_copying;        /* the queue's jobs at the copier */
	uint64_t slotted;           /* the queue's part of engine->slotted, bytes */
	uint64_t disk_bytes[DISKS]; /* the queue's part of engine->disks[].bytes */
	struct list parked[DISKS];  /* requests that wait until their disk has less to read */
	struct list parking;        /* on the engine's list of shares with parked requests */
	uint64_t less_since;        /* CLOCK_MONOTONIC ns at which the queue fell below its part
				     * of the jobs at the copier; 0: the queue has its part */
	struct req *fresh; /* list of requests of the current pst_queue_submit() that the engine did
			    * not get yet */
	struct req **fresh_end;
};

#endif
