/* SPDX-License-Identifier: MIT */
/* Transfers: pieces that a path moves without slots (core/ways/pieces.h). */
#ifndef PST_TRANSFER_H
#define PST_TRANSFER_H

#include "core/ways/pieces.h"

/* End a transfer.  Called by the path's thread, without the lock.  Takes over @t. */
void transfer_done(struct transfer *t);

/* --------------------------------------------- for engines, under their lock */

/* Return how many bytes of the next piece the transfers leave to a slot. */
uint64_t transfers_leave(const struct req *r, const struct piece *pc);
/* Return the next piece that a transfer failed to move and that must be staged, or NULL. */
struct piece *transfers_redo(struct req *r);
/* Advance the piece that transfers_redo() returned by len bytes, which a slot took. */
void transfers_redo_skip(struct req *r, uint64_t len);

#endif
