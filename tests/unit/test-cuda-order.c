/* SPDX-License-Identifier: MIT */
/* Test marks on the program's streams, with the stub (tests/stub/) in PST_LIBCUDA. */
#include "cuda_app.h"

static void block(void)
{
	go = passed = 0;
	CU(x.call(st, wait_for_go, NULL));
}

static bool has_passed(int nr)
{
	uint64_t end = t_hang();

	while (passed < nr && t_now() < end)
		(void)usleep(100);
	return passed == nr;
}

static struct mem_order *order(void)
{
	struct mem_order *o = NULL;

	T_OK(cuda_order_new(0, st, &o));
	T_CHECK(o->ops == &mem_cuda_ops);
	return o;
}

static void mark(void)
{
	struct stub_cuda_state before;
	struct mem_order *o;

	app_stream_start();
	before = state();
	T_OK(cuda_order_check(0, st));
	block();
	o = order();
	CU(x.call(st, pass, NULL));
	T_EQ(cuda_order_poll(o), 0);
	go = 1;
	T_CHECK(has_passed(1));
	while (!cuda_order_poll(o))
		(void)usleep(100);
	T_EQ(cuda_order_poll(o), 1);
	cuda_order_free(o);
	SAME_THREAD(before);
	/* The last user of the device is gone, and with it all events. */
	T_EQ(state().events, before.events);
	T_EQ(state().ctx_refs[0], before.ctx_refs[0]);
	app_stream_end();
}

/* Mark the default stream of the program's own context; its handle depends on the current
 * context. */
static void foreign_context(void)
{
	struct stub_cuda_state before;
	struct mem_order *o;
	cu_ctx own, top;

	app_stream_start();
	before = state();
	CU(x.ctx_create(&own, 0, 0));
	T_OK(cuda_order_new(0, (void *)CU_LEGACY, &o));
	CU(cu.cuCtxPopCurrent_v2(&top));
	while (!cuda_order_poll(o))
		(void)usleep(100);
	/* The stream has reached the mark: no event is left in its context. */
	T_EQ(state().events, before.events);
	CU(x.ctx_destroy(own));
	T_EQ(cuda_order_poll(o), 1);
	cuda_order_free(o);
	T_EQ(state().events, before.events);

	o = order();
	while (!cuda_order_poll(o))
		(void)usleep(100);
	cuda_order_free(o);
	SAME_THREAD(before);
	app_stream_end();
}

/* The program's context ends before its mark is reached: marks of the primary context still
 * work. */
static void foreign_context_ends_early(void)
{
	struct mem_order *o, *ours;
	cu_ctx own, top;

	app_stream_start();
	ours = order();
	CU(x.ctx_create(&own, 0, 0));
	T_OK(cuda_order_new(0, (void *)CU_PER_THREAD, &o));
	CU(cu.cuCtxPopCurrent_v2(&top));
	/* The driver's error for an event whose context has ended. */
	(void)x.fail("cuEventQuery:1:709");
	T_EQ(cuda_order_poll(o), -EIO);
	(void)x.fail(NULL);
	cuda_order_free(o);
	CU(x.ctx_destroy(own));
	while (!cuda_order_poll(ours))
		(void)usleep(100);
	T_EQ(cuda_order_poll(ours), 1);
	cuda_order_free(ours);
	app_stream_end();
}

static void refusals(void)
{
	struct stub_cuda_state before;
	struct mem_order *o = NULL;
	void *graph = NULL;
	cu_ctx top;

	app_stream_start();
	before = state();
	T_EQ(cuda_order_check(1, st), -EINVAL);
	T_CHECK(strstr(err_text(), "another device"));
	T_EQ(cuda_order_new(1, st, &o), -EINVAL);
	CU(x.begin_capture(st, CU_CAPTURE_GLOBAL));
	T_EQ(cuda_order_check(0, st), -EBUSY);
	T_EQ(cuda_order_new(0, st, &o), -EBUSY);
	T_CHECK(strstr(err_text(), "captured into a graph"));
	CU(x.end_capture(st, &graph));
	T_CHECK(!graph && !o);
	SAME_THREAD(before);
	T_EQ(state().ctx_refs[0], before.ctx_refs[0]);

	CU(cu.cuCtxPopCurrent_v2(&top));
	T_EQ(cuda_order_check(0, (void *)CU_LEGACY), -EINVAL);
	T_CHECK(strstr(err_text(), "has none"));
	T_EQ(cuda_order_new(0, (void *)CU_PER_THREAD, &o), -EINVAL);
	T_OK(cuda_order_check(0, st));
	CU(cu.cuCtxPushCurrent_v2(top));
	app_stream_end();
}

/* Fail each call of the driver once: nothing leaks. */
static void calls_fail(void)
{
	unsigned failed = 0;

	app_stream_start();
	for (unsigned n = 1; n < 30; n++) {
		struct stub_cuda_state before = state();
		struct mem_order *o = NULL;
		char spec[32];
		int r;

		(void)snprintf(spec, sizeof(spec), "*:%u:2", n);
		(void)x.fail(spec);
		passed = 0;
		r = cuda_order_new(0, st, &o);
		if (r == 0)
			cuda_order_free(o);
		failed += x.fail(NULL);
		T_CHECK(r == 0 || (r < 0 && err_text()[0]));
		SAME_THREAD(before);
		T_EQ(state().ctx_refs[0], before.ctx_refs[0]);
		T_EQ(state().events, before.events);
		CU(x.call(st, pass, NULL));
		T_CHECK(has_passed(1));
	}
	T_CHECK(failed > 4 && failed < 29);
	app_stream_end();
}

static void *thread_main(void *arg)
{
	cu_stream own = (cu_stream)CU_PER_THREAD;
	cu_ctx top;

	(void)cu.cuCtxPushCurrent_v2(ctx);
	for (unsigned i = 0; i < 100; i++) {
		struct mem_order *o;
		int r = cuda_order_new(0, own, &o);

		while (r == 0 && !cuda_order_poll(o))
			;
		if (r < 0)
			return (void *)err_text();
		if (i % 2 && cu.cuStreamSynchronize(own) != CU_OK)
			return (void *)"synchronize";
		cuda_order_free(o);
	}
	(void)cu.cuCtxPopCurrent_v2(&top);
	return arg;
}

static void threads(void)
{
	pthread_t t[4];
	void *ret;

	app_stream_start();
	for (unsigned i = 0; i < 4; i++)
		T_EQ(pthread_create(&t[i], NULL, thread_main, NULL), 0);
	for (unsigned i = 0; i < 4; i++) {
		T_EQ(pthread_join(t[i], &ret), 0);
		if (ret)
			T_FAIL("%s", (const char *)ret);
	}
	app_stream_end();
}

/* ---------------------------------------------------------------- all work */

static struct mem_alloc *alloc(void)
{
	struct mem_alloc *a = NULL;

	T_OK(mem_alloc(&mem_cuda_ops, 0, 100000, 0, &a));
	return a;
}

struct syncer {
	const struct mem_alloc *a;
	_Atomic bool done;
	int r;
};

static void *syncer_main(void *arg)
{
	struct syncer *s = arg;

	s->r = mem_sync(s->a);
	s->done = true;
	return NULL;
}

/* Start a thread that waits for a device, which is busy until go is set. */
static pthread_t syncer_start(struct syncer *s, const struct mem_alloc *a)
{
	pthread_t t;

	uint64_t end = t_hang();

	*s = (struct syncer){ .a = a, .r = -1 };
	T_EQ(pthread_create(&t, NULL, syncer_main, s), 0);
	while (!state().syncing && !s->done && t_now() < end)
		(void)usleep(100);
	T_EQ(state().syncing, 1);
	T_CHECK(!s->done);
	return t;
}

/* mem_sync() waits for all streams of the device, and for no other device. */
static void waits_for_all_work(void)
{
	struct mem_alloc *a, *other = NULL;
	struct stub_cuda_state before;
	struct syncer s;
	pthread_t t;

	app_stream_start();
	a = alloc();
	T_OK(mem_alloc(&mem_cuda_ops, 1, 100, 0, &other));
	before = state();
	T_OK(mem_sync(a));
	block();
	CU(x.call(st, pass, NULL));
	t = syncer_start(&s, a);
	T_OK(mem_sync(other));
	T_EQ(passed, 0);
	go = 1;
	T_EQ(pthread_join(t, NULL), 0);
	T_OK(s.r);
	T_EQ(passed, 1);
	SAME_THREAD(before);
	mem_free(a);
	mem_free(other);
	app_stream_end();
}

/* For memory of another context, mem_sync() waits for work in that context only. */
static void waits_in_the_context_of_the_memory(void)
{
	cu_stream there;
	struct mem_alloc *w;
	struct stub_cuda_state before;
	struct syncer s;
	cu_ctx own, popped;
	pthread_t t;
	cu_ptr p;

	app_stream_start();
	CU(x.ctx_create(&own, 0, 0));
	CU(cu.cuStreamCreate(&there, CU_NON_BLOCKING));
	CU(cu.cuMemAlloc_v2(&p, 5000));
	CU(cu.cuCtxPopCurrent_v2(&popped));
	T_OK(mem_wrap(p, 5000, 0, 0, &w));
	before = state();
	block();
	T_OK(mem_sync(w));
	go = 1;
	CU(cu.cuStreamSynchronize(st));
	go = 0;
	CU(cu.cuCtxPushCurrent_v2(own));
	CU(x.call(there, wait_for_go, NULL));
	CU(x.call(there, pass, NULL));
	CU(cu.cuCtxPopCurrent_v2(&popped));
	t = syncer_start(&s, w);
	go = 1;
	T_EQ(pthread_join(t, NULL), 0);
	T_OK(s.r);
	T_EQ(passed, 1);
	SAME_THREAD(before);
	mem_free(w);
	CU(cu.cuCtxPushCurrent_v2(own));
	CU(cu.cuStreamDestroy_v2(there));
	CU(cu.cuMemFree_v2(p));
	CU(x.ctx_destroy(own));
	app_stream_end();
}

static void waiting_fails(void)
{
	struct stub_cuda_state before;
	struct mem_alloc *a, *w;
	void *graph;
	cu_ptr p;

	app_stream_start();
	a = alloc();
	before = state();
	(void)x.fail("cuCtxSynchronize:1:700");
	T_EQ(mem_sync(a), -EIO);
	T_CHECK(x.fail(NULL));
	T_CHECK(strstr(err_text(), "CUDA_ERROR_ILLEGAL_ADDRESS"));
	SAME_THREAD(before);
	/* This error loses the context for good. */
	T_EQ(mem_sync(a), -EIO);
	atomic_store(&cuda_device(0)->lost, CU_OK);
	T_OK(mem_sync(a));

	CU(x.begin_capture(st, CU_CAPTURE_RELAXED));
	T_EQ(mem_sync(a), -EBUSY);
	T_EQ(x.end_capture(st, &graph), CU_CAPTURE_INVALIDATED);
	T_OK(mem_sync(a));
	SAME_THREAD(before);
	mem_free(a);

	CU(cu.cuMemAlloc_v2(&p, 5000));
	T_OK(mem_wrap(p, 5000, 0, 0, &w));
	T_OK(mem_sync(w));
	CU(cu.cuMemFree_v2(p));
	T_EQ(mem_sync(w), -EFAULT);
	mem_free(w);
	app_stream_end();
}

static void no_stub(void)
{
	T_SKIP("needs the library of tests/stub");
}

int main(void)
{
	if (!find_all()) {
		T_RUN(no_stub);
		return t_done();
	}
	T_RUN(mark);
	T_RUN(refusals);
	T_RUN(calls_fail);
	T_RUN(threads);
	T_RUN(waits_for_all_work);
	T_RUN(waits_in_the_context_of_the_memory);
	T_RUN(waiting_fails);
	T_RUN(foreign_context);
	T_RUN(foreign_context_ends_early);
	return t_done();
}
