/* SPDX-License-Identifier: MIT */
/*
 * What ways keep of each request and of each queue, behind the request and the queue.
 */
#ifndef PST_WAY_H
#define PST_WAY_H

#include <stdatomic.h>

#include "core/queue/queue.h"
#include "core/queue/req.h"

#define PAGE UINT64_C(4096) /* unit of O_DIRECT writes; see fit_middle() in direct.c */
#define HOPS_MAX 3u
#define QUEUE_RUNS 16u

/* How a request is going to run; plan.h. */
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

/* Of a request.  While an engine has it, the engine's lock covers the plan, else the queue's. */
struct way {
	struct plan plan;
	char *bounce;         /* buffer of a small write's bytes, that its path loaded, or NULL */
	struct hold *hold;    /* kept open by its path for its next part, or NULL */
	bool single;          /* counted among the reads that callers copy: single_end() is due */
	atomic_bool compared; /* a part of it was, or is being */
};

struct way_req {
	struct req req;
	struct way way;
};

/* Reads that may be going front to back through a file. */
struct run {
	uint64_t key; /* of the file, and where the last one ended */
	int nr;       /* in a row, up to a maximum; below 0: too many were in flight */
	bool found;   /* since its place was last asked for */
};

/* Of a queue. */
struct way_queue {
	struct pst_queue q;
	struct plan_memo memo;
	struct run runs[QUEUE_RUNS]; /* a member, because every small read looks at them */
	unsigned run_turn;           /* the place to be taken next */
};

static inline struct way *req_way(const struct req *r)
{
	return &container_of(r, struct way_req, req)->way;
}

static inline struct plan *req_plan(const struct req *r)
{
	return &req_way(r)->plan;
}

static inline struct way_queue *queue_way(const struct pst_queue *q)
{
	return container_of(q, struct way_queue, q);
}

/*
 * May the CPU follow addresses that the request's file operations use?  Memory of ours stays, and
 * shared memory is sealed; a wrap may vanish, so only the kernel touches it.
 */
static inline bool req_stays(const struct req *r)
{
	return req_mem(r)->region->alloc->owned || req_way(r)->bounce;
}

/* -------------------------------------------------- asked of the rooms above */

/*
 * single.c: should the caller copy the read by itself, which is alone in its queue?  If so, it counts
 * as one that does until single_end(); that does nothing for any other request.
 */
bool single_begin(struct req *r);
void single_end(struct req *r);

#endif
