/* SPDX-License-Identifier: MIT */
/*
 * Requests by cuFile (gds/cufile/cufile.h), where it is really direct.
 *
 *	route.c	what is known of the route between a device and a file system
 *	gds.c		routes between devices and file systems, and requests that take them
 *	move.c	pieces of a request, moved and compared
 *	end.c	registrations, which end before the memory and the file do
 *
 * A request goes through its engine as always.  engine_next() gives the pieces that cuFile can move
 * to spawned threads, because cuFile may hang (base/work.h), and the rest to slots.  Pieces that
 * cuFile did not move after all come back as the redo of req_engine(r) and are staged.
 *
 * The lock of gds is taken after an engine's, and no lock is held while cuFile is called.
 */
#ifndef PST_GDS_H
#define PST_GDS_H

#include "base/work.h"
#include "gds/cufile/cufile.h"
#include "core/queue/req.h"
#include "core/ways/path.h"
#include "core/ways/proof.h"

#define GDS_THREAD "pst-gds" /* the name of threads that call cuFile */
#define GDS_MIN KIB(64)      /* shorter pieces are staged, because cuFile takes longer to start */
#define GDS_CHUNK MIB(4)     /* most bytes of one transfer, if several may share a registration */
#define GDS_THREADS 4u       /* transfers of a device at a time, without hanging ones */
#define GDS_HUNG_MAX 8u      /* hanging transfers after which cuFile is not used with the device */
/* Consecutive unexplained failures after which cuFile is not used with the file system. */
#define GDS_FAILURES_MAX 3u
/* Time without progress after which waiting pieces are staged. */
#define GDS_PATIENCE_NS NSEC_PER_SEC
#define GDS_HUNG_NS (10 * NSEC_PER_SEC) /* time after which a call counts as hung */
#define GDS_LOST_NS NSEC_PER_SEC        /* the same after its request was stopped */
/* Time to wait for another thread that registers the same. */
#define GDS_SOON_NS (100 * NSEC_PER_MSEC)
#define GDS_END_NS NSEC_PER_SEC /* how long a free or close waits for cuFile */

/* ------------------------------------------------------------------ routes */

enum gds_state {
	GDS_UNKNOWN,
	GDS_ASKING, /* a thread is finding out */
	GDS_GOOD,
	GDS_BAD, /* bad for good */
};

/* The state of cuFile between a device and a file system.  Never freed. */
struct gds_route {
	struct gds_route *next;
	unsigned device;
	uint8_t uuid[16];
	dev_t dev;
	uint64_t fs_id;
	_Atomic uint64_t word;          /* state, errno and time; route.c's */
	_Atomic int mode;               /* enum cufile_mode, as the probe found it */
	atomic_bool no_holes;           /* files with holes would be copied */
	atomic_bool good[PROOF_DIR_NR]; /* bytes of a request were compared */
	atomic_uint failures;           /* consecutive failures */
};

/* 0, or the positive errno why it is not used now; EAGAIN: that is being found out. */
int gds_route_err(struct gds_route *route);
int gds_route_look(struct gds_route *route, uint64_t now);
/* Return true if it is time to find out. */
bool gds_route_may_ask(const struct gds_route *route, uint64_t now);
/* Return true if it is time; the caller then must find out, and call gds_route_answer(). */
bool gds_route_ask(struct gds_route *route, uint64_t now);
/* GOOD and 0, or BAD or UNKNOWN and a positive errno.  False: the question was given up. */
bool gds_route_answer(struct gds_route *route, enum gds_state state, int err, uint64_t now);
/* Stop using a GOOD route; err is a positive errno. */
void gds_disable(struct gds_route *route, int err);

/* Return true if any file may have a direct path, on this machine and with its settings. */
bool gds_may(void);

/* ------------------------------------------------------------------ pieces */

/* How much of the piece cuFile could move, from *ret_skip on; 0 for nothing. */
uint64_t gds_fit(const struct req *r, const struct piece *pc, uint64_t *ret_skip);

/* Return the unit of a transfer's offsets, addresses and lengths. */
uint64_t gds_unit(const struct req *r);

/* Could cuFile move the piece, if file offset and address were the same modulo gds_unit()? */
bool gds_only_odd(const struct req *r, const struct piece *pc);

/* move.c: how an engine moves pieces by cuFile. */
extern const struct path_pieces gds_pieces;

/* -------------------------------------------------------------------- ends */

/* A region's registration with cuFile. */
struct gds_mem {
	struct cufile_mem *cm;
	_Atomic int err; /* why cuFile refuses the memory altogether */
};

/* A file's registration with cuFile. */
struct gds_file {
	_Atomic(struct cufile_file *) cf; /* its registration, or NULL */
	_Atomic int err;                  /* why the file can never have one */
};

/* NULL: none is known yet. */
static inline struct gds_mem *gds_mem_get(const struct region *r)
{
	return atomic_load(&r->by_path[PST_PATH_GDS]);
}

/* NULL: out of memory, or a device that cuFile is not used with. */
struct gds_mem *gds_mem_of(struct region *r);
/* End the use of a region; the region stays until cuFile has released it. */
void gds_region_end(struct region *r);

/* [hangs] The file's registration, made if there is none yet.  -EAGAIN while another
 * thread does that; else as cufile_file_get(). */
int gds_file_of(struct pst_file *f, struct cufile_file **ret, bool *ret_fresh);
/*
 * Record that the transfer failed for a reason of the file.  The file is not tried again, unless
 * err, -errno, may have gone by the next time.
 */
void gds_file_failed(struct pst_file *f, int err);
/* A positive errno: the file is not asked about. */
int gds_file_err(const struct pst_file *f);
/* End the use of a file. */
void gds_file_end(struct pst_file *f);

#endif
