/* SPDX-License-Identifier: MIT */
/*
 * The table of paths.
 *
 * A path is one way for bytes, and one file of this folder (gds has a room of its own).  There are
 * two kinds.  A file hop moves bytes between a file and memory that the CPU reaches, as one file
 * operation; part.c does the operations.  A device path moves bytes to or from the memory of a
 * device.
 *
 * path_why() answers before a request begins.  A hop that turns out later not to serve a part, or
 * to serve it no longer, gives the part an event: the hop and the reason.  The part then goes on by
 * the next hop.
 */
#ifndef PST_PATH_H
#define PST_PATH_H

#include <penstock.h>

#include "core/queue/object.h"

struct hold;
struct holder;
struct part;
struct piece;
struct plan;
struct req;
struct req_ops;

#define TOPIC_CHECKS_MAX 24u

/* A name that pst_check() knows, and the checks under it. */
struct topic {
	const char *name;
	/* Fill @ret and return how many there are, at most TOPIC_CHECKS_MAX; -errno with a
	 * sentence. */
	int (*check)(const struct pst_check_opts *o, struct pst_check *ret);
	uint32_t flags; /* that the caller may give */
};

struct path_ops {
	uint32_t path;            /* enum pst_path */
	const char *name;         /* for path_add(), as pst_path_name() gives it; NULL: "unknown" */
	const struct req_ops *by; /* a device path: the calls that move its requests */
	bool quiet;               /* passing it over is a reason only for a caller that lists it */
	bool copies;              /* a file hop: the CPU copies, and so can reach a window */
	bool base;                /* the device path for requests that every other one leaves */
	bool aligned;             /* a file hop: it moves whole blocks only */

	/* Why can it not serve this file and memory at all?  PST_WHY_NONE if it can. */
	enum pst_why (*why)(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
			    int *ret_detail);
	/* NULL for always, or: does an automatic choice include it, if it can serve? */
	bool (*wanted)(const struct req *r);
	/* NULL for never, or: does that, or why(), depend on more than the kind of request?  Then
	 * no plan with it is kept for the next one. */
	bool (*varies)(const struct req *r);
	/* NULL, or: the plan has its hops and its device path.  Note this path's part in it. */
	void (*plan)(const struct req *r, struct plan *p, uint32_t listed);
	/*
	 * NULL, or: the request begins.  Take it if this path is the better way, or listed.  0, or
	 * -errno with a sentence if it is listed, cannot, and nothing else may.
	 */
	int (*choose)(struct req *r);
	/* NULL, or: a request completes in which choose() put this path's number into r->tell.  Its
	 * operations may still be under way if it was stopped. */
	void (*over)(struct req *r);
	/* Was it proven with data?  NULL: other paths are compared with this one. */
	bool (*proven)(const struct pst_file *f, const struct pst_mem *m, uint32_t op);

	/*
	 * by_path[path] of struct pst_file and struct region is the path's own: its object for the
	 * file or the allocation (path_keep()), NULL at first.  Nobody else looks at it.
	 */

	/*
	 * NULL, or: a file opens.  *ret_reader is set if the path reads back its writes to the
	 * file.  0, or -errno with a sentence: then file_end() may follow.
	 */
	int (*file_begin)(struct pst_file *f, bool *ret_reader);
	/* Nobody uses a file any more for which the path keeps something: free that.  The file
	 * closes when the call returns. */
	void (*file_end)(struct pst_file *f);
	/* Likewise of an allocation.  It stays as long as the path has a reference of its own,
	 * from region_again() to region_put(). */
	void (*region_end)(struct region *r);
	/* NULL, or: its needs of the machine, as pst_check() tells them. */
	const struct topic *topic;
	/* NULL, or: fill in the members of the process's statistics that are about it alone. */
	void (*stats)(struct pst_stats *ret);

	/*
	 * A device path whose requests the caller moves: where does the CPU find the piece?  Cuts
	 * the piece to bytes that are contiguous there.  *ret_hold is put when the part is over.
	 * NULL: the CPU does not reach it, and the request has the reason.
	 */
	char *(*reach)(struct req *r, struct piece *pc, struct hold **ret_hold);

	/*
	 * A file hop: choose the bytes of its next operation.  p->op.off and p->op.len are the rest
	 * of the part.  It cuts them to bytes that it can move, or widens them if the memory around
	 * the part has room.  It may set p->op.flags, which is 0, and p->unproven if its bytes must
	 * be compared before they are used.  A reason says that it can move nothing of the part.
	 */
	enum pst_why (*fit)(struct part *p, int *ret_detail);
	/*
	 * A device path, NULL for no, or: where does the CPU find the memory of a read without a
	 * request, from io->mem_off on?  All of io->len is contiguous there.  The caller puts
	 * *ret_hold.  NULL: nowhere, or this path is not the better way.
	 */
	char *(*reach_now)(const struct holder *by, const struct pst_io *io,
			   struct hold **ret_hold);
	/* NULL for no, or: is it worth a try to read from the file without waiting, and without a
	 * request? */
	bool (*now)(const struct file *f);
	/* NULL, or: its operation brought every byte. */
	void (*hit)(const struct part *p);
	/* NULL, or: its operation came back short, or with err.  A reason says that it serves the
	 * part no longer. */
	enum pst_why (*miss)(const struct part *p, int err, int *ret_detail);
};

/* Who moves requests; their rooms are above this one. */
extern const struct req_ops req_by_caller, req_by_engine;

/* In the order in which they are chosen, NULL at the end. */
extern const struct path_ops *path_list[PST_PATH_MAX + 1];

extern const struct path_ops path_direct, path_cached, path_buffered, path_window, path_staged,
	path_gather, path_pagecache, path_gds, path_tcp;

extern const struct path_ops *path_table[PST_PATH_MAX + 1];

/* NULL: this version has no such path. */
static inline const struct path_ops *path_get(uint32_t path)
{
	return path <= PST_PATH_MAX ? path_table[path] : NULL;
}

/* The same for a path that is in the table for certain, as that of a plan is. */
static inline const struct path_ops *path_ops_of(uint8_t path)
{
	return path_table[path];
}

static inline bool path_is_hop(uint32_t path)
{
	const struct path_ops *ops = path_get(path);

	return ops && ops->fit;
}

/* One more path, behind all others, before the first request.  0; -EEXIST: its number is taken. */
int path_add(const struct path_ops *ops);

/* The set of all file hops. */
uint32_t path_hops(void);

/* The device path for all that others leave. */
uint32_t path_base(void);

/* Why a path cannot serve this file and memory, PST_WHY_NONE when it can. */
enum pst_why path_why(const struct pst_file *f, const struct pst_mem *m, uint32_t op, uint32_t path,
		      int *ret_detail);

/* Was a path that can serve them proven with data? */
bool path_is_proven(const struct pst_file *f, const struct pst_mem *m, uint32_t op, uint32_t path);

/* Keep @made in by_path[] of a file or an allocation.  Returns the object there: if another
 * thread was first, that one's, and @made is freed.  NULL is for out of memory. */
void *path_keep(_Atomic(void *) *by_path, void *made);

/* A file opens: 0 or -errno.  *ret_reader: a path reads back its writes. */
int path_file_begin(struct pst_file *f, bool *ret_reader);
/* Nobody uses a file, or an allocation, any more: every path that keeps something frees it. */
void path_file_end(struct pst_file *f);
void path_region_end(struct region *r);
/* Each path adds the statistics of the process that it alone knows. */
void path_stats(struct pst_stats *ret);

/* An answer to why() has changed for the worse: plans that were kept are made anew. */
extern _Atomic uint32_t path_epoch;
void path_changed(void);

#endif
