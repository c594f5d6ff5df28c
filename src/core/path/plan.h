/* SPDX-License-Identifier: MIT */
/*
 * How a request is going to run (plan.c).
 *
 * req_start() has a plan made by plan_make(), out of the table of paths (path.h).  plan_make()
 * gives a request the queue's last plan if that was made for the same kind of request.  Then the
 * paths whose choose() the plan names look at the request itself: its size, its bytes in the page
 * cache, where reads before it ended.
 *
 * A plan changes later where a path does not work out.  restage() in caller.c stages a read that
 * was not resident.  give_up() in engine/transfer.c sends the rest to slots.  Which file hops are
 * left is each part's own (part.h).
 */
#ifndef PST_PLAN_H
#define PST_PLAN_H

#include <penstock.h>

#include "core/queue/object.h"

#define PAGE UINT64_C(4096) /* unit of O_DIRECT writes; see fit_middle() in direct.c */
#define HOPS_MAX 3u

struct plan {
	uint8_t hop[HOPS_MAX]; /* file hops in order of preference, enum pst_path */
	uint8_t nr_hops;
	uint8_t dev;       /* device hop: the first listed that serves, or STAGED without a
				* list of them; 0 for host memory */
	uint16_t asks;     /* bits of path_list: paths that choose when a request begins */
	bool unaligned;    /* a write that is not aligned: O_DIRECT moves nothing of it */
	uint32_t off_mask; /* its first hop has to move all of it, and moves whole blocks: bits */
	uint32_t mem_mask; /* that are 0 in offsets and lengths, and in addresses of host memory */
	bool restage;      /* by the engine after all, if the caller's parts do not move all */
	bool listed;       /* by the caller: skipping CACHED is worth a `why' */
	bool ahead;        /* the kernel reads ahead for it: the page cache, and no O_DIRECT */
	bool source_now;   /* the caller listed the path of the source */
	bool staged;       /* the pool may be used; false: device hops are listed, not STAGED */
	struct source *from; /* from which a device copies by itself, or NULL; source.h */
	bool left;           /* the path of pieces moves no more of them */
	const struct path_pieces *pieces; /* of the path that moves some without slots, or NULL */
	void *pieces_by;                  /* which that path keeps for the request */
	uint32_t why;                     /* known before the first byte moves */
	int detail;
};

/* A queue's last plan, and the requests that it was made for. */
struct plan_memo {
	const struct pst_file *file;
	const struct mem_ops *ops;
	unsigned device;
	uint32_t op, flags;
	uint64_t policy;
	uint32_t epoch;
	struct plan plan;
};

struct req;

/* 0, or -EOPNOTSUPP with a sentence and req's why and detail set. */
int plan_make(struct req *req);

/* The plan that the queue keeps, if it is one for this read into host memory, wherever its bytes
 * lie; else NULL. */
const struct plan *plan_of_read(const struct pst_queue *q, const struct pst_io *io);

/* The first reason stays. */
void plan_reason(struct plan *p, uint32_t why, int detail);
/* May wrong data in a proof of this request be held against the path?  Not if its own pieces may
 * overlap.  Called while the caller's segments are there; r->can_judge keeps the answer. */
bool plan_can_judge(const struct req *r);
/* Where the plain bytes of a proof can be read from, or NULL. */
struct file *plan_reader(const struct pst_file *f);

#endif
