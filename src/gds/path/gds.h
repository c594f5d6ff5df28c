/* SPDX-License-Identifier: MIT */
/*
 * Requests by cuFile (gds/cufile/cufile.h), where its path is direct.
 *
 *	route.c	the state of a route between a device and a file system
 *	gds.c		choose requests and routes
 *	move.c	move pieces of a request, and compare the bytes
 *	end.c	end registrations before memory and file are freed
 *
 * An engine runs the request like any other.  For the pieces that cuFile can move, engine_next()
 * uses spawned threads, because cuFile may hang (base/work.h); all other pieces go to slots.
 * Pieces that cuFile failed to move return as the redo of req_engine(r) and are staged.
 *
 * Lock order: an engine's lock, then gds's lock.  No lock is held while cuFile is called.
 */
#ifndef PST_GDS_H
#define PST_GDS_H

#include "base/work.h"
#include "gds/cufile/cufile.h"
#include "core/queue/req.h"
#include "core/ways/path.h"
#include "core/ways/proof.h"

#define GDS_THREAD "pst-gds" /* name of the threads that call cuFile */
#define GDS_MIN KIB(64)      /* bytes; shorter pieces are staged: a cuFile call starts slowly */
#define GDS_CHUNK MIB(4)     /* maximum bytes of a transfer if several may share a registration */
#define GDS_THREADS 4u       /* maximum transfers in flight per device, not counting hung ones */
#define GDS_HUNG_MAX 8u      /* hung transfers after which cuFile is disabled for the device */
/* Consecutive unexplained failures after which cuFile is disabled for the file system. */
#define GDS_FAILURES_MAX 3u
/* Time without progress after which waiting pieces are staged. */
#define GDS_PATIENCE_NS NSEC_PER_SEC
#define GDS_HUNG_NS (10 * NSEC_PER_SEC) /* time after which a transfer counts as hung */
#define GDS_LOST_NS NSEC_PER_SEC        /* time until a stopped request's transfer counts as hung */
/* Time to retry while another thread registers the same file or memory. */
#define GDS_SOON_NS (100 * NSEC_PER_MSEC)
#define GDS_END_NS NSEC_PER_SEC /* how long a free or close waits for cuFile */

/* ------------------------------------------------------------------ routes */

enum gds_state {
	GDS_UNKNOWN,
	GDS_ASKING, /* a thread is probing */
	GDS_GOOD,
	GDS_BAD, /* unusable from now on */
};

/* The state of cuFile between a device and a file system.  Never freed. */
struct gds_route {
	struct gds_route *next;
	unsigned device;
	uint8_t uuid[16];
	dev_t dev;
	uint64_t fs_id;
	_Atomic uint64_t word;          /* state, errno and time, packed by route.c */
	_Atomic int mode;               /* enum cufile_mode, as found by the probe */
	atomic_bool no_holes;           /* cuFile would copy files with holes */
	atomic_bool good[PROOF_DIR_NR]; /* a request's bytes were compared and equal */
	atomic_uint failures;           /* consecutive failures */
};

/* Return 0 if the route is usable, or the positive errno why not; EAGAIN while it is probed. */
int gds_route_err(struct gds_route *route);
int gds_route_look(struct gds_route *route, uint64_t now);
/* Return true if a probe is due. */
bool gds_route_may_ask(const struct gds_route *route, uint64_t now);
/* Return true if a probe is due; the caller must then probe and call gds_route_answer(). */
bool gds_route_ask(struct gds_route *route, uint64_t now);
/* Set the state: GOOD, with err 0; or BAD or UNKNOWN, with a positive errno.  Return false if the
 * answer came too late. */
bool gds_route_answer(struct gds_route *route, enum gds_state state, int err, uint64_t now);
/* Stop using a GOOD route; err is a positive errno. */
void gds_disable(struct gds_route *route, int err);

/* Return true if this machine and its settings allow a direct path for some file. */
bool gds_may(void);

/* ------------------------------------------------------------------ pieces */

/* Return how many bytes of the piece, from *ret_skip on, cuFile could move; 0 for none. */
uint64_t gds_fit(const struct req *r, const struct piece *pc, uint64_t *ret_skip);

/* Return the alignment, in bytes, of a transfer's offsets, addresses and lengths. */
uint64_t gds_unit(const struct req *r);

/* Return true if cuFile refuses the piece only because offset and address differ mod gds_unit(). */
bool gds_only_odd(const struct req *r, const struct piece *pc);

/* How an engine moves pieces by cuFile; in move.c. */
extern const struct path_pieces gds_pieces;

/* -------------------------------------------------------------------- ends */

/* A region's registration with cuFile. */
struct gds_mem {
	struct cufile_mem *cm;
	_Atomic int err; /* positive errno why cuFile refuses the memory; 0: none */
};

/* A file's registration with cuFile. */
struct gds_file {
	_Atomic(struct cufile_file *) cf; /* the file's registration, or NULL */
	_Atomic int err; /* positive errno why the file can never have one; 0: none */
};

/* Return the region's gds part; NULL if none was created yet. */
static inline struct gds_mem *gds_mem_get(const struct region *r)
{
	return atomic_load(&r->by_path[PST_PATH_GDS]);
}

/* Return or create the region's gds part; NULL if out of memory or cuFile is disabled for the
 * device. */
struct gds_mem *gds_mem_of(struct region *r);
/* End the registration of a region; its memory stays until cuFile has released it. */
void gds_region_end(struct region *r);

/* [hangs] Return the file's registration, registering the file if needed.  -EAGAIN while another
 * thread does that; other errors as of cufile_file_get(). */
int gds_file_of(struct pst_file *f, struct cufile_file **ret, bool *ret_fresh);
/*
 * Record that a transfer failed because of the file.  The file is never tried again, unless err
 * (-errno) may be temporary.
 */
void gds_file_failed(struct pst_file *f, int err);
/* Return the positive errno why the file is not tried with cuFile, or 0. */
int gds_file_err(const struct pst_file *f);
/* End the use of a file. */
void gds_file_end(struct pst_file *f);

#endif
