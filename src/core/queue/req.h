/* SPDX-License-Identifier: MIT */
/*
 * One request, from pst_queue_prep() to the moment when nothing of it is under way.
 */
#ifndef PST_REQ_H
#define PST_REQ_H

#include <stdatomic.h>

#include <penstock.h>

#include "core/queue/cursor.h"
#include "core/queue/life.h"
#include "core/queue/object.h"

#define PART_MAX MIB(4) /* bytes of one range that the caller's thread moves at a time */

struct req;

/* Who moves a request has such a table: the caller's thread, or an engine. */
struct req_ops {
	bool elsewhere; /* other threads do, and hand it back */
	/* The request has its plan.  It ends by itself. */
	void (*start)(struct req *r);
	/* Start nothing more of it, and cancel its operations; err is a positive errno. */
	void (*stop)(struct req *r, int err);
	/* Its completion goes out now: which of memory and file may still be touched? */
	void (*touches)(struct req *r, bool *ret_mem, bool *ret_file);
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
 * The queue's lock covers these members.  Those from q to can_judge stay as they are once the
 * request is submitted, but a cancel brings the deadline forward.  While an engine has the
 * request, the engine's lock covers cur, stop and end_err.
 *
 * What ways and carriers keep of the request lies behind it: see carry_init() in above.h.
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
	bool can_judge; /* its pieces are apart, so a proof's wrong data speak against the way */
	bool on_device; /* its memory is a device's: carry_release() is due */
	const struct req_ops *ops;
	const _Atomic int *ring_err; /* of an engine: 0, or the positive errno why threads stand
				      * in for its rings; for device memory only */
	struct cursor cur;           /* the rest that has not been started */
	struct segs_shape shape;     /* of a request with segments */
	_Atomic int end_err;         /* the errno of an early end: ETIMEDOUT or ECANCELED */
	bool stop;                   /* start nothing more for it */
	bool started;                /* a write, counted in q->nr_writes */
	bool sync_started;
	uint8_t tell;       /* not 0: ways_over() is due */
	unsigned nr_parts;  /* the caller's thread moves so many ranges of it now */
	unsigned nr_before; /* a sync: writes that must complete first */

	struct list link;  /* on the list of its state, see life.h */
	struct list waits; /* on q->held or q->started, or by itself */
	struct req *next;  /* on q->finished, or before that on its share's fresh */
	enum req_state state;
	struct use *mem_use, *file_use;
	struct pst_file *upper; /* io.file is one beneath it (lower.h); NULL: it is no other */
	struct use *lower_use;  /* of io.file then */

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

/* ------------------------------------------------------------ lower.c, lower.h */

/*
 * Make it a request on the file beneath.  0; -EAGAIN: the provider has none for it just now, ask
 * again; another -errno with a sentence.
 */
int lower_begin(struct req *r);
/* Nothing of it is under way any more: it is a request on the file that the program named. */
void lower_end(struct req *r);

#endif
