/* SPDX-License-Identifier: MIT */
#include "cuda_rig.h"

static void bytes_come_back(void)
{
	struct stub_cuda_state before = state();
	struct mem_alloc *a = alloc(300007);
	static uint8_t out[300007], in[300007];

	T_EQ(a->size, 300007);
	T_CHECK(!a->host && a->owned);
	T_CHECK(ops()->owns(a->base.va, 1) && ops()->owns(a->base.va - 1, 2));
	t_fill(out, 1, 0, sizeof(out));
	T_OK(mem_copy_sync(a, MEM_TO_DEVICE, 0, out, sizeof(out)));
	T_OK(mem_copy_sync(a, MEM_TO_DEVICE, 1001, out + 5, 10));
	T_OK(mem_copy_sync(a, MEM_FROM_DEVICE, 0, in, sizeof(in)));
	memcpy(out + 1001, out + 5, 10);
	T_CHECK(!memcmp(in, out, sizeof(in)));
	SAME_THREAD(before);
	mem_free(a);
	SAME_THREAD(before);
	SAME_OBJECTS(before);
}

/* Set SYNC_MEMOPS on memory: otherwise the program's own copies could still run when ours begin. */
static void the_drivers_copies_are_synchronous(void)
{
	struct mem_alloc *a, *w;
	cu_ptr p;

	NEED_STUB();
	a = alloc(5000);
	T_EQ(state().sync_memops, 1);
	(void)app_enter(0);
	CU(cu.cuMemAlloc_v2(&p, 9000));
	T_EQ(state().sync_memops, 1);
	T_OK(mem_wrap(p, 100, 0, 0, &w));
	T_EQ(state().sync_memops, 2);
	mem_free(w);
	CU(cu.cuMemFree_v2(p));
	app_leave(0);
	mem_free(a);
	T_EQ(state().sync_memops, 0);
}

/* An allocation waits for threads that start copies, but at most CUDA_LET_NS. */
static void copies_start_first(void)
{
	struct cuda_dev *d = cuda_device(0);
	uint64_t begun = now_ns();

	T_EQ(atomic_load(&d->nr_starting), 0);
	atomic_fetch_add(&d->nr_starting, 1);
	mem_free(alloc(5000));
	T_CHECK(now_ns() - begun >= CUDA_LET_NS);
	atomic_fetch_sub(&d->nr_starting, 1);
}

static void limits_are_said(void)
{
	struct stub_cuda_state before = state();
	struct mem_alloc *a = NULL;

	T_EQ(mem_alloc(ops(), 0, UINT64_C(1) << 50, 0, &a), -ENOMEM);
	T_CHECK(strstr(err_text(), "cuda:0 has no"));
	T_EQ(mem_alloc(ops(), 63, 1, 0, &a), -ENODEV);
	T_CHECK(!a);
	SAME_THREAD(before);
	SAME_OBJECTS(before);
}

static void wraps_know_their_allocation(void)
{
	struct mem_alloc *w, *v, *a = alloc(5000);
	uint64_t last;
	uint8_t buf[100];
	cu_ptr p, q;

	/* Wrap a part of the library's memory. */
	T_OK(mem_wrap(a->base.va + 1000, 100, 0, 0, &w));
	T_EQ(w->base.va, a->base.va);
	T_EQ(w->size, 5000);
	T_EQ(w->buffer_id, a->buffer_id);
	T_CHECK(!w->owned);
	mem_free(w);
	T_EQ(mem_wrap(a->base.va + 4000, 1001, PST_KIND_CUDA, 0, &w), -ERANGE);
	T_EQ(mem_wrap(a->base.va - 1, 2, 0, 0, &w), -ERANGE);
	mem_free(a);

	/* Wrap the program's memory. */
	(void)app_enter(0);
	CU(cu.cuMemAlloc_v2(&p, 9000));
	T_OK(mem_wrap(p + 100, 100, 0, 0, &w));
	T_OK(mem_wrap(p, 9000, PST_KIND_CUDA, 0, &v));
	T_EQ(w->base.va, p);
	T_EQ(w->buffer_id, v->buffer_id);
	T_CHECK(w->rights == 3 && !cuda_alloc_of(w)->foreign);
	t_fill(buf, 3, 0, 100);
	T_OK(mem_copy_sync(w, MEM_TO_DEVICE, 100, buf, 100));
	last = v->buffer_id;
	mem_free(v);
	T_EQ(mem_wrap(p + 8000, UINT64_C(1) << 30, PST_KIND_CUDA, 0, &v), -ERANGE);

	/* Free the memory under its wrap, then get the same address for other memory. */
	CU(cu.cuMemFree_v2(p));
	T_EQ(mem_copy_sync(w, MEM_TO_DEVICE, 100, buf, 100), -EFAULT);
	T_CHECK(strstr(err_text(), "freed by its owner"));
	CU(cu.cuMemAlloc_v2(&q, 9000));
	T_EQ(mem_copy_sync(w, MEM_TO_DEVICE, 100, buf, 100), -EFAULT);
	T_OK(mem_wrap(q, 9000, 0, 0, &v));
	if (x.state)
		T_EQ(q, p);
	T_CHECK(v->buffer_id != last && v->buffer_id != w->buffer_id);
	mem_free(v);
	mem_free(w);
	CU(cu.cuMemFree_v2(q));
	T_EQ(mem_wrap(q, 1, PST_KIND_CUDA, 0, &v), -EFAULT);
	/* A freed address must not be taken for host memory, either. */
	T_EQ(mem_wrap(q, 9000, 0, 0, &v), -EFAULT);
	T_CHECK(strstr(err_text(), "no memory that the CPU may use"));
	T_EQ(mem_wrap(q + 100, 1, PST_KIND_HOST, 0, &v), -EFAULT);
	app_leave(0);
}

/* Wrapping must make no call that the driver refuses, because compute-sanitizer reports refused
 * calls. */
static void wraps_ask_what_does_not_fail(void)
{
	struct mapped m;
	uint64_t refused = state().refused;
	struct mem_alloc *w;
	cu_stream st;
	cu_ptr p, pool;

	NEED_STUB();
	(void)app_enter(0);
	CU(cu.cuMemAlloc_v2(&p, 9000));
	CU(cu.cuStreamCreate(&st, 0));
	CU(x.alloc_async(&pool, 5000, st));
	m = mapped_new(2, 2, 0, CU_PROT_READ_WRITE);
	T_OK(mem_wrap(p + 100, 100, 0, 0, &w));
	T_CHECK(!cuda_alloc_of(w)->vmm);
	mem_free(w);
	T_OK(mem_wrap(pool, 50, 0, 0, &w));
	T_CHECK(!cuda_alloc_of(w)->vmm);
	mem_free(w);
	T_OK(mem_wrap(m.va, 2 * CHUNK, 0, 0, &w));
	T_CHECK(cuda_alloc_of(w)->vmm);
	mem_free(w);
	T_OK(mem_wrap((uintptr_t)map(4096), 4096, 0, 0, &w));
	mem_free(w);
	T_EQ(state().refused, refused);
	mapped_free(&m);
	CU(cu.cuMemFree_v2(pool));
	CU(cu.cuStreamDestroy_v2(st));
	CU(cu.cuMemFree_v2(p));
	app_leave(0);
}

static void strange_memory(void)
{
	struct mem_alloc *w = NULL;
	struct pst_grant g;
	uint8_t buf[50] = "pool", in[50];
	cu_stream st;
	cu_ptr p;

	(void)app_enter(0);
	CU(x.alloc_managed(&p, 5000, 1));
	T_EQ(mem_wrap(p, 10, 0, 0, &w), -EOPNOTSUPP);
	T_CHECK(strstr(err_text(), "managed"));
	CU(cu.cuMemFree_v2(p));

	CU(cu.cuStreamCreate(&st, 0));
	CU(x.alloc_async(&p, 5000, st));
	CU(cu.cuStreamSynchronize(st));
	T_OK(mem_wrap(p, 50, 0, 0, &w));
	T_OK(mem_copy_sync(w, MEM_TO_DEVICE, 0, buf, 50));
	T_OK(mem_copy_sync(w, MEM_FROM_DEVICE, 0, in, 50));
	T_CHECK(!memcmp(in, buf, 50));
	T_EQ(mem_export(w, 3, &g), -EOPNOTSUPP);
	mem_free(w);
	CU(cu.cuMemFree_v2(p));
	CU(cu.cuStreamDestroy_v2(st));
	app_leave(0);
}

/* Memory of another context than the primary one is copied by the driver, not by our kernel. */
static void other_contexts(void)
{
	struct stub_cuda_state before = state(), inside;
	struct mem_stream *st;
	struct mem_alloc *w;
	struct mem_copy v[8];
	struct pst_grant g;
	uint64_t ticket;
	uint8_t *host = map(1 << 20), in[800];
	cu_ctx ctx;
	cu_ptr p;

	CU(x.ctx_create(&ctx, 0, 0));
	inside = state();
	CU(cu.cuMemAlloc_v2(&p, 100000));
	T_OK(mem_wrap(p, 100000, 0, 0, &w));
	SAME_THREAD(inside);
	T_CHECK(cuda_alloc_of(w)->foreign);
	st = stream(0);
	T_OK(pin_host(0, host, 1 << 20));
	t_fill(host, 9, 0, 800);
	for (unsigned i = 0; i < 8; i++)
		v[i] = (struct mem_copy){
			.alloc = w, .off = 1000 * i, .host = host + 100 * i, .len = 100
		};
	T_OK(mem_copy(st, MEM_TO_DEVICE, v, 8, &ticket));
	T_EQ(mem_copied_by(st), PST_PATH_STAGED);
	T_EQ(wait_done(st, ticket), 1);
	for (unsigned i = 0; i < 8; i++)
		T_OK(mem_copy_sync(w, MEM_FROM_DEVICE, 1000 * i, in + 100 * i, 100));
	T_EQ(t_differs(in, 9, 0, 800), 800);
	T_OK(mem_export(w, 3, &g));
	T_EQ(g.fd, -1);
	SAME_THREAD(inside);
	ops()->unpin(0, host, 1 << 20);
	mem_stream_free(st);
	mem_free(w);
	CU(cu.cuMemFree_v2(p));
	CU(x.ctx_destroy(ctx));
	(void)munmap(host, 1 << 20);
	SAME_OBJECTS(before);
}

struct seen {
	cu_ctx ctx;
	uint32_t mode;
};

static int look(void *arg)
{
	struct stub_cuda_state now = state();
	struct seen *seen = arg;

	seen->ctx = now.current;
	seen->mode = now.mode;
	return -ENOTTY;
}

/* Call a vendor's library in the context that the memory belongs to. */
static void calls_within_a_context(void)
{
	struct stub_cuda_state before = state();
	struct mem_alloc *own = alloc(1000), *w;
	struct mem_alloc *host = NULL;
	struct seen seen = { 0 };
	cu_ctx primary, ctx;
	cu_ptr p;

	CU(cu.cuDevicePrimaryCtxRetain(&primary, cuda_device(0)->dev));
	T_EQ(mem_within(own, look, &seen), -ENOTTY);
	T_CHECK(seen.ctx == primary && seen.mode == CU_CAPTURE_RELAXED);
	SAME_THREAD(before);

	CU(x.ctx_create(&ctx, 0, 0));
	CU(cu.cuMemAlloc_v2(&p, 4096));
	CU(cu.cuCtxPopCurrent_v2(&(cu_ctx){ NULL }));
	T_OK(mem_wrap(p, 4096, PST_KIND_CUDA, 0, &w));
	T_EQ(mem_within(w, look, &seen), -ENOTTY);
	T_CHECK(seen.ctx == ctx);
	SAME_THREAD(before);

	/* Without the context, fn is not called. */
	CU(cu.cuCtxPushCurrent_v2(ctx));
	CU(cu.cuMemFree_v2(p));
	CU(x.ctx_destroy(ctx));
	seen.ctx = NULL;
	T_EQ(mem_within(w, look, &seen), -EFAULT);
	T_CHECK(!seen.ctx);
	mem_free(w);

	/* Memory of other kinds needs no context. */
	T_OK(mem_alloc(mem_provider(PST_KIND_HOST), 0, 4096, 0, &host));
	T_EQ(mem_within(host, look, &seen), -ENOTTY);
	mem_free(host);
	mem_free(own);
	CU(cu.cuDevicePrimaryCtxRelease_v2(cuda_device(0)->dev));
	SAME_THREAD(before);
	SAME_OBJECTS(before);
}

static void ranges_span_chunks(void)
{
	struct stub_cuda_state before = state();
	struct mapped m = mapped_new(6, 4, CU_HANDLE_POSIX_FD, CU_PROT_READ_WRITE);
	struct mem_alloc *w, *v;
	struct pst_grant g;
	static uint8_t out[CHUNK + 2000], in[CHUNK + 2000];

	/* Wrap from the middle of the first chunk to the middle of the third. */
	T_OK(mem_wrap(m.va + CHUNK - 1000, CHUNK + 2000, 0, 0, &w));
	T_EQ(w->base.va, m.va);
	T_EQ(w->size, 3 * CHUNK);
	T_EQ(cuda_alloc_of(w)->chunks, 3);
	t_fill(out, 4, 0, sizeof(out));
	T_OK(mem_copy_sync(w, MEM_TO_DEVICE, CHUNK - 1000, out, sizeof(out)));
	T_OK(mem_copy_sync(w, MEM_FROM_DEVICE, CHUNK - 1000, in, sizeof(in)));
	T_CHECK(!memcmp(in, out, sizeof(in)));
	T_EQ(mem_export(w, 3, &g), -EOPNOTSUPP);
	T_CHECK(strstr(err_text(), "spans 3"));

	/* The same chunks give the same allocation; other chunks give another. */
	T_OK(mem_wrap(m.va + 10, 2 * CHUNK, 0, 0, &v));
	T_EQ(v->buffer_id, w->buffer_id);
	mem_free(v);
	T_OK(mem_wrap(m.va + CHUNK, 10, 0, 0, &v));
	T_EQ(v->base.va, m.va + CHUNK);
	T_EQ(v->size, CHUNK);
	T_CHECK(v->buffer_id != w->buffer_id);
	mem_free(v);

	/* Wrap a range that ends past the mapped chunks. */
	T_EQ(mem_wrap(m.va + 3 * CHUNK, CHUNK + 1, 0, 0, &v), -ERANGE);
	T_CHECK(strstr(err_text(), "past what is mapped"));

	/* Once a chunk is replaced, the range is another allocation. */
	CU(cu.cuMemUnmap(m.va + 2 * CHUNK, CHUNK));
	mapped_chunk(&m, 2, 0, CU_PROT_READ_WRITE);
	T_OK(mem_wrap(m.va + CHUNK - 1000, CHUNK + 2000, 0, 0, &v));
	T_CHECK(v->buffer_id != w->buffer_id);
	mem_free(v);
	mem_free(w);

	/* Wrap memory that cannot be shared, that the device may not access, or that is
	 * read-only. */
	T_OK(mem_wrap(m.va + 2 * CHUNK, 10, 0, 0, &v));
	T_EQ(mem_export(v, 3, &g), -EOPNOTSUPP);
	T_CHECK(strstr(err_text(), "POSIX_FILE_DESCRIPTOR"));
	mem_free(v);
	mapped_chunk(&m, 4, 0, 0);
	mapped_chunk(&m, 5, 0, CU_PROT_READ);
	m.nr = 6;
	T_EQ(mem_wrap(m.va + 4 * CHUNK, 10, 0, 0, &v), -EACCES);
	T_EQ(mem_wrap(m.va + 3 * CHUNK, 2 * CHUNK, 0, 0, &v), -EACCES);
	T_OK(mem_wrap(m.va + 5 * CHUNK, 10, 0, 0, &v));
	T_EQ(v->rights, PST_RIGHT_READ);
	T_EQ(mem_copy_sync(v, MEM_TO_DEVICE, 0, out, 10), -EACCES);
	T_OK(mem_copy_sync(v, MEM_FROM_DEVICE, 0, in, 10));
	mem_free(v);
	mapped_free(&m);
	SAME_THREAD(before);
	SAME_OBJECTS(before);
}

int main(void)
{
	if (!cuda_begin())
		return t_done();
	T_RUN(bytes_come_back);
	T_RUN(the_drivers_copies_are_synchronous);
	T_RUN(copies_start_first);
	T_RUN(limits_are_said);
	T_RUN(wraps_know_their_allocation);
	T_RUN(wraps_ask_what_does_not_fail);
	T_RUN(strange_memory);
	T_RUN(other_contexts);
	T_RUN(calls_within_a_context);
	T_RUN(ranges_span_chunks);
	T_RUN(nothing_is_left);
	return t_done();
}
