/* SPDX-License-Identifier: MIT */
/* One request, from pst_queue_prep() until none of its operations is in flight. */
#ifndef PST_REQ_H
#define PST_REQ_H

#include <stdatomic.h>

#include <penstock.h>

#include "core/queue/cursor.h"
#include "core/queue/life.h"
#include "core/queue/object.h"

#define REQ_SUMS (PST_IO_CRC32C | PST_IO_VERIFY)       /* flags that ask for checksums */
#define REQ_CHECKS (PST_IO_CRC32C_MEM | PST_IO_VERIFY) /* flags that check the bytes in memory */
#define PART_MAX MIB(4) /* maximum bytes of one range that the caller's thread moves at a time */

struct req;

/* How a request is moved: by the caller's thread or by an engine. */
struct req_ops {
	bool elsewhere; /* other threads move the request, and return it to its queue */
	/* Start a request whose path is chosen.  The request's end is reported later. */
	void (*start)(struct req *r);
	/* Start nothing more of the request, and cancel its operations; err is a positive errno. */
	void (*stop)(struct req *r, int err);
	/* Return whether memory and file may still be touched after the completion. */
	void (*touches)(struct req *r, bool *ret_mem, bool *ret_file);
};

/*
 * The result that the completion will report.  The engine's lock covers it while an engine holds
 * the request, else the queue's lock.
 */
struct req_result {
	uint64_t limit;   /* bytes moved before the first gap, in piece order */
	uint64_t err_pos; /* position of the first error, bytes in piece order */
	int err;          /* positive errno of the first error */
	int detail;
	uint32_t why;
	uint32_t paths;
	uint32_t flags;
	uint32_t crc;
	uint64_t wrong; /* index of the piece for which VERIFY failed */
	uint64_t hop_bytes[PST_PATH_MAX + 1];
};

/*
 * The queue's lock covers these members.  Members from q to can_judge do not change after the
 * request was submitted, except that cancelling makes the deadline earlier.  While an engine holds
 * the request, the engine's lock covers cur, stop and end_err.
 *
 * The data that paths and carriers keep for the request follows it in memory: see carry_init() in
 * above.h.
 */
struct req {
	struct pst_queue *q;
	struct pst_io io;
	struct pst_seg seg; /* the only piece, if the caller passed no segments */
	uint64_t total;     /* bytes in all pieces */
	uint64_t deadline;
	uint64_t seq;   /* order of submission, for writes and syncs */
	bool one_piece; /* the request has one piece, so a short read ends the request */
	bool one_part;  /* one_piece is true, and that piece is one part in host memory */
	bool can_judge; /* pieces do not overlap, so wrong data in a proof disproves the path */
	bool on_device; /* the memory is a device's, so carry_release() must be called */
	const struct req_ops *ops;
	const _Atomic int *ring_err; /* for device memory: the engine's ring_err. 0, or the
				      * positive errno that made threads replace the engine's
				      * io_uring. */
	struct cursor cur;           /* the pieces that were not started yet */
	struct segs_shape shape;     /* shape of a request with segments */
	_Atomic int end_err;         /* the errno of an early end: ETIMEDOUT or ECANCELED */
	bool stop;                   /* start nothing more of the request */
	bool started;                /* the request is a write that was started and counts in
				      * q->nr_writes */
	bool sync_started;
	uint8_t tell; /* bit set of paths to tell at the end; if not 0, ways_over() is called */
	unsigned nr_parts;  /* ranges that the caller's thread moves now */
	unsigned nr_before; /* for a sync: writes that must complete first */

	struct list link;  /* on the list of the request's state, see life.h */
	struct list waits; /* on q->held or q->started, or on no list */
	struct req *next;  /* next on q->finished or, earlier, on the fresh list of a share */
	enum req_state state;
	struct use *mem_use, *file_use;
	struct pst_file *upper; /* the file that the program named, if io.file is its lower file
				 * (lower.h); else NULL */
	struct use *lower_use;  /* use of io.file, if upper is not NULL */

	struct req_result res;
};

static inline struct pst_mem *req_mem(const struct req *r)
{
	return r->io.mem;
}

/* Return the address of a byte of the request's memory, which must be host memory. */
static inline char *req_host(const struct req *r, uint64_t mem_off)
{
	return mem_host(req_mem(r), mem_off);
}

static inline struct file *req_file(const struct req *r)
{
	return r->io.file->file;
}

/* Record the result of bytes pos..pos+len: got bytes arrived, then err happened (0: the file
 * ended). */
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

/* Return true if a new reason replaces the recorded one.  PST_WHY_MEMLOCK is replaced, because it
 * only concerns the cost of the path; any other recorded reason stays. */
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

/* Return true if the request completed while operations are in flight. */
static inline bool req_is_late(const struct req *r)
{
	return r->state == REQ_LATE || r->state == REQ_BUSY;
}

/* ------------------------------------------------------------ lower.c, lower.h */

/*
 * Turn the request into one on its lower file.  Return 0; -EAGAIN if the provider has no lower file
 * now and must be asked again; another -errno with a sentence.
 */
int lower_begin(struct req *r);
/* Turn the request back into one on the file that the program named, when nothing is in flight. */
void lower_end(struct req *r);

#endif
