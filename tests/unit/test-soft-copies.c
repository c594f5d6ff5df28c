/* SPDX-License-Identifier: MIT */
/*
 * Copies of the software device: their order, many pieces, a full stream, failures.
 */
#include "soft_rig.h"

static void copies_are_in_order(void)
{
	enum { LEN = 3000, ROUNDS = 500 };
	struct mem_alloc *a = alloc(LEN + 7);
	struct mem_stream *st = stream();
	static uint8_t out[ROUNDS][LEN], in[ROUNDS][LEN];
	uint64_t t[2], last = 0;

	for (int i = 0; i < ROUNDS; i++) {
		struct mem_copy w = { .alloc = a, .off = 7, .host = out[i], .len = LEN };
		struct mem_copy r = { .alloc = a, .off = 7, .host = in[i], .len = LEN };

		t_fill(out[i], (uint64_t)i, 0, LEN);
		while (mem_copy(st, MEM_TO_DEVICE, &w, 1, &t[0]) == -EAGAIN)
			T_EQ(wait_done(st, last), 1);
		while (mem_copy(st, MEM_FROM_DEVICE, &r, 1, &t[1]) == -EAGAIN)
			T_EQ(wait_done(st, t[0]), 1);
		T_CHECK(t[0] > last && t[1] > t[0]);
		last = t[1];
	}
	T_EQ(wait_done(st, last), 1);
	for (int i = 0; i < ROUNDS; i++)
		T_EQ(t_differs(in[i], (uint64_t)i, 0, LEN), LEN);
	mem_stream_free(st);
	mem_free(a);
}

static void batches_of_many_odd_pieces(void)
{
	enum { LEN = 200000 };
	static const unsigned counts[] = { 1, 255, 256, 257, 1000, 20000 };
	static uint8_t out[LEN], in[LEN];
	static struct mem_copy v[20000];
	struct mem_alloc *a = alloc(LEN);
	struct mem_stream *st = stream();
	uint64_t t;

	for (unsigned c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
		unsigned nr = counts[c];
		uint64_t step = LEN / nr;

		for (int dir = 0; dir < 2; dir++) {
			/* copy pieces from the last to the first */
			for (unsigned i = 0; i < nr; i++)
				v[nr - 1 - i] = (struct mem_copy){
					.alloc = a,
					.off = i * step,
					.host = (dir ? in : out) + i * step,
					.len = i == nr - 1 ? LEN - i * step : step,
				};
			if (dir)
				memset(in, 0, LEN);
			else
				t_fill(out, c, 0, LEN);
			T_OK(mem_copy(st, dir ? MEM_FROM_DEVICE : MEM_TO_DEVICE, v, nr, &t));
			memset(v, 0xff, sizeof(v)); /* mem_copy() has copied the list */
			T_EQ(wait_done(st, t), 1);
		}
		T_EQ(t_differs(in, c, 0, LEN), LEN);
	}
	T_OK(mem_copy(st, MEM_TO_DEVICE, v, 0, &t));
	T_EQ(wait_done(st, t), 1);
	mem_stream_free(st);
	mem_free(a);
}

static void bad_copies_start_nothing(void)
{
	struct mem_alloc *a = alloc(100), *h;
	struct mem_stream *st = stream();
	static struct mem_copy many[65537];
	char buf[100];
	struct mem_copy v[2] = { { .alloc = a, .host = buf, .len = 100 },
				 { .alloc = a, .off = 1, .host = buf, .len = 100 } };
	uint64_t t = 77, first;

	T_EQ(mem_copy(st, MEM_TO_DEVICE, v, 2, &t), -ERANGE);
	v[1].off = UINT64_MAX;
	v[1].len = 2;
	T_EQ(mem_copy(st, MEM_TO_DEVICE, v, 2, &t), -ERANGE);
	T_OK(mem_alloc(mem_provider(PST_KIND_HOST), 0, 100, 0, &h));
	v[1] = (struct mem_copy){ .alloc = h, .host = buf, .len = 1 };
	T_EQ(mem_copy(st, MEM_TO_DEVICE, v, 2, &t), -EINVAL);
	mem_free(h);
	for (int i = 0; i < 65537; i++)
		many[i] = v[0];
	T_EQ(mem_copy(st, MEM_TO_DEVICE, many, 65537, &t), -EINVAL);
	T_EQ(t, 77);
	T_EQ(mem_poll(st, 0), -EINVAL);
	T_EQ(mem_poll(st, 1), -EINVAL);
	T_OK(mem_copy(st, MEM_FROM_DEVICE, v, 1, &first));
	T_EQ(mem_poll(st, first + 1), -EINVAL);
	T_EQ(wait_done(st, first), 1);
	mem_stream_free(st);
	mem_free(a);
}

static void a_full_stream_says_so(void)
{
	struct mem_alloc *a = alloc(100);
	struct mem_stream *st = stream();
	char buf[100] = "";
	struct mem_copy c = { .alloc = a, .host = buf, .len = 100 };
	struct mem_copy many[300];
	uint64_t t[65], extra;
	int n = 0;

	for (int i = 0; i < 300; i++)
		many[i] = c;
	T_OK(fault_set("mem.copy:1:100ms"));
	while (n < 65 && mem_copy(st, MEM_TO_DEVICE, &c, 1, &t[n]) == 0)
		n++;
	T_EQ(n, 64);
	T_EQ(mem_copy(st, MEM_TO_DEVICE, &c, 1, &extra), -EAGAIN);
	T_EQ(mem_poll(st, t[63]), 0);
	for (int i = 0; i < n; i++)
		T_EQ(wait_done(st, t[i]), 1);

	/* A batch with more pieces than there is room for waits for all earlier ones. */
	T_OK(fault_set("mem.copy:1:50ms"));
	T_OK(mem_copy(st, MEM_TO_DEVICE, many, 200, &t[0]));
	T_EQ(mem_copy(st, MEM_TO_DEVICE, many, 100, &extra), -EAGAIN);
	T_EQ(mem_copy(st, MEM_TO_DEVICE, many, 300, &extra), -EAGAIN);
	T_OK(mem_copy(st, MEM_TO_DEVICE, many, 56, &t[1]));
	T_EQ(wait_done(st, t[1]), 1);
	T_OK(mem_copy(st, MEM_TO_DEVICE, many, 300, &t[2]));
	T_EQ(wait_done(st, t[2]), 1);
	T_OK(fault_set(NULL));
	mem_stream_free(st);
	mem_free(a);
}

static void a_failed_batch_fails_alone(void)
{
	enum { N = 20 };
	struct mem_alloc *a = alloc(N);
	struct mem_stream *st = stream();
	char buf[N];
	uint64_t t[N];

	memset(buf, 1, N);
	T_OK(fault_set("mem.copy:3:EIO,mem.copy:5:ENODEV"));
	for (int i = 0; i < N; i++) {
		struct mem_copy c = { .alloc = a, .off = (uint64_t)i, .host = &buf[i], .len = 1 };

		T_OK(mem_copy(st, MEM_TO_DEVICE, &c, 1, &t[i]));
	}
	T_EQ(wait_done(st, t[N - 1]), 1);
	T_OK(fault_set(NULL));
	for (int round = 0; round < 2; round++) /* the result stays the same */
		for (int i = 0; i < N; i++)
			T_EQ(mem_poll(st, t[i]), i == 2 ? -EIO : i == 4 ? -ENODEV : 1);
	T_CHECK(strstr(err_text(), "ENODEV"));
	T_OK(mem_copy_sync(a, MEM_FROM_DEVICE, 0, buf, N));
	for (int i = 0; i < N; i++)
		T_EQ(buf[i], i != 2 && i != 4);

	T_OK(fault_set("mem.copy:1:EIO"));
	T_EQ(mem_copy_sync(a, MEM_FROM_DEVICE, 0, buf, N), -EIO);
	T_OK(fault_set(NULL));
	mem_stream_free(st);
	mem_free(a);
}

int main(void)
{
	T_RUN(copies_are_in_order);
	T_RUN(batches_of_many_odd_pieces);
	T_RUN(bad_copies_start_nothing);
	T_RUN(a_full_stream_says_so);
	T_RUN(a_failed_batch_fails_alone);
	return t_done();
}
