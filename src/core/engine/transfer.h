/* SPDX-License-Identifier: MIT */
/*
 * Transfers: pieces of a request that a path moves by itself, without slots (transfer.c).
 *
 * Such a path brings a struct path_pieces and sets req_plan(r)->pieces in its choose().  The core does
 * the rest: it cuts the request, counts transfers that may touch the memory, ends the request at
 * its deadline or cancel, says BUSY while a transfer hangs, and stages pieces that it did not move.
 */
#ifndef PST_TRANSFER_H
#define PST_TRANSFER_H

#include "core/queue/cursor.h"
#include "core/queue/req.h"

struct path_pieces;

/* One transfer.  A path's own struct begins with this. */
struct transfer {
	struct req *req;
	struct piece pc;       /* the piece to move; once it is redo, the rest of that */
	struct transfer *next; /* req_engine(r)->redo */

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

/* A transfer is over: called by the path's thread, without the lock.  It takes @t. */
void transfer_done(struct transfer *t);

/* --------------------------------------------- for engines, under their lock */

enum transfers_turn {
	TRANSFERS_LATER, /* the next piece has to wait, or there is none */
	TRANSFERS_SLOT,  /* the next piece is for a slot, or the request has failed */
};

/* Start as many pieces of the request as can be started. */
enum transfers_turn transfers_start(struct req *r);
/* How many bytes of the piece, which is next, are for a slot. */
uint64_t transfers_leave(const struct req *r, const struct piece *pc);
/* The piece that a transfer did not move and that is staged next; NULL: there is none. */
struct piece *transfers_redo(struct req *r);
/* A slot took len bytes of that. */
void transfers_redo_skip(struct req *r, uint64_t len);
/* Nobody is going to move it. */
void transfers_redo_drop(struct req *r);

#endif
