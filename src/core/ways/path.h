/* SPDX-License-Identifier: MIT */
/*
 * The table of paths.
 *
 * A path is one way to move bytes, and has one file in this folder (gds has a room of its own).
 * There are two kinds.  A file hop moves bytes between a file and memory that the CPU can use, as
 * one file operation; part.c executes the operations.  A device path moves bytes to or from the
 * memory of a device.
 *
 * path_why() answers before a request begins.  If a hop later cannot serve a part, the part gets an
 * event with the hop and the reason, and continues with the next hop.
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

#define TOPIC_CHECKS_MAX 160u /* of 16 NICs beside 8 devices */

/* A topic of pst_check(), and its checks. */
struct topic {
	const char *name;
	/* Fill @ret and return the number of checks, at most TOPIC_CHECKS_MAX; -errno with a
	 * sentence. */
	int (*check)(const struct pst_check_opts *o, struct pst_check *ret);
	uint32_t flags; /* flags that the caller may pass */
};

struct path_ops {
	uint32_t path; /* enum pst_path */
	/* The name for path_add(), as pst_path_name() returns it; NULL: "unknown". */
	const char *name;
	/* For a device path: the calls that move its requests.  A file hop that reaches device
	 * memory by itself is also a device path, which its choose() sets. */
	const struct req_ops *by;
	bool quiet;   /* skipping the path is a reason only for a caller that lists
				   * it */
	bool copies;  /* for a file hop: the CPU copies, so it can reach a window */
	bool base;    /* the device path for requests that all other paths leave */
	bool aligned; /* for a file hop: it moves whole blocks only */

	/* Return why the path cannot serve this file and memory at all, or PST_WHY_NONE. */
	enum pst_why (*why)(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
			    int *ret_detail);
	/* Return true if an automatic choice includes the path, provided it can serve.  NULL:
	 * always. */
	bool (*wanted)(const struct req *r);
	/* Return true if wanted() or why() depend on more than the kind of request, so that the
	 * plan is not kept for the next request.  NULL: never. */
	bool (*varies)(const struct req *r);
	/* Add this path's part to a plan that has its hops and its device path.  May be NULL. */
	void (*plan)(const struct req *r, struct plan *p, uint32_t listed);
	/*
	 * Take a request that begins, if this path is listed or better.  Return 0, or -errno with a
	 * sentence if the path is listed, cannot serve, and no other path may.  May be NULL.
	 */
	int (*choose)(struct req *r);
	/* Called when a request completes whose r->tell has this path's number, set by choose().
	 * Operations of a stopped request may still be in flight.  May be NULL. */
	void (*over)(struct req *r);
	/* Return true if the path was proven with data.  NULL: other paths are compared with this
	 * one. */
	bool (*proven)(const struct pst_file *f, const struct pst_mem *m, uint32_t op);

	/*
	 * by_path[path] of struct pst_file and struct region belongs to this path: its object for
	 * the file or the allocation (path_keep()), NULL at first.
	 */

	/*
	 * A file opens.  Set *ret_reader if the path reads back its writes.  Return 0, or -errno
	 * with a sentence; file_end() may follow.  May be NULL.
	 */
	int (*file_begin)(struct pst_file *f, bool *ret_reader);
	/* Free what the path keeps for a file that is no longer used.  The file closes when the
	 * call returns. */
	void (*file_end)(struct pst_file *f);
	/* Free what the path keeps for an allocation that is no longer used.  The allocation stays
	 * as long as the path holds a reference from region_again(), until region_put(). */
	void (*region_end)(struct region *r);
	/* What the path needs of the machine, for pst_check().  May be NULL. */
	const struct topic *topic;
	/* Fill in the statistics that only this path knows.  May be NULL. */
	void (*stats)(struct pst_stats *ret);

	/*
	 * For a device path whose requests the caller moves: return the address of the piece for
	 * the CPU, and cut the piece to bytes that are contiguous there. *ret_hold is put when the
	 * part ends.  NULL: the CPU cannot reach it, and the request has the reason.
	 */
	char *(*reach)(struct req *r, struct piece *pc, struct hold **ret_hold);

	/*
	 * For a file hop: choose the bytes of its next operation. p->op.off and p->op.len are the
	 * rest of the part; cut them to bytes that the hop can move, or widen them if the memory
	 * around the part has room.  May set p->op.flags, which is 0, and p->unproven if the bytes
	 * must be compared before use.  A reason means that the hop can move nothing of the part.
	 */
	enum pst_why (*fit)(struct part *p, int *ret_detail);
	/*
	 * For a device path: return the address for the CPU of io->mem_off of a read that needs no
	 * request; all of io->len is contiguous there.  The caller puts *ret_hold.  NULL: there is
	 * none, or this path is not the better one.  May be NULL.
	 */
	char *(*reach_now)(const struct holder *by, const struct pst_io *io,
			   struct hold **ret_hold);
	/* Return true if a read from the file is worth a try without waiting and without a request.
	 * NULL: never. */
	bool (*now)(const struct file *f);
	/* The path's operation moved all of its bytes.  May be NULL. */
	void (*hit)(const struct part *p);
	/* The path's operation was short, or failed with err.  A reason means that the part no
	 * longer uses the path.  May be NULL. */
	enum pst_why (*miss)(const struct part *p, int err, int *ret_detail);
};

/* The two ways to move requests, defined in rooms above this one. */
extern const struct req_ops req_by_caller, req_by_engine;

/* The paths in the order in which they are chosen, NULL at the end. */
extern const struct path_ops *path_list[PST_PATH_MAX + 1];

extern const struct path_ops path_direct, path_cached, path_buffered, path_window, path_staged,
	path_gather, path_pagecache, path_gds, path_tcp, path_p2p, path_peer, path_rdma;

extern const struct path_ops *path_table[PST_PATH_MAX + 1];

/* Return the path of that number, or NULL if this version has none. */
static inline const struct path_ops *path_get(uint32_t path)
{
	return path <= PST_PATH_MAX ? path_table[path] : NULL;
}

/* As path_get(), for a path that is certainly in the table, such as that of a plan. */
static inline const struct path_ops *path_ops_of(uint8_t path)
{
	return path_table[path];
}

static inline bool path_is_hop(uint32_t path)
{
	const struct path_ops *ops = path_get(path);

	return ops && ops->fit;
}

/* Add a path after all others, before the first request.  Return 0, or -EEXIST if its number is
 * taken. */
int path_add(const struct path_ops *ops);

/* Return the set of all file hops. */
uint32_t path_hops(void);

/* Return the device path for requests that all others leave. */
uint32_t path_base(void);

/* Return why a path cannot serve this file and memory, or PST_WHY_NONE. */
enum pst_why path_why(const struct pst_file *f, const struct pst_mem *m, uint32_t op, uint32_t path,
		      int *ret_detail);

/* Return true if a path that can serve them was proven with data. */
bool path_is_proven(const struct pst_file *f, const struct pst_mem *m, uint32_t op, uint32_t path);

/* Store @made in by_path[] of a file or an allocation.  Return the object that is there: if another
 * thread was first, its object, and @made is freed.  Return NULL without memory. */
void *path_keep(_Atomic(void *) *by_path, void *made);

/* Tell all paths that a file opens.  Return 0 or -errno. *ret_reader is set if a path reads back
 * its writes. */
int path_file_begin(struct pst_file *f, bool *ret_reader);
/* Let every path free what it keeps for a file or an allocation that is no longer used. */
void path_file_end(struct pst_file *f);
void path_region_end(struct region *r);
/* Add the statistics that only single paths know. */
void path_stats(struct pst_stats *ret);

/* Incremented when an answer of why() became worse, so that kept plans are made again. */
extern _Atomic uint32_t path_epoch;
void path_changed(void);

#endif
