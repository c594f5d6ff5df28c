/* SPDX-License-Identifier: MIT */
/*
 * The data that ways keep for each request and each queue, stored after the request and the queue.
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
	uint8_t dev;         /* device hop: the first listed one that can serve, STAGED without a
			    * list, or 0 for host memory */
	uint16_t asks;       /* bits of path_list: paths whose choose() is called */
	bool unaligned;      /* an unaligned write, of which O_DIRECT moves nothing */
	uint32_t off_mask;   /* bits that must be 0 in offsets and lengths, if the first hop must
			      * move all bytes in whole blocks */
	uint32_t mem_mask;   /* bits that must be 0 in host addresses, likewise */
	bool restage;        /* the engine moves the request if the caller's parts do not move all
			    * of it */
	bool listed;         /* the caller listed the hops, so skipping CACHED is a `why' */
	bool ahead;          /* the kernel reads ahead: use the page cache and not O_DIRECT */
	bool source_now;     /* the caller listed the path of the source */
	bool staged;         /* the pool may be used; false if device hops are listed without
			    * STAGED */
	struct source *from; /* source from which the device copies by itself, or NULL; source.h */
	bool left;           /* pieces moves no more of the request */
	const struct path_pieces *pieces; /* the path that moves some pieces without slots, or
					   * NULL */
	void *pieces_by;                  /* data of that path for the request */
	uint32_t why;                     /* the reason, if known before the first byte moves */
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

/* The data of a request.  The engine's lock covers the plan while an engine holds the request, else
 * the queue's lock. */
struct way {
	struct plan plan;
	char *bounce;         /* buffer into which the path loaded a small write's bytes, or NULL */
	struct hold *hold;    /* what the path keeps open for the next part, or NULL */
	bool later;           /* the path's memory is in use now: ask again */
	bool single;          /* counted among the reads that callers copy; single_end() must be
			       * called */
	atomic_bool compared; /* a part of the request was compared, or is being compared */
};

struct way_req {
	struct req req;
	struct way way;
};

/* Reads that may be sequential in a file. */
struct run {
	uint64_t key; /* hash of the file and of the end of the last read */
	int nr;       /* consecutive reads, up to a maximum; below 0: too many were in flight */
	bool found;   /* used since the entry was last considered for replacement */
};

/* The data of a queue. */
struct way_queue {
	struct pst_queue q;
	struct plan_memo memo;
	struct run runs[QUEUE_RUNS]; /* no pointer, because every small read looks at the entries */
	unsigned run_turn;           /* the entry to be replaced next */
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
 * Return true if the CPU may use the addresses of the request's file operations.  The library's
 * memory stays, and shared memory is sealed; a wrap may be unmapped, so only the kernel touches it.
 */
static inline bool req_stays(const struct req *r)
{
	return req_mem(r)->region->alloc->owned || req_way(r)->bounce;
}

/* -------------------------------------------------- asked of the rooms above */

/*
 * single.c: decide whether the caller should copy the read, which is alone in its queue.  If so,
 * the read is counted until single_end(), which does nothing for any other request.
 */
bool single_begin(struct req *r);
void single_end(struct req *r);

#endif
