/* SPDX-License-Identifier: MIT */
/*
 * How a request is going to run (plan.c).
 *
 * req_start() makes the plan of a read or write, by calling in this order plan_make(),
 * small_listed(), gds_choose(), ahead_choose() and small_choose().  plan_make() gives a request the
 * queue's last plan if that was made for the same kind of request.
 *
 * A plan changes later where a path does not work out.  small_give_up() stages a read that was not
 * resident.  parts_again() leaves only the hop BUFFERED after a failed proof.  give_up() in
 * gds/path/move.c takes cuFile away.
 */
#ifndef PST_PLAN_H
#define PST_PLAN_H

#include <penstock.h>

#include "core/queue/object.h"

#define PAGE UINT64_C(4096) /* unit of O_DIRECT writes; see piece_middle() in parts.c */
#define HOPS_MAX 3u

struct plan {
	uint8_t hop[HOPS_MAX]; /* file hops in order of preference, enum pst_path */
	uint8_t nr_hops;
	uint8_t dev;           /* device hop: the first listed that serves, or STAGED without a
				* list of them; 0 for host memory */
	bool buffered_write;   /* a write of at most PST_SMALL_WRITE bytes: the page cache */
	bool unaligned;        /* a write that is not aligned: O_DIRECT moves nothing of it */
	bool window;           /* small requests may go by a window */
	bool restage;          /* WINDOW: by the engine after all, if it is not resident */
	bool listed;           /* by the caller: skipping CACHED is worth a `why' */
	bool ahead;            /* the kernel reads ahead for it: the page cache, and no O_DIRECT */
	bool pin_now;          /* the caller listed PAGECACHE */
	bool staged;           /* the pool may be used; false: device hops are listed, not STAGED */
	struct mapping *map;   /* of the file's pages, or NULL */
	struct gds_route *gds; /* by which long pieces go, or NULL; under the engine's lock */
	uint32_t why;          /* known before the first byte moves */
	int detail;
};

/* Is all of the range in the page cache?  False also when the kernel cannot tell. */
bool plan_resident(const struct local_file *lf, uint64_t off, uint64_t len);

/* A queue's last plan, and what it was made for. */
struct plan_memo {
	const struct pst_file *file;
	const struct mem_ops *ops;
	unsigned device;
	uint32_t op, flags;
	uint64_t policy;
	struct plan plan;
};

struct req;

/* 0, or -EOPNOTSUPP with a sentence and req's why and detail set. */
int plan_make(struct req *req);

/* Why a path cannot serve this file and memory, PST_WHY_NONE when it can. */
enum pst_why plan_path_reason(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
			      uint32_t path, int *ret_detail);

/* Was a path that can serve them proven with data? */
bool plan_path_proven(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
		      uint32_t path);

/* Is CACHED worth trying for these bytes?  The caller tells plan_cached() what came of it. */
bool plan_try_cached(const struct req *r, uint64_t off, uint64_t len);
void plan_cached(const struct req *r, bool hit);
/* Were there so many hits in a row that nobody asks any more? */
bool plan_is_warm(const struct local_file *lf);
/* Does RWF_NOWAIT work on this file system?  If not, resident bytes are read without it. */
bool plan_nowait(const struct local_file *lf);
/* A short NOWAIT read stopped at off: does the file end there?  False for file systems that may
 * hang: they are not asked, and the next hop finds out. */
bool plan_at_end(const struct local_file *lf, uint64_t off);
/* May wrong data in a proof of this request be held against the path?  Not if its own pieces may
 * overlap.  Called while the caller's segments are there; r->can_judge keeps the answer. */
bool plan_can_judge(const struct req *r);
/* Where the plain bytes of a proof can be read from, or NULL. */
struct local_file *plan_reader(const struct pst_file *f);

#endif
