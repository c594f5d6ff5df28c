/* SPDX-License-Identifier: MIT */
/*
 * One request, from pst_queue_prep() to the moment when nothing of it is under way.
 */
#ifndef PST_REQ_H
#define PST_REQ_H

#include <stdatomic.h>

#include <penstock.h>

#include "core/path/part.h"
#include "core/path/plan.h"
#include "core/queue/cursor.h"
#include "core/queue/life.h"
#include "core/queue/object.h"

/* The checksum of a range of a request, in piece order. */
struct crc_range {
	uint64_t pos, len;
	uint32_t crc;
};

struct req;

/* The caller's thread moves a request, or an engine does.  Each has such a table. */
struct req_ops {
	bool elsewhere; /* other threads do, and hand it back */
	/* The request has its plan.  It ends by itself. */
	void (*start)(struct req *r);
	/* Start nothing more of it, and cancel its operations; err is a positive errno. */
	void (*stop)(struct req *r, int err);
	/* Its completion goes out now: which of memory and file may still be touched? */
	void (*touches)(struct req *r, bool *ret_mem, bool *ret_file);
};

extern const struct req_ops req_by_caller, req_by_engine;

/*
 * The caller's thread keeps this of a request, which it moves in parts.  The queue's lock covers
 * it.
 */
struct req_caller {
	bool starting;     /* more parts may come in this call: not ended by one */
	bool left;         /* the engine has to do it; see restage() */
	bool first_used;   /* the request's own part */
	unsigned nr_parts; /* of its own, and from q->parts */
	struct part first;
	struct list more;
	char *bounce;      /* buffer of a small write's bytes, that its path loaded, or NULL */
	struct hold *hold; /* kept open by its path for its next part, or NULL */
	bool lone;         /* counted among the reads that callers copy: lone_end() is due */
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

/*
 * The completion will say this.  While an engine has the request, the engine's lock covers it, else
 * the queue's.
 */
struct req_result {
	uint64_t limit;   /* position of the first byte that did not arrive */
	uint64_t err_pos; /* position of the first error */
	int err;          /* positive errno of that */
	int detail;
	uint32_t why;
	uint32_t paths;
	uint32_t flags;
	uint32_t crc;
	uint64_t hop_bytes[PST_PATH_MAX + 1];
};

/*
 * The queue's lock covers the request's own members.  Those from q to can_judge stay as they are
 * once it is submitted, but a cancel brings the deadline forward.  While an engine has the
 * request, the engine's lock covers plan, cur, stop and end_err.
 */
struct req {
	struct pst_queue *q;
	struct pst_io io;
	struct pst_seg seg; /* the inline piece */
	uint64_t total;     /* bytes in all pieces */
	uint64_t deadline;
	uint64_t seq;   /* order of submission, of writes and syncs */
	bool one_piece; /* it has a single piece, so nothing of it follows the end of the file */
	bool one_part;  /* and that is one part, of host memory */
	bool can_judge; /* see plan_can_judge() */
	const struct req_ops *ops;
	struct plan plan;
	struct cursor cur;       /* the rest that has not been started */
	struct segs_shape shape; /* of a request with segments */
	_Atomic int end_err;     /* the errno of an early end: ETIMEDOUT or ECANCELED */
	bool stop;               /* start nothing more for it */
	bool started;            /* a write, counted in q->nr_writes */
	bool sync_started;
	uint8_t tell;         /* the path whose over() is due, or 0 */
	atomic_bool compared; /* a part of it was, or is being */
	unsigned nr_before;   /* a sync: writes that must complete first */

	struct list link;  /* on the list of its state, see life.h */
	struct list waits; /* on q->held or q->started, or by itself */
	struct req *next;  /* on q->finished, or before that on share->fresh */
	enum req_state state;
	struct use *mem_use, *file_use;
	struct pst_file *upper; /* io.file is one beneath it (lower.h); NULL: it is no other */
	struct use *lower_use;  /* of io.file then */

	struct req_caller caller;
	struct req_engine eng;
	struct req_result res;
};

static inline struct pst_mem *req_mem(const struct req *r)
{
	return r->io.mem;
}

/* The address of a byte of the request's memory, if that is host memory. */
static inline char *req_host(const struct req *r, uint64_t mem_off)
{
	return mem_host(req_mem(r), mem_off);
}

static inline struct file *req_file(const struct req *r)
{
	return r->io.file->file;
}

/*
 * May the CPU follow addresses that the request's file operations use?  Memory of ours stays, and
 * shared memory is sealed; a wrap may vanish, so only the kernel touches it.
 */
static inline bool req_stays(const struct req *r)
{
	return req_mem(r)->region->alloc->owned || r->caller.bounce;
}

/* Bytes pos..pos+len are settled: got of them arrived, then err (0: end of the file). */
static inline void req_settle(struct req *r, uint64_t pos, uint64_t len, uint64_t got, int err)
{
	if (likely(got == len && !err))
		return;
	if (pos + got < r->res.limit)
		r->res.limit = pos + got;
	if (err && pos + got <= r->res.err_pos) {
		r->res.err_pos = pos + got;
		r->res.err = err;
	}
}

/* The first reason stays.  But memory that could not be pinned changes the price and not the path,
 * so any other reason takes the place of that. */
static inline bool reason_wanted(uint32_t has)
{
	return has == PST_WHY_NONE || has == PST_WHY_MEMLOCK;
}

static inline void req_reason(struct req *r, uint32_t why, int detail)
{
	if (reason_wanted(r->res.why)) {
		r->res.why = why;
		r->res.detail = detail;
	}
}

static inline void req_moved(struct req *r, uint32_t path, uint64_t bytes)
{
	r->res.paths |= PST_PATH_BIT(path);
	r->res.hop_bytes[path] += bytes;
}

/* Its completion went out, or is about to, and something of it is still under way. */
static inline bool req_is_late(const struct req *r)
{
	return r->state == REQ_LATE || r->state == REQ_BUSY;
}

#endif
