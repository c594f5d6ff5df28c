/* SPDX-License-Identifier: MIT */
#include "cuda_rig.h"

static uint64_t random_next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

enum { G_HOST = 1 << 20, G_DEV = 4 << 20, G_PIECES = 64 };

/* Random pieces there and back through one stream, checked byte by byte. */
static void pieces(struct mem_stream *st, struct mem_alloc *a, uint8_t *host, uint8_t *model,
		   uint64_t *seed, uint32_t path)
{
	unsigned nr = 4 + (unsigned)(random_next(seed) % (G_PIECES - 4));
	struct mem_copy v[G_PIECES];
	uint64_t t, dev = 0, at = 0;

	for (unsigned i = 0; i < nr; i++) {
		uint64_t len = random_next(seed) % 3 ? 1 + random_next(seed) % 200
						     : random_next(seed) % 15000;

		/* Gaps in the device's memory must stay as they are. */
		dev += random_next(seed) % 40000;
		at += random_next(seed) % 5 * (random_next(seed) % 17);
		v[i] = (struct mem_copy){ .alloc = a, .off = dev, .host = host + at, .len = len };
		t_fill(host + at, *seed, at, len);
		memcpy(model + dev, host + at, len);
		dev += len;
		at += len;
	}
	T_CHECK(at <= G_HOST && dev <= G_DEV);
	T_OK(mem_copy(st, MEM_TO_DEVICE, v, nr, &t));
	T_EQ(mem_copied_by(st), path);
	T_EQ(wait_done(st, t), 1);

	memset(host, 0, G_HOST);
	T_OK(mem_copy(st, MEM_FROM_DEVICE, v, nr, &t));
	T_EQ(mem_copied_by(st), path);
	T_EQ(wait_done(st, t), 1);
	for (unsigned i = 0; i < nr; i++)
		T_CHECK(!memcmp(v[i].host, model + v[i].off, v[i].len));
}

static void many(int rounds, uint32_t path)
{
	struct stub_cuda_state before = state();
	struct mem_alloc *a = alloc(G_DEV);
	struct mem_stream *st = stream(0);
	uint8_t *host = map(G_HOST), *model = map(G_DEV), *in = map(G_DEV);
	uint64_t seed = 12345;

	T_OK(ops()->pin(0, host, G_HOST));
	T_OK(mem_copy_sync(a, MEM_TO_DEVICE, 0, model, G_DEV));
	for (int i = 0; i < rounds; i++)
		pieces(st, a, host, model, &seed, path);
	T_OK(mem_copy_sync(a, MEM_FROM_DEVICE, 0, in, G_DEV));
	T_CHECK(!memcmp(in, model, G_DEV));
	mem_stream_free(st);
	ops()->unpin(0, host, G_HOST);
	mem_free(a);
	(void)munmap(host, G_HOST);
	(void)munmap(model, G_DEV);
	(void)munmap(in, G_DEV);
	SAME_THREAD(before);
	SAME_OBJECTS(before);
}

static void many_pieces_by_the_kernel(void)
{
	struct stub_cuda_state before = state();

	many(60, PST_PATH_GATHER);
	if (x.state)
		T_EQ(state().kernels - before.kernels, 120);
}

/* The list of tiles goes round and fills up. */
static void the_ring_goes_round(void)
{
	struct mem_alloc *a = alloc(G_DEV);
	struct mem_stream *st = stream(0);
	uint8_t *host = map(G_DEV), *in = map(G_DEV);
	static struct mem_copy v[1000];
	uint64_t t = 0, oldest = 1;
	unsigned again = 0;
	int r;

	T_OK(ops()->pin(0, host, G_DEV));
	if (x.delay_us)
		x.delay_us(300);
	for (int round = 0; round < 100; round++) {
		unsigned nr = 500 + (unsigned)(round * 37 % 500);

		if (round % 50 == 0) /* nothing is under way */
			t_fill(host, (uint64_t)round, 0, 4000);
		for (unsigned i = 0; i < nr; i++)
			v[i] = (struct mem_copy){ .alloc = a,
						  .off = (nr - 1 - i) * 4000,
						  .host = host + i * 4000,
						  .len = 3999 };
		while ((r = mem_copy(st, MEM_TO_DEVICE, v, nr, &t)) == -EAGAIN) {
			again++;
			T_CHECK(mem_poll(st, oldest) >= 0);
			if (mem_poll(st, oldest) > 0)
				oldest++;
		}
		T_OK(r);
		T_EQ(mem_copied_by(st), PST_PATH_GATHER);
		T_EQ(t, (uint64_t)round + 1);
		if (round % 50 == 49) {
			T_EQ(wait_done(st, t), 1);
			T_OK(mem_copy_sync(a, MEM_FROM_DEVICE, (nr - 1) * 4000, in, 3999));
			T_CHECK(!memcmp(in, host, 3999));
		}
	}
	if (x.delay_us) {
		x.delay_us(0);
		T_CHECK(again > 0);
	}
	/* More tiles than the ring has: then without the kernel. */
	static struct mem_copy big[9000];

	for (unsigned i = 0; i < 9000; i++)
		big[i] = (struct mem_copy){
			.alloc = a, .off = i * 400, .host = host + i * 400, .len = 399
		};
	T_OK(mem_copy(st, MEM_TO_DEVICE, big, 9000, &t));
	T_EQ(mem_copied_by(st), PST_PATH_STAGED);
	T_EQ(wait_done(st, t), 1);
	mem_stream_free(st);
	ops()->unpin(0, host, G_DEV);
	(void)munmap(host, G_DEV);
	(void)munmap(in, G_DEV);
	mem_free(a);
}

static void pieces_cross_registrations_and_chunks(void)
{
	struct mapped m = mapped_new(2, 2, 0, CU_PROT_READ_WRITE);
	struct mem_stream *st = stream(0);
	uint64_t len = MIB(128), t;
	uint8_t *host = map(len), in[5000];
	struct mem_copy v[5];
	struct mem_alloc *w;

	T_OK(ops()->pin(0, host, len));
	T_OK(mem_wrap(m.va, 2 * CHUNK, 0, 0, &w));
	t_fill(host + MIB(64) - 2501, 5, 0, 5000);
	for (unsigned nr = 1; nr <= 5; nr += 4) {
		for (unsigned i = 0; i < nr; i++)
			v[i] = (struct mem_copy){ .alloc = w,
						  .off = CHUNK - 2500 + i * 6000,
						  .host = host + MIB(64) - 2501,
						  .len = 5000 };
		T_OK(mem_copy(st, MEM_TO_DEVICE, v, nr, &t));
		T_EQ(mem_copied_by(st), nr == 1 ? PST_PATH_STAGED : PST_PATH_GATHER);
		T_EQ(wait_done(st, t), 1);
		for (unsigned i = 0; i < nr; i++) {
			T_OK(mem_copy_sync(w, MEM_FROM_DEVICE, v[i].off, in, 5000));
			T_EQ(t_differs(in, 5, 0, 5000), 5000);
		}
	}
	mem_stream_free(st);
	ops()->unpin(0, host, len);
	mem_free(w);
	mapped_free(&m);
	(void)munmap(host, len);
}

/* Without the kernel: the driver's batch, in both its forms; without that, a loop. */
static void many_pieces_otherwise(void)
{
	struct stub_cuda_state before = state(), now;
	__typeof__(cu.cuMemcpyBatchAsync_v2) v2 = cu.cuMemcpyBatchAsync_v2;

	NEED_STUB();
	(void)x.fail("cuModuleLoadDataEx:0:221");
	many(5, PST_PATH_STAGED);
	now = state();
	T_CHECK(now.batched > before.batched);
	T_EQ(now.kernels, before.kernels);

	cu.cuMemcpyBatchAsync_v2 = NULL;
	before = now;
	many(5, PST_PATH_STAGED);
	now = state();
	T_CHECK(now.batched > before.batched);
	cu.cuMemcpyBatchAsync_v2 = v2;

	(void)x.fail("cuModuleGetFunction:0:500");
	many(2, PST_PATH_STAGED);
	(void)x.fail("cuLaunchKernel:0:701");
	many(2, PST_PATH_STAGED);
	T_CHECK(x.fail("cuMemHostGetDevicePointer_v2:0:1"));
	many(2, PST_PATH_STAGED);
	T_CHECK(x.fail(NULL));

	/* Host memory that nobody registered. */
	{
		struct mem_alloc *a = alloc(100000);
		struct mem_stream *st = stream(0);
		uint8_t out[6][1000], in[6][1000];
		struct mem_copy v[6];
		uint64_t t;

		t_fill(out, 2, 0, sizeof(out));
		for (unsigned i = 0; i < 6; i++)
			v[i] = (struct mem_copy){
				.alloc = a, .off = i * 3000, .host = out[i], .len = 1000
			};
		T_OK(mem_copy(st, MEM_TO_DEVICE, v, 6, &t));
		T_EQ(mem_copied_by(st), PST_PATH_STAGED);
		T_EQ(wait_done(st, t), 1);
		for (unsigned i = 0; i < 6; i++)
			v[i].host = in[i];
		T_OK(mem_copy(st, MEM_FROM_DEVICE, v, 6, &t));
		T_EQ(wait_done(st, t), 1);
		T_CHECK(!memcmp(in, out, sizeof(in)));
		mem_stream_free(st);
		mem_free(a);
	}

	/* A driver that refuses batches is not asked again; the kernel stays away while somebody
	 * holds the context that it could not be loaded into. */
	{
		struct mem_alloc *keep = alloc(1);

		(void)x.fail("cuModuleLoadDataEx:0:221");
		many(1, PST_PATH_STAGED);
		T_CHECK(x.fail("cuMemcpyBatchAsync_v2:1:801"));
		before = state();
		many(5, PST_PATH_STAGED);
		T_CHECK(x.fail(NULL));
		T_EQ(state().batched, before.batched);
		mem_free(keep);
	}
}

int main(void)
{
	if (!cuda_begin())
		return t_done();
	T_RUN(many_pieces_by_the_kernel);
	T_RUN(the_ring_goes_round);
	T_RUN(pieces_cross_registrations_and_chunks);
	T_RUN(many_pieces_otherwise);
	T_RUN(nothing_is_left);
	return t_done();
}
