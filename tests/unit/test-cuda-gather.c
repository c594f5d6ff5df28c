/* SPDX-License-Identifier: MIT */
#include <pthread.h>

#include "cuda_rig.h"

static uint64_t random_next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

enum { G_HOST = 2 << 20, G_DEV = 10 << 20, G_PIECES = 64 };

/*
 * Fill v with random pieces, one after another in host and device memory.  Write the host bytes,
 * and record them in the model.
 */
static unsigned random_pieces(struct mem_copy v[G_PIECES], struct mem_alloc *a, uint8_t *host,
			      uint8_t *model, uint64_t *seed, uint64_t *at_ptr, uint64_t *dev_ptr)
{
	unsigned nr = 4 + (unsigned)(random_next(seed) % (G_PIECES - 4));
	uint64_t at = *at_ptr, dev = *dev_ptr;

	for (unsigned i = 0; i < nr; i++) {
		uint64_t len = random_next(seed) % 3 ? 1 + random_next(seed) % 200
						     : random_next(seed) % 15000;

		/* Leave gaps in device memory, which must not change. */
		dev += random_next(seed) % 40000;
		at += random_next(seed) % 5 * (random_next(seed) % 17);
		v[i] = (struct mem_copy){ .alloc = a, .off = dev, .host = host + at, .len = len };
		t_fill(host + at, *seed, at, len);
		memcpy(model + dev, host + at, len);
		dev += len;
		at += len;
	}
	T_CHECK(at <= G_HOST && dev <= G_DEV);
	*at_ptr = at;
	*dev_ptr = dev;
	return nr;
}

/* Copy the pieces to the device and back on one stream.  Check each byte. */
static void pieces(struct mem_stream *st, struct mem_alloc *a, uint8_t *host, uint8_t *model,
		   uint64_t *seed, uint32_t path)
{
	struct mem_copy v[G_PIECES];
	uint64_t t, dev = 0, at = 0;
	unsigned nr = random_pieces(v, a, host, model, seed, &at, &dev);

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

	T_OK(pin_host(0, host, G_HOST));
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

/* The ring of tiles wraps around and becomes full. */
static void the_ring_goes_round(void)
{
	struct mem_alloc *a = alloc(G_DEV);
	struct mem_stream *st = stream(0);
	uint8_t *host = map(G_DEV), *in = map(G_DEV);
	static struct mem_copy v[1000];
	uint64_t t = 0, oldest = 1;
	unsigned again = 0;
	int r;

	T_OK(pin_host(0, host, G_DEV));
	if (x.delay_us)
		x.delay_us(300);
	for (int round = 0; round < 100; round++) {
		unsigned nr = 500 + (unsigned)(round * 37 % 500);

		if (round % 50 == 0) /* no copy is in flight */
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
	/* More tiles than the ring has: the driver copies. */
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

	T_OK(pin_host(0, host, len));
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

/* Lists of copies to a, and the memory that they are written to. */
struct lists {
	struct mem_alloc *a;
	struct mem_stream *st;
	uint8_t *host, *model, *room;
	struct mem_sgl v[MEM_SGLS];
	uint64_t seed, at, dev;
};

static struct lists lists_new(void)
{
	struct lists l = {
		.a = alloc(G_DEV),
		.st = stream(0),
		.host = map(G_HOST),
		.model = map(G_DEV),
		.room = map(MEM_SGLS * MEM_SGL_BYTES),
		.seed = 4711,
	};

	T_OK(pin_host(0, l.host, G_HOST));
	T_OK(pin_host(0, l.room, MEM_SGLS * MEM_SGL_BYTES));
	T_OK(mem_copy_sync(l.a, MEM_TO_DEVICE, 0, l.model, G_DEV));
	return l;
}

static void lists_free(struct lists *l)
{
	mem_stream_free(l->st);
	ops()->unpin(0, l->host, G_HOST);
	ops()->unpin(0, l->room, MEM_SGLS * MEM_SGL_BYTES);
	mem_free(l->a);
	(void)munmap(l->host, G_HOST);
	(void)munmap(l->model, G_DEV);
	(void)munmap(l->room, MEM_SGLS * MEM_SGL_BYTES);
}

static int list_write(struct lists *l, unsigned i, const struct mem_copy *v, unsigned nr)
{
	return mem_sgl_write(ops(), 0, MEM_TO_DEVICE, v, nr, l->room + i * MEM_SGL_BYTES, &l->v[i]);
}

static void lists_have_moved(const struct lists *l)
{
	uint8_t *in = map(G_DEV);

	T_OK(mem_copy_sync(l->a, MEM_FROM_DEVICE, 0, in, G_DEV));
	T_CHECK(!memcmp(in, l->model, G_DEV));
	(void)munmap(in, G_DEV);
}

/* One launch copies the pieces of several lists of different lengths. */
static void lists_go_together(void)
{
	struct stub_cuda_state before = state();
	struct lists l = lists_new();
	uint64_t t;

	for (unsigned round = 0; round < 20; round++) {
		unsigned nr = 1 + round % MEM_SGLS % 3;

		l.at = l.dev = 0;
		for (unsigned i = 0; i < nr; i++) {
			struct mem_copy v[G_PIECES];
			unsigned few = random_pieces(v, l.a, l.host, l.model, &l.seed, &l.at,
						     &l.dev);

			T_EQ(list_write(&l, i, v, few), 1);
			T_CHECK(l.v[i].nr > 0);
		}
		T_OK(mem_sgl_copy(l.st, l.v, nr, &t));
		T_EQ(mem_copied_by(l.st), PST_PATH_GATHER);
		T_EQ(t, round + 1);
		T_EQ(wait_done(l.st, t), 1);
	}
	lists_have_moved(&l);
	/* The most lists for one launch, with one piece each. */
	for (unsigned i = 0; i < MEM_SGLS; i++) {
		struct mem_copy v = {
			.alloc = l.a, .off = i * 5000, .host = l.host + i * 4097, .len = 4097 - i
		};

		t_fill(v.host, i, 0, v.len);
		memcpy(l.model + v.off, v.host, v.len);
		T_EQ(list_write(&l, i, &v, 1), 1);
	}
	T_OK(mem_sgl_copy(l.st, l.v, MEM_SGLS, &t));
	T_EQ(wait_done(l.st, t), 1);
	lists_have_moved(&l);
	if (x.state)
		T_EQ(state().kernels - before.kernels, 21);
	lists_free(&l);
	SAME_THREAD(before);
	SAME_OBJECTS(before);
}

/* Free the program's memory while its list waits: that list fails, and others work. */
static void lists_of_freed_memory(void)
{
	struct lists l = lists_new();
	struct mem_copy v = { .alloc = l.a, .host = l.host, .len = 4096 };
	struct mem_alloc *w;
	uint64_t t;
	cu_ptr p;

	(void)app_enter(0);
	CU(cu.cuMemAlloc_v2(&p, 4096));
	T_OK(mem_wrap(p, 4096, PST_KIND_CUDA, 0, &w));
	T_EQ(list_write(&l, 0, &v, 1), 1);
	v.alloc = w;
	T_EQ(list_write(&l, 1, &v, 1), 1);
	CU(cu.cuMemFree_v2(p));
	T_EQ(mem_sgl_copy(l.st, l.v, 2, &t), -EFAULT);
	T_CHECK(strstr(err_text(), "freed by its owner"));
	T_OK(mem_sgl_copy(l.st, l.v, 1, &t));
	T_EQ(wait_done(l.st, t), 1);
	mem_free(w);
	app_leave(0);
	lists_free(&l);
}

static void *copy_first_list(void *arg)
{
	struct lists *l = arg;
	uint64_t t;
	int r = mem_sgl_copy(l->st, l->v, 1, &t);

	while (r == 0)
		r = mem_poll(l->st, t);
	return r == 1 ? NULL : arg;
}

/* The driver compiles the kernel, which may take seconds: other threads can allocate and pin. */
static void a_kernel_that_is_compiled_keeps_no_others(void)
{
	struct stub_cuda_state before = state();
	struct mem_copy v = { .len = 4096 };
	uint64_t until = t_hang();
	pthread_t thread;
	struct lists l;
	void *failed;
	void *host;

	NEED_STUB();
	l = lists_new();
	v.alloc = l.a;
	v.host = l.host;
	T_EQ(list_write(&l, 0, &v, 1), 1);
	host = map(4096);
	x.stall("cuModuleLoadDataEx#1");
	T_EQ(pthread_create(&thread, NULL, copy_first_list, &l), 0);
	while (!state().stalled)
		T_CHECK(t_now() < until);
	(void)alarm(60); /* ends a deadlock */
	mem_stream_free(stream(0));
	mem_free(alloc(4096));
	T_OK(pin_host(0, host, 4096));
	ops()->unpin(0, host, 4096);
	(void)alarm(0);
	T_EQ(state().kernels, before.kernels);
	x.stall(NULL);
	T_EQ(pthread_join(thread, &failed), 0);
	T_CHECK(!failed);
	T_EQ(state().kernels, before.kernels + 1);
	(void)munmap(host, 4096);
	lists_free(&l);
	SAME_THREAD(before);
	SAME_OBJECTS(before);
}

static void lists_that_cannot_be(void)
{
	static struct mem_copy many[MEM_SGL_BYTES / 64 + 1];
	struct lists l = lists_new();
	struct mem_copy v = { .alloc = l.a, .host = l.host, .len = 4096 };
	struct mem_alloc *other = alloc(4096);
	uint8_t out[4096];
	uint64_t t;

	for (unsigned i = 0; i < ARRAY_SIZE(many); i++)
		many[i] = (struct mem_copy){
			.alloc = l.a, .off = i * 64, .host = l.host + i * 64, .len = 64
		};
	T_EQ(list_write(&l, 0, many, ARRAY_SIZE(many)), 0);
	T_EQ(list_write(&l, 0, many, ARRAY_SIZE(many) - 1), 1);
	/* Lists with pieces of two allocations. */
	many[1].alloc = other;
	T_EQ(list_write(&l, 0, many, 2), 0);
	mem_free(other);
	/* Host memory that the device cannot reach, for pieces and for the list. */
	v.host = out;
	T_EQ(list_write(&l, 1, &v, 1), 0);
	v.host = l.host;
	T_EQ(mem_sgl_write(ops(), 0, MEM_TO_DEVICE, &v, 1, out, &l.v[1]), 0);
	v.len = G_DEV + 1;
	T_CHECK(list_write(&l, 1, &v, 1) < 0);
	v.len = 4096;
	T_EQ(list_write(&l, 1, &v, 1), 1);
	if (x.state) {
		/* The device refuses the kernel: these lists and later ones fail. */
		(void)x.fail("cuLaunchKernel:1:701");
		T_EQ(mem_sgl_copy(l.st, &l.v[1], 1, &t), -EOPNOTSUPP);
		T_CHECK(x.fail(NULL));
		T_EQ(mem_sgl_copy(l.st, &l.v[1], 1, &t), -EOPNOTSUPP);
		T_EQ(list_write(&l, 1, &v, 1), 0);
	}
	lists_free(&l);
}

/* Without the kernel, pieces go by the driver's batch calls of both versions, and without those
 * one by one. */
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

	/* Pieces in host memory that is not registered. */
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

	/* The driver refuses batches: they are not tried again.  The kernel is not loaded again
	 * while memory keeps the context. */
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
	T_RUN(lists_go_together);
	T_RUN(lists_of_freed_memory);
	T_RUN(a_kernel_that_is_compiled_keeps_no_others);
	T_RUN(lists_that_cannot_be);
	T_RUN(many_pieces_otherwise);
	T_RUN(nothing_is_left);
	return t_done();
}
