/* SPDX-License-Identifier: MIT */
/*
 * A queue has a share of an engine for each device that it uses.
 */
#ifndef PST_SHARE_H
#define PST_SHARE_H

#include "file/disk.h"
#include "core/queue/req.h"

#define SLOT_RESERVED 2u /* slots that every queue is sure of */

/* A queue's part of an engine. */
struct share {
	struct list link; /* q->shares */
	struct engine *engine;
	int ring_err; /* 0, or why the engine was made without rings: a positive errno */
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

/* The engines get what pst_queue_submit() has started for them so far. */
void engines_flush(struct pst_queue *q);
/* Why threads stand in for the engine's rings: a positive errno, or 0. */
int share_ring_err(const struct share *s);
/* The queue's share of the engine that serves the device; made at the first request. */
int engine_share(struct pst_queue *q, const struct mem_ops *ops, unsigned device,
		 struct share **ret);
void engine_unshare(struct share *s);
/*
 * lone.c: should the caller copy the read by itself, which is alone in its queue?  If so, it counts
 * as one that does until lone_end(); that does nothing for any other request.
 */
bool lone_begin(struct req *r);
void lone_end(struct req *r);
/* The clock looks after requests of the share with streams from now on: 0, or -EAGAIN without a
 * thread. */
int engine_clock(struct share *s);
/* Have what reads need that a stream waits for: slots, threads, the clock.  0 or -errno. */
int feed_prepare(struct share *s);
/*
 * In the thread that submits: begin the read, and put its copies on the stream that it names.  0 or
 * -errno with a sentence.
 */
int feed_begin(struct req *r);
/* The read is over, or never began. */
void feed_over(struct req *r);
/*
 * Before its engine gets it, in the thread that submits: record an event on the stream that the
 * request names.  0 or -errno with a sentence.
 */
int order_begin(struct req *r);
/* pst_queue_submit() has started all that it had. */
void order_submitted(struct pst_queue *q);
/* The request is over, or never got to an engine. */
void order_end(struct req *r);

#endif
