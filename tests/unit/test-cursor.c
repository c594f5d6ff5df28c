/* SPDX-License-Identifier: MIT */
/*
 * Segments: which ones a request refuses, and that a cursor returns each byte once and in order,
 * for pieces of any size.
 */
#include "rig.h"

#include "core/queue/cursor.h"
#include "core/queue/queue.h"

static int check1(struct pst_seg s, uint64_t mem_len)
{
	struct segs_shape shape;

	return segs_check(&s, 1, mem_len, &shape);
}

static void sums(void)
{
	struct pst_seg v[] = { { 0, 0, 10, 0, 0, 0 },
			       { 5, 0, 7, 100, 10, 3 },
			       { 9, 9, 1, 9, 9, 1 } };
	struct segs_shape shape = { .total = 77 };

	T_OK(segs_check(v, 3, 100, &shape));
	T_EQ(shape.total, 10 + 21 + 1);
	T_EQ(segs_check(v, 3, 26, &shape), -ERANGE);
	T_EQ(shape.total, 32); /* set only on success */
	T_OK(segs_check(v, 3, 27, &shape));
}

static void shapes(void)
{
	struct pst_seg v[] = { { 4096, 0, 10, 0, 0, 0 }, { 8192, 20, 10, 0, 0, 1 } };
	struct segs_shape shape;

	T_OK(segs_check(v, 2, 100, &shape));
	T_EQ(shape.even, 10);
	T_EQ(shape.off_bits, 4096 | 8192);
	v[1].file_off = 4106; /* adjacent to its predecessor */
	T_OK(segs_check(v, 2, 100, &shape));
	T_EQ(shape.even, 0);
	v[1].len = 9;
	v[1].file_off = 3;
	T_OK(segs_check(v, 2, 100, &shape));
	T_EQ(shape.even, 0);
	T_EQ(shape.off_bits, 4096 | 3);
	v[1] = (struct pst_seg){ 0, 20, 10, 10, 10, 2 };
	T_OK(segs_check(v, 2, 100, &shape));
	T_EQ(shape.even, 0);
	T_OK(segs_check(v, 1, 100, &shape));
	T_EQ(shape.even, 10);
}

static void limits(void)
{
	const uint64_t top = INT64_MAX;

	T_EQ(check1((struct pst_seg){ 0, 0, 0, 0, 0, 1 }, 10), -EINVAL);
	T_OK(check1((struct pst_seg){ top - 1, 0, 1, 0, 0, 1 }, 1));
	T_EQ(check1((struct pst_seg){ top, 0, 1, 0, 0, 1 }, 1), -EOVERFLOW);
	T_EQ(check1((struct pst_seg){ UINT64_MAX, 0, 1, 0, 0, 1 }, 1), -EOVERFLOW);
	T_EQ(check1((struct pst_seg){ 0, UINT64_MAX, 1, 0, 0, 1 }, 1), -EOVERFLOW);
	T_OK(check1((struct pst_seg){ 0, 0, 1, top - 1, 0, 2 }, 1));
	T_EQ(check1((struct pst_seg){ 0, 0, 1, top, 0, 2 }, 1), -EOVERFLOW);
	T_EQ(check1((struct pst_seg){ 0, 0, 1, UINT64_MAX, 0, 3 }, 1), -EOVERFLOW);
	T_OK(check1((struct pst_seg){ 0, 0, top, 0, 0, 1 }, top));
	T_EQ(check1((struct pst_seg){ 0, 0, top, 0, 0, 2 }, top), -EOVERFLOW);
	T_OK(check1((struct pst_seg){ 0, 0, 1, 0, 0, PST_PIECES_MAX }, 1));
	T_EQ(check1((struct pst_seg){ 0, 0, 1, 0, 0, PST_PIECES_MAX + 1 }, 1), -EINVAL);
	T_EQ(check1((struct pst_seg){ 0, 0, 1, 0, 0, UINT64_MAX }, 1), -EINVAL);
	T_CHECK(pst_error_text()[0]);
}

/* Walk the segments in pieces of at most max bytes.  Compare with a simple loop over all bytes. */
static void walk(const struct pst_seg *v, uint64_t nr, uint64_t max)
{
	uint64_t seg = 0, rep = 0, at = 0, pos = 0;
	struct cursor c;
	struct piece p;

	cursor_init(&c, v, nr);
	while (cursor_peek(&c, &p)) {
		uint64_t n = 1 + rig_below(p.len < max ? p.len : max);

		T_CHECK(!cursor_at_end(&c));
		T_CHECK(p.len >= 1);
		T_EQ(p.pos, pos);
		n = n < p.len ? n : p.len;
		for (uint64_t i = 0; i < n; i++, at++, pos++) {
			if (at == v[seg].len) {
				at = 0;
				if (++rep >= (v[seg].count ? v[seg].count : 1)) {
					rep = 0;
					seg++;
				}
			}
			T_CHECK(seg < nr);
			T_EQ(p.file_off + i, v[seg].file_off + rep * v[seg].file_stride + at);
			T_EQ(p.mem_off + i, v[seg].mem_off + rep * v[seg].mem_stride + at);
		}
		cursor_skip(&c, n);
	}
	T_CHECK(cursor_at_end(&c));
	T_CHECK(!cursor_peek(&c, &p));
	T_EQ(seg, nr - 1);
	T_EQ(at, v[seg].len);
}

static void walks(void)
{
	for (unsigned round = 0; round < 300; round++) {
		struct pst_seg v[6];
		uint64_t nr = 1 + rig_below(RIG_NR(v)), sum = 0;
		struct segs_shape shape;

		for (uint64_t i = 0; i < nr; i++) {
			uint64_t len = 1 + rig_below(50);

			v[i] = (struct pst_seg){ rig_below(1000),
						 rig_below(1000),
						 len,
						 rig_below(3) ? len : rig_below(200),
						 rig_below(3) ? len : rig_below(200),
						 rig_below(9) };
			sum += len * (v[i].count ? v[i].count : 1);
		}
		T_OK(segs_check(v, nr, 10000, &shape));
		T_EQ(shape.total, sum);
		walk(v, nr, 1 + rig_below(100));
	}
}

/* Adjacent repetitions are returned as one piece. */
static void adjacent(void)
{
	struct pst_seg v = { 100, 200, 10, 10, 10, 1000 };
	struct cursor c;
	struct piece p;

	cursor_init(&c, &v, 1);
	T_CHECK(cursor_peek(&c, &p));
	T_EQ(p.len, 10000);
	v.mem_stride = 11;
	T_CHECK(cursor_peek(&c, &p));
	T_EQ(p.len, 10);
}

int main(void)
{
	rig_init();
	T_RUN(sums);
	T_RUN(shapes);
	T_RUN(limits);
	T_RUN(walks);
	T_RUN(adjacent);
	return rig_done();
}
