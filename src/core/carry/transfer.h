/* SPDX-License-Identifier: MIT */
/*
 * Transfers of pieces by their paths (core/ways/pieces.h).
 */
#ifndef PST_TRANSFER_H
#define PST_TRANSFER_H

#include "core/ways/pieces.h"

/* A transfer is over: called by the path's thread, without the lock.  It takes @t. */
void transfer_done(struct transfer *t);

/* --------------------------------------------- for engines, under their lock */

/* How many bytes of the piece, which is next, are for a slot. */
uint64_t transfers_leave(const struct req *r, const struct piece *pc);
/* The piece that a transfer did not move and that is staged next; NULL: there is none. */
struct piece *transfers_redo(struct req *r);
/* A slot took len bytes of that. */
void transfers_redo_skip(struct req *r, uint64_t len);

#endif
