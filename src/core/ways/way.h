/* SPDX-License-Identifier: MIT */
/*
 * The data that paths keep for each request and each queue, stored after the request and the queue.
 */
#ifndef PST_WAY_H
#define PST_WAY_H

#include <stdatomic.h>

#include "core/queue/queue.h"
#include "core/queue/req.h"

#define PAGE UINT64_C(4096) /* the unit of O_DIRECT writes, see fit_middle() in direct.c */
#define HOPS_MAX 3u
#define QUEUE_RUNS 16u

/* The plan of a request; plan.h. */
struct plan {
	uint8_t hop[HOPS_MAX]; /* file hops in order of preference, enum pst_path */
	uint8_t nr_hops;
	uint8_t dev;         /* device path: the first listed one that can serve, the default one
			      * without a list, or 0 for host memory */
	uint16_t asks;       /* bit set of path_list indexes: paths whose choose() is called */
	bool unaligned;      /* an unaligned write, which O_DIRECT does not move */
	uint32_t off_mask;   /* bits that must be 0 in offsets and lengths, because the first hop
			      * must move all bytes in whole blocks */
	uint32_t mem_mask;   /* bits that must be 0 in host addresses, for the same reason as in
			      * off_mask */
	bool restage;        /* if the caller's thread cannot move all bytes, the engine moves the
			      * request instead */
	bool listed;         /* the caller listed file hops, so skipping CACHED is a reason */
	bool ahead;          /* use the kernel's read-ahead, and not O_DIRECT */
	bool source_now;     /* the caller listed the path of from: make its bytes ready at once */
	bool staged;         /* slots may be used; false if the caller lists device paths without
			      * STAGED */
	struct source *from; /* bytes that the device copies without a slot, or NULL; source.h */
	bool left;           /* the path of @pieces moves nothing more of the request */
	const struct path_pieces *pieces; /* a path that moves some pieces without slots, or NULL */
	void *pieces_by;                  /* data of the path in @pieces for this request */
	uint32_t why;                     /* PST_WHY_* if known before the first byte moves */
	int detail;
};

/* A queue's last plan, and the kind of requests for which it was made. */
struct plan_memo {
	const struct pst_file *file;
	const struct mem_ops *ops;
	unsigned device;
	uint32_t op, flags;
	uint64_t policy;
	uint32_t epoch;
	struct plan plan;
};

/* The path's data of a request.  The engine's lock covers the plan while an engine holds the
 * request, else the queue's lock. */
struct way {
	struct plan plan;
	char *bounce;         /* buffer with the bytes of a small write that were loaded through a
			       * window, or NULL */
	struct hold *hold;    /* resource that the path keeps open for the next part, or NULL */
	bool later;           /* the memory is in use now: call reach() again */
	bool single;          /* counted as a read that its caller copies, so single_end() must be
			       * called */
	atomic_bool compared; /* a part of the request was compared, or is being compared */
};

struct way_req {
	struct req req;
	struct way way;
};

/* A run of reads that may be sequential in a file. */
struct run {
	uint64_t key; /* address of the file plus the end offset of the run's last read */
	int nr;       /* consecutive reads, up to RUN_MAX; below 0: too many bytes were in flight */
	bool found;   /* a read continued the run since the run's last turn for replacement */
};

/* The paths' data of a queue. */
struct way_queue {
	struct pst_queue q;
	struct plan_memo memo;
	struct run runs[QUEUE_RUNS]; /* embedded, because every small read looks at the entries */
	unsigned run_turn;           /* counter whose value modulo QUEUE_RUNS is the entry to
				      * replace next */
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
 * Return true if the CPU may use the addresses of the request's file operations.  Memory of the
 * library stays mapped, and shared memory is sealed.  Wrapped memory may be unmapped, so only the
 * kernel touches it.
 */
static inline bool req_stays(const struct req *r)
{
	return req_mem(r)->region->alloc->owned || req_way(r)->bounce;
}

/* ------------------------------------------------- defined in core/sched */

/*
 * single.c: decide whether the caller should copy the read, which is alone in its queue.  Return
 * true if so: the engine then counts the read in nr_single until single_end().  For any other
 * request, single_end() does nothing.
 */
bool single_begin(struct req *r);
void single_end(struct req *r);

#endif
