/* SPDX-License-Identifier: MIT */
/*
 * The pieces of a request, in order.
 */
#ifndef PST_CURSOR_H
#define PST_CURSOR_H

#include <penstock.h>

#include "base/base.h"

#define PIECES_MAX (UINT64_C(1) << 24) /* of one request */

/* Bytes of a request that are contiguous in the file and in memory. */
struct piece {
	uint64_t file_off;
	uint64_t mem_off; /* in the pst_mem */
	uint64_t len;
	uint64_t pos; /* bytes of the request before it, in piece order */
};

/* Walks the pieces of a request in order. */
struct cursor {
	const struct pst_seg *segs;
	uint64_t nr;
	uint64_t seg; /* which segment */
	uint64_t rep; /* which repetition of it */
	uint64_t off; /* bytes of that piece already given out */
	uint64_t pos; /* bytes given out in all */
};

void cursor_init(struct cursor *c, const struct pst_seg *segs, uint64_t nr);

/* The next piece without moving on; false at the end. */
bool cursor_peek(const struct cursor *c, struct piece *ret);

/* Move on by len bytes of the piece that peek shows. */
void cursor_skip(struct cursor *c, uint64_t len);

static inline bool cursor_at_end(const struct cursor *c)
{
	return c->seg >= c->nr;
}

/* Check segments against the memory's length; the sum of bytes in *ret_total. */
int segs_check(const struct pst_seg *segs, uint64_t nr, uint64_t mem_len, uint64_t *ret_total);

#endif
