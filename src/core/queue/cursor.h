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

/* segs_check() tells this of all pieces of a request. */
struct segs_shape {
	uint64_t total; /* bytes */
	uint64_t even;  /* bytes of each piece; 0: they differ, a segment repeats its own, or more
			    * than a few go on in the file where the one before them ends */
	uint64_t off_bits; /* that are set in any offset in the file */
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

static inline void cursor_init(struct cursor *c, const struct pst_seg *segs, uint64_t nr)
{
	*c = (struct cursor){ .segs = segs, .nr = nr };
}

static inline bool cursor_at_end(const struct cursor *c)
{
	return c->seg >= c->nr;
}

/* cursor_peek() and cursor_skip() call these for a segment that repeats its piece. */
void cursor_peek_strided(const struct cursor *c, struct piece *ret);
void cursor_skip_strided(struct cursor *c, uint64_t len);

/* The next piece without moving on; false at the end. */
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

/* Move on by len bytes of the piece that peek shows. */
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

/* Take the next nr pieces, which are whole and of the same length. */
static inline void cursor_skip_even(struct cursor *c, uint64_t nr, uint64_t len)
{
	c->seg += nr;
	c->pos += nr * len;
}

/* Does one piece fit into a file and into memory of that length?  If not, segs_check() says why. */
static inline bool piece_fits(uint64_t file_off, uint64_t mem_off, uint64_t len, uint64_t mem_len)
{
	return len && len <= mem_len && mem_off <= mem_len - len && file_off <= INT64_MAX - len;
}

/* Check segments against the memory's length. */
int segs_check(const struct pst_seg *segs, uint64_t nr, uint64_t mem_len, struct segs_shape *ret);

#endif
