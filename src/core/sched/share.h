/* SPDX-License-Identifier: MIT */
/*
 * A queue has a share of an engine for each device that it uses.
 */
#ifndef PST_SHARE_H
#define PST_SHARE_H

#include "file/disk.h"
#include "core/ways/way.h"

#define SLOT_RESERVED 2u /* slots reserved for every queue */

/* Checksum of a range of a request, in piece order. */
struct crc_range {
	uint64_t pos, len;
	uint32_t crc;
};

/*
 * The data that an engine keeps for a request, covered by the engine's lock.
 */
struct req_engine {
	struct share *share;
	struct list active;  /* on the engine's list of requests with something to start */
	struct order *order; /* order after the stream that the request names, or NULL */
	struct feed *feed;   /* feed of a read that the stream waits for, or NULL */
	struct list feeds;   /* on the engine's list of feeds */
	bool handed_back;
	bool counted;            /* counted in engine->nr_reqs */
	bool dead;               /* the request has completed, so results are dropped */
	unsigned nr_jobs;        /* jobs in flight */
	atomic_uint nr_building; /* jobs whose segments a worker reads without the lock */
	struct list jobs;        /* jobs with a slot */
	unsigned nr_touch;       /* jobs whose copies may touch the memory */
	unsigned nr_file;        /* jobs whose file operations are in flight */
	struct transfer *redo;   /* transfers that moved nothing and must be staged */
	struct crc_range *crcs;  /* checksums of its jobs, in any order */
	unsigned nr_crcs, max_crcs;
	bool crcs_lost;    /* there was no memory for one of them */
	struct list check; /* on the engine's list of requests that wait for a check */
	bool checked;      /* a check was begun, or is waited for */
	bool verified;     /* the check has compared all pieces, and none differs */
	bool has_crc;      /* the check has set res.crc */
};

struct engine_req {
	struct way_req base;
	struct req_engine eng;
};

struct engine_queue {
	struct way_queue base;
	struct list shares;   /* shares of engines */
	struct order *orders; /* orders of the current pst_queue_submit() */
};

static inline struct req_engine *req_engine(const struct req *r)
{
	return &container_of(r, struct engine_req, base.req)->eng;
}

static inline struct engine_queue *queue_engine(const struct pst_queue *q)
{
	return container_of(q, struct engine_queue, base.q);
}

/* Return the request that is on a list by that link of its eng member. */
#define req_by_link(el, link) (&list_entry(el, struct engine_req, eng.link)->base.req)

/* A queue's share of an engine. */
struct share {
	struct list link; /* on the list of its queue */
	struct engine *engine;
	/* 0, or the positive errno because of which the engine has no io_uring */
	_Atomic int ring_err;
	/* The engine's lock covers all below, except fresh and fresh_end. */
	unsigned nr_slots;          /* slots in use */
	unsigned nr_copying;        /* jobs at the copier */
	uint64_t slotted;           /* bytes in slots of its jobs at the copier that are limited
				     * under contention */
	uint64_t disk_bytes[DISKS]; /* its part of the bytes in engine->disks */
	struct list parked[DISKS];  /* requests that wait until their disk has less to read */
	struct list parking;        /* on the engine's list of shares with parked requests */
	uint64_t less_since;        /* since when the share has had less than its part at the
				     * copier; 0: it has its part */
	struct req *fresh; /* requests of the current pst_queue_submit() that the engine gets
			    * next */
	struct req **fresh_end;
};

#endif
