/* SPDX-License-Identifier: MIT */
/*
 * Transfers: pieces of a request that a path moves by itself, without slots (transfer.c).
 *
 * Such a path has a struct path_pieces, and sets the plan's pieces in its choose().  The core does
 * the rest: it cuts the request, counts transfers that may touch the memory, ends the request at
 * its deadline or when cancelled, sets BUSY while a transfer hangs, and stages the pieces that were
 * not moved.
 */
#ifndef PST_PIECES_H
#define PST_PIECES_H

#include "core/queue/cursor.h"
#include "core/queue/req.h"

struct path_pieces;

/* One transfer: the first member of a struct that the path defines. */
struct transfer {
	struct req *req;
	struct piece pc;       /* the piece to move; in a transfer to be staged, the rest of the
			        * piece */
	struct transfer *next; /* next transfer of the request that is to be staged */

	/* The result, set by the path before transfer_done(). */
	uint64_t got;   /* bytes moved; if fewer than the piece, the file ended */
	uint32_t why;   /* if not PST_WHY_NONE, discard got and stage the piece */
	int detail;     /* detail of @why */
	uint32_t flags; /* PST_DONE_* */
};

/* How a path moves pieces.  The core calls all members under the engine's lock. */
struct path_pieces {
	uint32_t path;
	uint32_t why; /* PST_WHY_* of the request if start() fails */
	/* Return how many bytes of the piece the path can move, beginning *ret_skip bytes into it;
	 * 0: none. */
	uint64_t (*fit)(const struct req *r, const struct piece *pc, uint64_t *ret_skip);
	/*
	 * Start to move the first bytes of the piece, at most len, on another thread.  Return 1 and
	 * set *ret; 0 if the path must wait, and is called again; -errno if the path moves nothing
	 * more of the request.
	 */
	int (*start)(struct req *r, const struct piece *pc, uint64_t len, struct transfer **ret);
	/* Note that the request was stopped.  The request's transfers may hang. */
	void (*stopped)(const struct req *r);
	void (*free)(struct transfer *t);
};

#endif
