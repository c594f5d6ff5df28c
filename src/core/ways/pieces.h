/* SPDX-License-Identifier: MIT */
/*
 * Transfers: pieces of a request that a path moves by itself, without slots (transfer.c).
 *
 * Such a path has a struct path_pieces, and sets the plan's pieces in its choose().  The core does
 * the rest: it cuts the request, counts transfers that may touch the memory, ends the request at
 * its deadline or when cancelled, says BUSY while a transfer hangs, and stages the pieces that were
 * not moved.
 */
#ifndef PST_PIECES_H
#define PST_PIECES_H

#include "core/queue/cursor.h"
#include "core/queue/req.h"

struct path_pieces;

/* One transfer, the first member of a path's own struct. */
struct transfer {
	struct req *req;
	struct piece pc;       /* the piece to move; on the redo list, the rest of it */
	struct transfer *next; /* the request's next transfer to be staged */

	/* The result, set by the path before transfer_done(). */
	uint64_t got;   /* bytes moved; fewer than the piece: the file ends */
	uint32_t why;   /* if not NONE, nothing of it counts and the piece is staged */
	int detail;     /* of why */
	uint32_t flags; /* PST_DONE_* */
};

/* How a path moves pieces.  All calls are made under the engine's lock. */
struct path_pieces {
	uint32_t path;
	uint32_t why; /* the reason if start() fails */
	/* Return how many bytes of the piece the path could move, from *ret_skip on; 0 for none. */
	uint64_t (*fit)(const struct req *r, const struct piece *pc, uint64_t *ret_skip);
	/*
	 * Start to move at most len first bytes of the piece on another thread.  Return 1 with
	 * *ret; 0 if it has to wait, and is called again; -errno if it moves nothing more of the
	 * request.
	 */
	int (*start)(struct req *r, const struct piece *pc, uint64_t len, struct transfer **ret);
	/* The request was stopped; its transfers may hang. */
	void (*stopped)(const struct req *r);
	void (*free)(struct transfer *t);
};

#endif
