/* SPDX-License-Identifier: MIT */
/*
 * The pieces of a request, in order.
 */
#ifndef PST_CURSOR_H
#define PST_CURSOR_H

#include <penstock.h>

#include "base/base.h"

#define PIECES_MAX (UINT64_C(1) << 24) /* maximum pieces of one request */

/* Bytes of a request that are contiguous in the file and in memory. */
struct piece {
	uint64_t file_off;
	uint64_t mem_off; /* offset in the pst_mem, bytes */
	uint64_t len;
	uint64_t pos; /* bytes of all earlier pieces of the request */
};

/* Facts about all pieces of a request, as segs_check() finds them. */
struct segs_shape {
	uint64_t total;    /* bytes of all pieces */
	uint64_t even;     /* bytes of each piece; 0 if lengths differ, if a segment has several
			    * pieces, or if over 1/8 of the pieces begin where their predecessor
			    * ends in the file */
	uint64_t off_bits; /* bitwise OR of all file offsets */
};

/* An iterator over the pieces of a request, in order. */
struct cursor {
	const struct pst_seg *segs;
	uint64_t nr;
	uint64_t seg; /* index of the current segment */
	uint64_t rep; /* index of the current piece in the segment */
	uint64_t off; /* bytes of the current piece that were already taken */
	uint64_t pos; /* bytes taken from all pieces */
	bool apart;   /* do not merge adjacent pieces */
};

static inline void cursor_init(struct cursor *c, const struct pst_seg *segs, uint64_t nr)
{
	*c = (struct cursor){ .segs = segs, .nr = nr };
}

static inline bool cursor_at_end(const struct cursor *c)
{
	return c->seg >= c->nr;
}

/* cursor_peek() and cursor_skip() for a segment with more than one piece. */
void cursor_peek_strided(const struct cursor *c, struct piece *ret);
void cursor_skip_strided(struct cursor *c, uint64_t len);

/* Return the rest of the current piece without advancing; false at the end. */
static inline bool cursor_peek(const struct cursor *c, struct piece *ret)
{
	const struct pst_seg *s = &c->segs[c->seg];

	if (cursor_at_end(c))
		return false;
	ret->file_off = s->file_off + c->off;
	ret->mem_off = s->mem_off + c->off;
	ret->len = s->len - c->off;
	ret->pos = c->pos;
	if (unlikely(s->count > 1))
		cursor_peek_strided(c, ret);
	return true;
}

/* Advance by len bytes of the piece that cursor_peek() returned. */
static inline void cursor_skip(struct cursor *c, uint64_t len)
{
	const struct pst_seg *s = &c->segs[c->seg];

	if (unlikely(s->count > 1)) {
		cursor_skip_strided(c, len);
		return;
	}
	c->pos += len;
	c->off += len;
	if (c->off >= s->len) {
		c->off = 0;
		c->seg++;
	}
}

/* Advance by nr whole pieces of length len. */
static inline void cursor_skip_even(struct cursor *c, uint64_t nr, uint64_t len)
{
	c->seg += nr;
	c->pos += nr * len;
}

/* Return true if a piece fits into the file and into memory of mem_len bytes.  If it does not,
 * segs_check() reports why. */
static inline bool piece_fits(uint64_t file_off, uint64_t mem_off, uint64_t len, uint64_t mem_len)
{
	return len && len <= mem_len && mem_off <= mem_len - len && file_off <= INT64_MAX - len;
}

/* Check segments against the memory's length. */
int segs_check(const struct pst_seg *segs, uint64_t nr, uint64_t mem_len, struct segs_shape *ret);

#endif
