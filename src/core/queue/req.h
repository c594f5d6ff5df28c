/* SPDX-License-Identifier: MIT */
/*
 * One request, from pst_queue_prep() to the moment when nothing of it is under way.
 */
#ifndef PST_REQ_H
#define PST_REQ_H

#include <stdatomic.h>

#include <penstock.h>

#include "core/path/plan.h"
#include "core/queue/cursor.h"
#include "core/queue/object.h"

/* The checksum of a range of a request, in piece order. */
struct crc_range {
	uint64_t pos, len;
	uint32_t crc;
};

enum req_state {
	REQ_FREE,
	REQ_PREPARED, /* q->prepared */
	REQ_HELD,     /* a sync behind writes: q->held */
	REQ_ACTIVE,   /* parts or jobs are under way or still to start */
	REQ_PROVING,  /* its data is compared before it completes */
	REQ_DONE,     /* q->done, waiting for pst_queue_reap() */
	REQ_BUSY,     /* reaped, but something of it is still under way: q->busy */
};

/*
 * The queue's lock covers all members but those of the engine.  While an engine
 * has the request, its lock covers plan, cur, stop and end_err.
 */
struct req {
	struct list link; /* on the list that state names */
	struct list all;  /* q->inflight from submit to the end */
	struct req *next; /* on q->finished */
	struct pst_queue *q;
	struct pst_io io;
	struct pst_seg seg; /* the inline piece */
	struct use *mem_use, *file_use;
	struct plan plan;
	struct cursor cur; /* what has not been started */
	bool one_piece;    /* it has a single piece, so nothing of it follows the end of the file */
	uint64_t total;    /* bytes in all pieces */
	uint64_t deadline;
	uint64_t seq; /* order of submission */
	enum req_state state;
	bool started;        /* counted in q->nr_writes */
	_Atomic int end_err; /* what an early end means: ETIMEDOUT or ECANCELED */
	bool stop;           /* start nothing more for it */
	bool ended;          /* its completion went out before it was quiet */

	/* parts.c, under the queue's lock */
	unsigned nr_parts; /* in flight */
	struct list parts; /* these, and those about to be */
	uint64_t edge_pos; /* of the first edge left for the second pass; UINT64_MAX */
	bool starting;     /* more parts may come in this call: not ended by one */
	bool second;       /* in the second pass */
	bool left;         /* the engine has to do it; see small.c */
	char *bounce;      /* buffer of a small write's bytes, loaded through a window, or NULL */
	struct cached_window *cached_window; /* whose window its next part will use, or NULL */

	/* sync, under the queue's lock */
	unsigned nr_before; /* writes that must complete first */
	bool sync_started;

	/* engine, under its lock */
	struct share *share;
	struct list active;         /* engine's list of requests with something to start */
	struct order *order;        /* with the stream that it names, or NULL */
	struct list behind_barrier; /* engine's list of reads that keep a stream waiting */
	uint64_t barrier_until;     /* when that has to end */
	bool handed_back;
	bool dead;              /* its completion went out: nobody takes results any more */
	unsigned nr_jobs;       /* in flight */
	struct list jobs;       /* of these, those with a slot */
	unsigned nr_touch;      /* jobs whose copies may touch the memory now */
	unsigned nr_file;       /* jobs whose file operations are in flight */
	struct gds_job *redo;   /* what cuFile did not move: to be staged */
	struct crc_range *crcs; /* checksums of jobs, in any order */
	unsigned nr_crcs, max_crcs;

	/* what the completion will say: under the engine's lock while an engine has the request,
	 * else under the queue's */
	uint64_t limit;   /* position of the first byte that did not arrive */
	uint64_t err_pos; /* position of the first error */
	int err;          /* positive errno of that */
	uint32_t paths;
	uint32_t why;
	int detail;
	uint32_t flags;
	uint32_t crc;
	uint64_t hop_bytes[PST_PATH_MAX + 1];

	/* proof of the direct hop by this request's own data, under the queue's lock:
	 * parts_proof.c; jobs have their own */
	struct proof *proof;
	bool can_judge;
	uint64_t proof_off; /* in the file */
	uint64_t proof_len;
	void *proof_data;    /* host memory with what the direct hop moved */
	void *proof_buf;     /* what a plain read gave */
	struct trial *trial; /* they differ */
};

static inline struct pst_mem *req_mem(const struct req *r)
{
	return r->io.mem;
}

static inline struct local_file *req_local(const struct req *r)
{
	return r->io.file->lf;
}

/*
 * May the CPU follow addresses that the request's file operations use?  Memory of ours stays,
 * and what is shared is sealed; a wrap may vanish, and then only the kernel touches it.
 */
static inline bool req_stays(const struct req *r)
{
	return req_mem(r)->region->alloc->owned || r->bounce;
}

/* Does an engine do it?  Else file operations on the caller's thread. */
static inline bool req_staged(const struct req *r)
{
	return r->plan.dev && r->plan.dev != PST_PATH_WINDOW;
}

/* Bytes pos..pos+len are settled: got of them arrived, then err (0: end of the file). */
static inline void req_settle(struct req *r, uint64_t pos, uint64_t len, uint64_t got, int err)
{
	if (likely(got == len && !err))
		return;
	if (pos + got < r->limit)
		r->limit = pos + got;
	if (err && pos + got <= r->err_pos) {
		r->err_pos = pos + got;
		r->err = err;
	}
}

/* The first reason stays. */
static inline void req_reason(struct req *r, uint32_t why, int detail)
{
	if (r->why == PST_WHY_NONE) {
		r->why = why;
		r->detail = detail;
	}
}

static inline void req_moved(struct req *r, uint32_t path, uint64_t bytes)
{
	r->paths |= PST_PATH_BIT(path);
	r->hop_bytes[path] += bytes;
}

/* Let go of what the request uses. */
void req_release(struct req *r);
/* Make the plan of a read or write, and start the request; a sync has no plan. */
void req_start(struct req *r);
/* Put the completion where pst_queue_reap() finds it. */
void req_complete(struct req *r);
/* Reaped and quiet, or never submitted: its place is for another. */
void req_free(struct req *r);

#endif
