/* SPDX-License-Identifier: MIT */
/*
 * Transfers: pieces of a request that a path moves by itself, without slots (transfer.c).
 *
 * Such a path brings a struct path_pieces and sets the plan's pieces in its choose().  The core
 * does the rest: it cuts the request, counts transfers that may touch the memory, ends the request
 * at its deadline or cancel, says BUSY while a transfer hangs, and stages pieces that it did not
 * move.
 */
#ifndef PST_PIECES_H
#define PST_PIECES_H

#include "core/queue/cursor.h"
#include "core/queue/req.h"

struct path_pieces;

/* One transfer.  A path's own struct begins with this. */
struct transfer {
	struct req *req;
	struct piece pc;       /* the piece to move; once it is redo, the rest of that */
	struct transfer *next; /* the request's next one to be staged */

	/* The result, set by the path before transfer_done(). */
	uint64_t got;   /* less than the piece: the file ends */
	uint32_t why;   /* unless NONE, nothing of it holds: the piece is staged */
	int detail;     /* of why */
	uint32_t flags; /* PST_DONE_* */
};

/* How a path moves pieces.  All is called under the engine's lock. */
struct path_pieces {
	uint32_t path;
	uint32_t why; /* if start() fails */
	/* How much of the piece could it move, from *ret_skip on?  0 for nothing. */
	uint64_t (*fit)(const struct req *r, const struct piece *pc, uint64_t *ret_skip);
	/*
	 * Start to move the first bytes of the piece, at most len, on another thread.  1 with *ret;
	 * 0 if it has to wait: it is asked again; -errno: it moves nothing more of the request.
	 */
	int (*start)(struct req *r, const struct piece *pc, uint64_t len, struct transfer **ret);
	/* The request was stopped; its transfers may hang. */
	void (*stopped)(const struct req *r);
	void (*free)(struct transfer *t);
};

#endif
