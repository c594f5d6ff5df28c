/* SPDX-License-Identifier: MIT */
#include <inttypes.h>

#include "base/err.h"
#include "core/queue/cursor.h"

#define ADJACENT_SHARE 8u /* at most 1 piece in 8 may be adjacent to its predecessor */

/* Return true if a segment's pieces are adjacent in file and memory: they form one long piece. */
static bool seg_is_one_piece(const struct pst_seg *s)
{
	return s->file_stride == s->len && s->mem_stride == s->len;
}

void cursor_peek_strided(const struct cursor *c, struct piece *ret)
{
	const struct pst_seg *s = &c->segs[c->seg];

	ret->file_off += c->rep * s->file_stride;
	ret->mem_off += c->rep * s->mem_stride;
	if (!c->apart && seg_is_one_piece(s))
		ret->len = s->len * s->count - c->off;
}

void cursor_skip_strided(struct cursor *c, uint64_t len)
{
	const struct pst_seg *s = &c->segs[c->seg];
	bool one_piece = !c->apart && seg_is_one_piece(s);

	c->pos += len;
	c->off += len;
	if (c->off < (one_piece ? s->len * s->count : s->len))
		return;
	c->off = 0;
	if (one_piece || ++c->rep >= s->count) {
		c->rep = 0;
		c->seg++;
	}
}

/* Return the end of a segment's last piece in the file or in memory; false if it exceeds
 * int64_t. */
static bool seg_end(uint64_t off, uint64_t len, uint64_t stride, uint64_t count, uint64_t *ret)
{
	uint64_t span, end;

	if (likely(count < 2))
		span = 0;
	else if (__builtin_mul_overflow(stride, count - 1, &span))
		return false;
	if (__builtin_add_overflow(off, span, &end) || __builtin_add_overflow(end, len, &end) ||
	    end > INT64_MAX)
		return false;
	*ret = end;
	return true;
}

int segs_check(const struct pst_seg *segs, uint64_t nr, uint64_t mem_len, struct segs_shape *ret)
{
	uint64_t total = 0, pieces = 0, off_bits = 0, next_off = UINT64_MAX, adjacent = 0;
	bool even = true;

	for (uint64_t i = 0; i < nr; i++) {
		const struct pst_seg *s = &segs[i];
		uint64_t end, bytes;

		if (!s->len)
			return err_set(EINVAL, "segment %" PRIu64 " has length zero; leave it out",
				       i);
		if (!seg_end(s->file_off, s->len, s->file_stride, s->count, &end))
			return err_set(EOVERFLOW,
				       "segment %" PRIu64 " ends beyond 2^63 bytes in the file", i);
		if (!seg_end(s->mem_off, s->len, s->mem_stride, s->count, &end))
			return err_set(EOVERFLOW,
				       "segment %" PRIu64 " ends beyond 2^63 bytes in memory", i);
		if (end > mem_len)
			return err_set(ERANGE,
				       "segment %" PRIu64 " ends at byte %" PRIu64
				       " of memory that has %" PRIu64,
				       i, end, mem_len);
		pieces += MAX(s->count, UINT64_C(1));
		if (s->count > PST_PIECES_MAX || pieces > PST_PIECES_MAX)
			return err_set(EINVAL, "more than %u pieces; use several requests",
				       PST_PIECES_MAX);
		bytes = s->len;
		if ((s->count > 1 && __builtin_mul_overflow(s->len, s->count, &bytes)) ||
		    __builtin_add_overflow(total, bytes, &total) || total > INT64_MAX)
			return err_set(EOVERFLOW, "the segments add up to more than 2^63 bytes");
		even &= s->len == segs->len && s->count < 2;
		adjacent += s->file_off == next_off;
		next_off = s->file_off + s->len;
		off_bits |= s->file_off;
	}
	even &= adjacent * ADJACENT_SHARE <= nr;
	*ret = (struct segs_shape){ total, even ? segs->len : 0, off_bits };
	return 0;
}
