/* SPDX-License-Identifier: MIT */
/*
 * The table of paths.
 *
 * A path is one method to move bytes.  Each path has one file in this folder, except gds, which has
 * its own folder.  There are two kinds.  A file hop moves bytes between a file and memory that the
 * CPU can use, as one file operation; part.c executes the operations.  A device path moves bytes to
 * or from the memory of a device.
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

#define TOPIC_CHECKS_MAX 160u /* enough for 16 NICs with 8 devices */

/* A topic of pst_check(), and its checks. */
struct topic {
	const char *name;
	/* Fill @ret and return the number of checks, at most TOPIC_CHECKS_MAX, or -errno with a
	 * sentence. */
	int (*check)(const struct pst_check_opts *o, struct pst_check *ret);
	uint32_t flags; /* flags that the caller may pass in @o */
};

struct path_ops {
	uint32_t path; /* enum pst_path */
	/* The name for path_add(), which pst_path_name() then returns; NULL: "unknown". */
	const char *name;
	/* For a device path: how its requests are moved.  A file hop that reaches device memory is
	 * also a device path, and its choose() sets the plan's dev. */
	const struct req_ops *by;
	bool quiet;   /* if the path is skipped, only a caller that listed it gets a reason */
	bool copies;  /* for a file hop: the CPU copies the bytes, so the hop can reach a window */
	bool base;    /* the device path for requests that no other path takes */
	bool aligned; /* for a file hop: moves only whole blocks */

	/* Return why the path can never serve this file and memory, or PST_WHY_NONE. */
	enum pst_why (*why)(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
			    int *ret_detail);
	/* Return true if requests without a list of paths use the path, provided that it can serve.
	 * NULL: always. */
	bool (*wanted)(const struct req *r);
	/* Return true if the results of wanted() or why() may change between requests of the same
	 * kind, so that the queue must not reuse the plan.  NULL: never. */
	bool (*varies)(const struct req *r);
	/* Add what this path needs to a plan whose hops and device path are chosen.  May be
	 * NULL. */
	void (*plan)(const struct req *r, struct plan *p, uint32_t listed);
	/* For a file hop that may reach device memory by itself: return true if it may serve the
	 * request, whose memory cannot be staged.  The plan's dev is then the hop, and choose()
	 * decides.  May be NULL. */
	bool (*takes)(const struct req *r);
	/*
	 * Take over a request that begins, if this path is listed or is the best one.  Return 0.
	 * Return -errno with a sentence if the path is listed but cannot serve, and no other path
	 * may.  May be NULL.
	 */
	int (*choose)(struct req *r);
	/* Note the completion of a request that choose() has marked with this path's number in
	 * r->tell.  Operations of a stopped request may still be in flight.  May be NULL. */
	void (*over)(struct req *r);
	/* Return true if the path was proven with data.  NULL: the path needs no proof, because
	 * other paths are compared with it. */
	bool (*proven)(const struct pst_file *f, const struct pst_mem *m, uint32_t op);

	/*
	 * by_path[path] in struct pst_file and struct region belongs to this path.  path_keep()
	 * stores the path's data for the file or the allocation there; NULL at first.
	 */

	/*
	 * Prepare for a file that is being opened.  Set *ret_reader if the path reads back its
	 * writes.  Return 0, or -errno with a sentence; file_end() may follow in both cases.  May
	 * be NULL.
	 */
	int (*file_begin)(struct pst_file *f, bool *ret_reader);
	/* Free the path's data of a file that is not used any more.  The file is closed after the
	 * call. */
	void (*file_end)(struct pst_file *f);
	/* Free the path's data of an allocation that is not used any more.  If the path has taken a
	 * reference by region_again(), the allocation stays until region_put(). */
	void (*region_end)(struct region *r);
	/* Checks of what the path needs of the machine, for pst_check().  May be NULL. */
	const struct topic *topic;
	/* Add the statistics that only this path has.  May be NULL. */
	void (*stats)(struct pst_stats *ret);

	/*
	 * For a device path whose requests the caller's thread moves: return the address of the
	 * piece for the CPU, and cut the piece to bytes that are contiguous there.  The core puts
	 * *ret_hold when the part ends.  Return NULL if the CPU cannot reach the piece; the path
	 * has then set the request's reason.
	 */
	char *(*reach)(struct req *r, struct piece *pc, struct hold **ret_hold);

	/*
	 * For a file hop: choose the bytes of its next operation.  p->op.off and p->op.len are the
	 * rest of the part; cut them to bytes that the hop can move, or widen them if the memory
	 * around the part has room.  May set p->op.flags, which is 0, and p->unproven if the bytes
	 * must be compared before use.  Return a reason if the hop can move none of the part's
	 * bytes.
	 */
	enum pst_why (*fit)(struct part *p, int *ret_detail);
	/*
	 * For a device path: return the address for the CPU of the bytes of @io, a read that needs
	 * no request; all io->len bytes are contiguous there.  The caller puts *ret_hold.  Return
	 * NULL if there is no such address, or another path is better.  May be NULL.
	 */
	char *(*reach_now)(const struct holder *by, const struct pst_io *io,
			   struct hold **ret_hold);
	/* Return true if an attempt to read the file without waiting, and without a request, is
	 * likely to succeed.  NULL: never. */
	bool (*now)(const struct file *f);
	/* Note that the path's operation moved all of its bytes.  May be NULL. */
	void (*hit)(const struct part *p);
	/* Handle an operation of the path that was short, or failed with err.  Return a reason if
	 * the part must not use the path any more.  May be NULL. */
	enum pst_why (*miss)(const struct part *p, int err, int *ret_detail);
};

/* The two implementations of struct req_ops, defined in layers above. */
extern const struct req_ops req_by_caller, req_by_engine;

/* The paths in order of preference; NULL at the end. */
extern const struct path_ops *path_list[PST_PATH_MAX + 1];

extern const struct path_ops path_direct, path_cached, path_buffered, path_window, path_staged,
	path_gather, path_pagecache, path_gds, path_tcp, path_p2p, path_peer, path_rdma;

extern const struct path_ops *path_table[PST_PATH_MAX + 1];

/* Return the path of that number, or NULL if this version has none. */
static inline const struct path_ops *path_get(uint32_t path)
{
	return path <= PST_PATH_MAX ? path_table[path] : NULL;
}

/* path_get() for a number that is certainly in the table, such as one from a plan. */
static inline const struct path_ops *path_ops_of(uint8_t path)
{
	return path_table[path];
}

static inline bool path_is_hop(uint32_t path)
{
	const struct path_ops *ops = path_get(path);

	return ops && ops->fit;
}

/* Add a path after all others.  Call it before the first request.  Return 0, or -EEXIST if the
 * path's number is taken. */
int path_add(const struct path_ops *ops);

/* Return the bit set of all file hops. */
uint32_t path_hops(void);

/* Return the device path for requests that no other path takes. */
uint32_t path_base(void);

/* Return why a path cannot serve this file and memory, or PST_WHY_NONE. */
enum pst_why path_why(const struct pst_file *f, const struct pst_mem *m, uint32_t op, uint32_t path,
		      int *ret_detail);

/* Return true if a path that can serve this file and memory was proven with data. */
bool path_is_proven(const struct pst_file *f, const struct pst_mem *m, uint32_t op, uint32_t path);

/* Store @made in by_path[] of a file or an allocation, and return it.  If another thread was first,
 * free @made and return that thread's object.  Return NULL if @made is NULL. */
void *path_keep(_Atomic(void *) *by_path, void *made);

/* Call file_begin() of all paths.  Return 0 or -errno.  *ret_reader is set if a path reads back its
 * writes. */
int path_file_begin(struct pst_file *f, bool *ret_reader);
/* Let every path free its data of a file or an allocation that is not used any more. */
void path_file_end(struct pst_file *f);
void path_region_end(struct region *r);
/* Add the statistics that only individual paths have. */
void path_stats(struct pst_stats *ret);

/* Number of times that the result of any path's why() got worse.  Queues discard plans made before
 * the last change. */
extern _Atomic uint32_t path_epoch;
void path_changed(void);

#endif
