/* SPDX-License-Identifier: MIT */
#include <errno.h>

#include "kv/store.h"
#include "kv/target.h"

/* Copy the segments for len bytes.  The copies' file offsets become offsets in the block. */
static int copy_segs(const struct pst_kv_item *item, uint64_t len, struct target *t)
{
	uint64_t at = 0;

	t->segs = calloc(item->nr_segs + 1, sizeof(*t->segs));
	if (!t->segs)
		return -ENOMEM;
	for (uint64_t i = 0; i < item->nr_segs && at < len; i++) {
		struct pst_seg s = item->segs[i];
		uint64_t count = s.count ? s.count : 1, whole = MIN(count, (len - at) / s.len);

		s.mem_off += t->off;
		s.file_off = at;
		s.file_stride = s.len;
		s.count = whole;
		if (whole)
			t->segs[t->nr_segs++] = s;
		at += whole * s.len;
		/* The block ends within a piece: add the piece's first bytes. */
		if (whole < count && at < len) {
			s.mem_off += whole * s.mem_stride;
			s.file_off = at;
			s.len = len - at;
			s.count = 1;
			t->segs[t->nr_segs++] = s;
			at = len;
		}
	}
	return 0;
}

uint64_t target_extent(const struct pst_kv_item *item)
{
	uint64_t end = item->segs ? 0 : item->len;

	for (uint64_t i = 0; item->segs && i < item->nr_segs; i++) {
		const struct pst_seg *s = &item->segs[i];
		uint64_t last = s->mem_off + s->len;

		if (s->count > 1)
			last += (s->count - 1) * s->mem_stride;
		end = MAX(end, last);
	}
	return end;
}

int target_init(struct target *t, const struct pst_kv_item *item, uint64_t len)
{
	int r = 0;

	*t = (struct target){ .mem = item->mem, .off = item->mem_off };
	if (!t->mem) {
		r = pst_mem_wrap(item->mem_off, target_extent(item), NULL, &t->wrapped);
		t->mem = t->wrapped;
		t->off = 0;
	}
	if (r == 0 && item->segs)
		r = copy_segs(item, len, t);
	return r;
}

void target_done(struct pst_kv *kv, struct target *t, bool busy)
{
	if (t->wrapped && busy)
		busy_keep(kv, t->wrapped);
	else
		pst_mem_free(t->wrapped);
	free(t->segs);
}

/* Call copy for each piece of the target, with the address of its bytes in the block. */
static int target_each(const struct target *t, char *block, uint64_t len,
		       int (*copy)(struct pst_mem *mem, uint64_t off, char *at, uint64_t len))
{
	int r = 0;

	if (!t->segs)
		return copy(t->mem, t->off, block, len);
	for (uint64_t i = 0; r == 0 && i < t->nr_segs; i++) {
		const struct pst_seg *s = &t->segs[i];

		for (uint64_t k = 0; r == 0 && k < s->count; k++, block += s->len)
			r = copy(t->mem, s->mem_off + k * s->mem_stride, block, s->len);
	}
	return r;
}

static int target_copy_in(struct pst_mem *mem, uint64_t off, char *at, uint64_t len)
{
	return pst_mem_copy_in(mem, off, at, len);
}

static int target_copy_out(struct pst_mem *mem, uint64_t off, char *at, uint64_t len)
{
	return pst_mem_copy_out(mem, off, at, len);
}

int target_put(const struct target *t, const void *block, uint64_t len)
{
	return target_each(t, (char *)block, len, target_copy_in);
}

int target_take(const struct target *t, void *block, uint64_t len)
{
	return target_each(t, block, len, target_copy_out);
}
