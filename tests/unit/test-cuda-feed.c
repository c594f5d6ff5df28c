/* SPDX-License-Identifier: MIT */
/*
 * Feeds: copies queued on the program's streams before their bytes are known.  Runs on the stub
 * of tests/stub/ that PST_LIBCUDA names.
 */
#include <sys/mman.h>

#include "cuda_app.h"

#define TILES 8u
#define LEN KIB(40) /* bytes; takes three tiles */

/* Memory of the library for the copies. */
static struct mem_alloc *mem;
static uint8_t *host; /* LEN bytes, then room for a list */
static uint64_t pinned;

#define HOST_BYTES (LEN + MEM_SGL_BYTES)

static void app_start(void)
{
	app_stream_start();
	T_OK(mem_alloc(&mem_cuda_ops, 0, LEN, 0, &mem));
	host = mmap(NULL, HOST_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	T_CHECK(host != MAP_FAILED);
	T_OK(mem_pin(&mem_cuda_ops, 0, 0, host, HOST_BYTES, &pinned));
}

static void app_end(void)
{
	mem_unpin(&mem_cuda_ops, 0, host, pinned);
	(void)munmap(host, HOST_BYTES);
	mem_free(mem);
	app_stream_end();
}

static void block(cu_stream on)
{
	go = passed = 0;
	CU(x.call(on, wait_for_go, NULL));
}

static bool has_passed(int nr)
{
	uint64_t end = t_hang();

	while (passed < nr && t_now() < end)
		(void)usleep(100);
	return passed == nr;
}

/* Check that the stream waits for a word, by waiting until it has polled the word twice. */
static void is_held(void)
{
	uint64_t end = t_hang(), before = state().held;

	while (state().held < before + 2 && t_now() < end)
		(void)usleep(100);
	T_CHECK(state().held >= before + 2);
}

static struct mem_feed *feed(cu_stream on)
{
	struct mem_feed *f = NULL;

	T_OK(cuda_feed_check(mem, on));
	T_OK(cuda_feed_new(mem, on, TILES, 0, &f));
	T_CHECK(f->ops == &mem_cuda_ops);
	return f;
}

static void put(struct mem_feed *f, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++)
		T_EQ(cuda_feed_put(f), 1);
	T_OK(cuda_feed_seal(f));
}

/* Send len bytes of this value.  Return the number of the copy. */
static uint64_t send(struct mem_feed *f, uint8_t value, uint64_t len)
{
	struct mem_copy v = { .alloc = mem, .host = host, .len = len };
	struct mem_sgl list;

	memset(host, value, len);
	T_OK(cuda_feed_list(f, &v, 1, host + LEN, &list));
	return cuda_feed_send(f, &list);
}

static void await(const struct mem_feed *f, uint64_t nr)
{
	uint64_t end = t_hang();

	while (cuda_feed_poll(f, nr) == 0 && t_now() < end)
		(void)usleep(100);
	T_EQ(cuda_feed_poll(f, nr), 1);
}

/* Return true if all len bytes of the memory have this value. */
static bool holds(uint8_t value, uint64_t len)
{
	static uint8_t got[LEN];

	T_CHECK(x.peek(mem->base.va, got, len));
	for (uint64_t i = 0; i < len; i++)
		if (got[i] != value)
			return false;
	return true;
}

static void over(struct mem_feed *f)
{
	cuda_feed_end(f);
	cuda_feed_free(f);
}

/* Each copy moves the bytes sent for it, in order, and later work on the stream waits. */
static void copies(void)
{
	struct stub_cuda_state before;
	struct mem_feed *f;
	uint64_t nr;

	app_start();
	before = state();
	f = feed(st);
	put(f, 3);
	CU(x.call(st, pass, NULL));
	is_held();
	for (unsigned i = 0; i < 3; i++) {
		T_EQ(passed, 0);
		nr = send(f, (uint8_t)(i + 1), LEN);
		T_EQ(nr, i);
		await(f, nr);
		T_CHECK(holds((uint8_t)(i + 1), LEN));
	}
	T_CHECK(has_passed(1));
	over(f);
	SAME_THREAD(before);
	app_end();
}

/* Bytes that were sent wait for earlier work on the stream. */
static void stream_comes_late(void)
{
	struct mem_feed *f;
	uint64_t nr;

	app_start();
	passed = 0;
	f = feed(st);
	put(f, 1);
	await(f, send(f, 7, LEN));
	over(f);
	block(st);
	f = feed(st);
	put(f, 1);
	nr = send(f, 8, LEN);
	T_EQ(cuda_feed_poll(f, nr), 0);
	T_CHECK(holds(7, LEN));
	go = 1;
	await(f, nr);
	T_CHECK(holds(8, LEN));
	over(f);
	app_end();
}

/* End a feed before the stream has reached its copies: those move nothing, and their words are
 * not reused before the stream has passed them. */
static void ends_early(void)
{
	struct mem_feed *f, *other;

	app_start();
	f = feed(st);
	put(f, 1);
	await(f, send(f, 1, LEN));
	over(f);
	block(st);
	f = feed(st);
	put(f, 4);
	CU(x.call(st, pass, NULL));
	(void)send(f, 2, KIB(1)); /* the stream has not reached this copy */
	over(f);
	other = feed(st);
	T_CHECK(other != f);
	put(other, 1);
	T_EQ(cuda_feed_put(other), 1);
	cuda_feed_end(other);
	T_EQ(cuda_feed_put(other), 0);
	cuda_feed_free(other);
	go = 1;
	T_CHECK(has_passed(1));
	CU(cu.cuStreamSynchronize(st));
	T_CHECK(holds(1, LEN)); /* the late bytes were not copied */
	f = feed(st);
	put(f, 1);
	await(f, send(f, 3, LEN));
	over(f);
	app_end();
}

/* Queue more copies than the ring has places: places become free as the stream executes copies. */
static void many(void)
{
	enum { NR = 1000 };
	uint64_t sent = 0, put_ = 0, end = t_hang();
	struct mem_feed *f;
	bool full = false;

	app_start();
	f = feed(st);
	while (put_ < NR && t_now() < end) {
		int r = cuda_feed_put(f);

		if (r == -EAGAIN) {
			full = true;
			await(f, send(f, (uint8_t)++sent, KIB(1)));
			continue;
		}
		T_EQ(r, 1);
		put_++;
	}
	T_CHECK(full);
	T_OK(cuda_feed_seal(f));
	CU(x.call(st, pass, NULL));
	while (sent < NR)
		await(f, send(f, (uint8_t)++sent, KIB(1)));
	T_CHECK(holds((uint8_t)NR, KIB(1)));
	CU(cu.cuStreamSynchronize(st));
	over(f);
	app_end();
}

/* Refuse a list with too many tiles for a copy. */
static void too_long(void)
{
	struct mem_copy v[TILES + 1];
	struct mem_sgl list;
	struct mem_feed *f;

	app_start();
	for (unsigned i = 0; i <= TILES; i++)
		v[i] = (struct mem_copy){ .alloc = mem, .off = i, .host = host + i, .len = 1 };
	f = feed(st);
	put(f, 1);
	T_EQ(cuda_feed_list(f, v, TILES + 1, host + LEN, &list), -EIO);
	T_OK(cuda_feed_list(f, v, TILES, host + LEN, &list));
	T_EQ(list.nr, TILES);
	over(f);
	CU(cu.cuStreamSynchronize(st));
	app_end();
}

/* Registrations and events end with their context, and are made again in the next one. */
static void context_ends_between(void)
{
	for (int turn = 0; turn < 3; turn++) {
		struct mem_feed *f;

		app_start();
		f = feed(st);
		put(f, 1);
		await(f, send(f, 1, LEN));
		over(f);
		CU(cu.cuStreamSynchronize(st));
		app_end();
		T_EQ(state().contexts, 0);
		T_EQ(state().events, 0);
		T_EQ(state().streams, 0);
	}
}

/* Use the default stream of the program's own context; its handle depends on the current
 * context. */
static void foreign_stream(void)
{
	struct stub_cuda_state before;
	struct mem_feed *f;
	cu_ctx own, top;
	uint64_t nr;

	app_start();
	before = state();
	for (int turn = 0; turn < 2; turn++) {
		passed = 0;
		CU(x.ctx_create(&own, 0, 0));
		block((cu_stream)CU_LEGACY);
		f = feed((cu_stream)CU_LEGACY);
		put(f, 2);
		CU(x.call((cu_stream)CU_LEGACY, pass, NULL));
		nr = send(f, (uint8_t)(20 + turn), LEN);
		T_EQ(cuda_feed_poll(f, nr), 0);
		go = 1;
		await(f, nr);
		T_EQ(passed, 0);
		T_CHECK(holds((uint8_t)(20 + turn), LEN));
		over(f);
		T_CHECK(has_passed(1));
		CU(cu.cuCtxPopCurrent_v2(&top));
		CU(x.ctx_destroy(own));
	}
	SAME_THREAD(before);
	app_end();
	T_EQ(state().streams, 0);
}

static void refusals(void)
{
	struct stub_cuda_state before;
	struct mem_alloc *other = NULL, *foreign;
	struct mem_feed *f = NULL;
	void *graph = NULL;
	cu_ctx own, top;
	cu_ptr p;

	app_start();
	T_OK(mem_alloc(&mem_cuda_ops, 1, 100, 0, &other));
	before = state();
	T_EQ(cuda_feed_check(other, st), -EINVAL);
	T_CHECK(strstr(err_text(), "another device"));
	T_EQ(cuda_feed_new(other, st, TILES, 0, &f), -EINVAL);
	CU(x.begin_capture(st, CU_CAPTURE_GLOBAL));
	T_EQ(cuda_feed_check(mem, st), -EBUSY);
	T_EQ(cuda_feed_new(mem, st, TILES, 0, &f), -EBUSY);
	CU(x.end_capture(st, &graph));
	T_CHECK(!graph && !f);
	SAME_THREAD(before);
	mem_free(other);

	CU(x.ctx_create(&own, 0, 0));
	CU(cu.cuMemAlloc_v2(&p, 5000));
	T_OK(mem_wrap(p, 5000, 0, 0, &foreign));
	T_EQ(cuda_feed_check(foreign, st), -EOPNOTSUPP);
	T_CHECK(strstr(err_text(), "context of the program"));
	mem_free(foreign);
	CU(cu.cuMemFree_v2(p));
	CU(cu.cuCtxPopCurrent_v2(&top));
	CU(x.ctx_destroy(own));
	app_end();
}

/* Fail each call of the driver once: the stream works afterwards, and nothing leaks. */
static void calls_fail(void)
{
	unsigned failed = 0;

	app_start();
	over(feed(st));
	for (unsigned n = 1; n < 60; n++) {
		struct stub_cuda_state before = state();
		struct mem_feed *f = NULL;
		char spec[32];
		int r, sealed = 0;

		(void)snprintf(spec, sizeof(spec), "*:%u:2", n);
		(void)x.fail(spec);
		passed = 0;
		r = cuda_feed_new(mem, st, TILES, 0, &f);
		if (r == 0) {
			for (unsigned i = 0; r >= 0 && i < 3; i++)
				r = cuda_feed_put(f);
			sealed = cuda_feed_seal(f);
			over(f);
		}
		failed += x.fail(NULL);
		T_CHECK((r >= 0 && sealed == 0) || err_text()[0]);
		SAME_THREAD(before);
		T_EQ(state().ctx_refs[0], before.ctx_refs[0]);
		CU(x.call(st, pass, NULL));
		T_CHECK(has_passed(1));
		atomic_store(&cuda_device(0)->no_feeds, false);
	}
	T_CHECK(failed > 12 && failed < 59);
	app_end();
}

/* The context runs nothing any more: waiters get an error. */
static void context_is_lost(void)
{
	struct mem_feed *f;
	uint64_t nr;

	app_start();
	block(st);
	f = feed(st);
	put(f, 1);
	nr = send(f, 1, LEN);
	cuda_feed_check_lost(f);
	T_EQ(cuda_feed_poll(f, nr), 0);
	x.poison(0, CU_ILLEGAL_ADDRESS);
	cuda_feed_check_lost(f);
	T_EQ(cuda_feed_poll(f, nr), -EIO);
	x.poison(0, CU_OK);
	atomic_store(&cuda_device(0)->lost, CU_OK);
	go = 1;
	CU(cu.cuStreamSynchronize(st));
	over(f);
	app_end();
}

/* The ring is full and the stream will never drain it: adding a copy fails. */
static void context_is_lost_while_there_is_no_room(void)
{
	struct mem_feed *f;
	int r = 1;

	app_start();
	block(st);
	f = feed(st);
	while (r == 1)
		r = cuda_feed_put(f);
	T_EQ(r, -EAGAIN);
	cuda_feed_check_lost(f);
	T_EQ(cuda_feed_put(f), -EAGAIN);
	x.poison(0, CU_ILLEGAL_ADDRESS);
	cuda_feed_check_lost(f);
	T_EQ(cuda_feed_put(f), -EIO);
	x.poison(0, CU_OK);
	atomic_store(&cuda_device(0)->lost, CU_OK);
	go = 1;
	T_OK(cuda_feed_seal(f));
	over(f);
	CU(cu.cuStreamSynchronize(st));
	app_end();
}

/* After the end of a feed, adding copies does nothing, even without room. */
static void ends_while_there_is_no_room(void)
{
	struct mem_feed *f;
	int r = 1;

	app_start();
	block(st);
	f = feed(st);
	while (r == 1)
		r = cuda_feed_put(f);
	T_EQ(r, -EAGAIN);
	cuda_feed_end(f);
	T_EQ(cuda_feed_put(f), 0);
	T_OK(cuda_feed_seal(f));
	go = 1;
	CU(cu.cuStreamSynchronize(st));
	cuda_feed_free(f);
	app_end();
}

/* Queueing the second copy fails after its kernel: its bytes count as in flight until the stream
 * has run everything. */
static void copy_in_part(void)
{
	struct mem_feed *f;
	uint64_t first, second;

	app_start();
	block(st);
	f = feed(st);
	(void)x.fail("cuStreamWriteValue32_v2:2:2");
	T_EQ(cuda_feed_put(f), 1);
	T_CHECK(cuda_feed_put(f) < 0);
	(void)x.fail(NULL);
	T_OK(cuda_feed_seal(f));
	first = send(f, 1, LEN);
	second = send(f, 2, LEN);
	T_EQ(cuda_feed_poll(f, second), 0);
	cuda_feed_check_lost(f);
	T_EQ(cuda_feed_poll(f, first), 0);
	T_EQ(cuda_feed_poll(f, second), 0);
	go = 1;
	CU(cu.cuStreamSynchronize(st));
	await(f, first);
	cuda_feed_check_lost(f);
	T_EQ(cuda_feed_poll(f, first), 1);
	T_EQ(cuda_feed_poll(f, second), -EIO);
	over(f);
	app_end();
}

static void old_driver(void)
{
	app_start();
	(void)x.fail("cuStreamWaitValue32_v2:1:801");
	{
		struct mem_feed *f = feed(st);

		T_EQ(cuda_feed_put(f), -EOPNOTSUPP);
		T_OK(cuda_feed_seal(f));
		over(f);
	}
	(void)x.fail(NULL);
	T_EQ(cuda_feed_check(mem, st), -EOPNOTSUPP);
	T_CHECK(strstr(err_text(), "no stream memory operations"));
	atomic_store(&cuda_device(0)->no_feeds, false);
	T_OK(cuda_feed_check(mem, st));
	app_end();
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
	T_RUN(copies);
	T_RUN(stream_comes_late);
	T_RUN(ends_early);
	T_RUN(many);
	T_RUN(too_long);
	T_RUN(context_ends_between);
	T_RUN(foreign_stream);
	T_RUN(refusals);
	T_RUN(calls_fail);
	T_RUN(context_is_lost);
	T_RUN(context_is_lost_while_there_is_no_room);
	T_RUN(ends_while_there_is_no_room);
	T_RUN(copy_in_part);
	T_RUN(old_driver);
	return t_done();
}
