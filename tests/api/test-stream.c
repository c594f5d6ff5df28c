/* SPDX-License-Identifier: MIT */
/*
 * Requests that name a stream of the program, on the driver's double of tests/stub/: what comes
 * before what, and what is refused.  tests/hw/gpu-stream.c has the order on a real GPU.
 */
#include <pthread.h>
#include <sched.h>

#include "stream.h"

#include "idle.h"

static uint64_t gates(void)
{
	struct stub_cuda_state s;

	stub.state(&s);
	return s.words;
}

/* ------------------------------------------------------------------- order */

static void over_streams(void (*fn)(struct pst_queue *q, cu_stream st))
{
	cu_stream blocking;

	HW_CU(cuStreamCreate(&blocking, 0));
	fn(rig_q, made);
	fn(rig_q, blocking);
	fn(rig_q, (cu_stream)CU_LEGACY);
	fn(rig_q, (cu_stream)CU_PER_THREAD);
	HW_CU(cuStreamDestroy_v2(blocking));
}

static void reads(void)
{
	over_streams(order_reads);
}

static void read_is_late(void)
{
	over_streams(order_read_is_late);
}

static void writes(void)
{
	over_streams(order_writes);
}

static void frees(void)
{
	struct stub_cuda_state before, now;
	uint64_t end;

	stub.state(&before);
	over_streams(order_frees);
	for (end = t_hang(), stub.state(&now); now.ranges > before.ranges; stub.state(&now)) {
		T_CHECK(t_now() < end);
		(void)usleep(1000);
	}
}

/* There is always one that waits, and what it puts off comes to its turn. */
static void overlap_until_freed(void)
{
	struct order_mem m = order_mem_new(ORDER_PIECE);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	struct pst_mem *own = rig_alloc(rig_dev, ORDER_PIECE);
	struct stub_cuda_state before, now;
	uint64_t end = t_hang();

	order_ready(rig_q);
	stub.state(&before);
	stub.delay_us(20000);
	order_start(rig_q, PST_OP_READ, f, m.mem, 0, 0, ORDER_PIECE, made);
	pst_mem_free(own);
	stub.state(&now);
	T_EQ(now.ranges, before.ranges);
	while (now.ranges == before.ranges) {
		T_CHECK(t_now() < end);
		order_start(rig_q, PST_OP_READ, f, m.mem, 0, 0, ORDER_PIECE, made);
		order_reap(rig_q, 1, ORDER_PIECE);
		stub.state(&now);
	}
	stub.delay_us(0);
	order_reap(rig_q, 1, ORDER_PIECE);
	T_EQ(rig_mem_differs(m.mem, 0, ORDER_PIECE, ORDER_SEED, 0), ORDER_PIECE);
	pst_file_close(f);
	order_mem_free(&m);
}

static void frees_beside_reads_without_end(void)
{
	overlap_until_freed();
}

struct other_device {
	struct pst_queue *q;
	struct pst_file *f;
	struct pst_mem *m;
	cu_stream st;
	atomic_bool stop;
	atomic_uint nr_reads;
	int err;
};

static int other_start(struct other_device *o)
{
	struct pst_io io = rig_io(PST_OP_READ, o->f, o->m, 0, 0, ORDER_PIECE);

	order_name(&io, o->st);
	return pst_queue_prep(o->q, &io) < 0 || pst_queue_submit(o->q) != 1;
}

static int other_reap(struct other_device *o)
{
	struct pst_done d;

	if (pst_queue_reap(o->q, &d, 1, 1, t_hang()) != 1 || d.res != ORDER_PIECE)
		return 1;
	o->nr_reads++;
	return 0;
}

/* Two under way at any time. */
static void *other_reads(void *arg)
{
	struct other_device *o = arg;

	o->err = other_start(o);
	while (!o->err && !o->stop)
		o->err = other_start(o) || other_reap(o);
	o->err = o->err || other_reap(o);
	return NULL;
}

/* Nor do the streams of two devices put things off by turns. */
static void frees_beside_reads_of_two_devices(void)
{
	struct other_device o = { 0 };
	uint64_t end = t_hang();
	pthread_t thread;
	cu_ctx first = hw_ctx;

	if (hw_cuda(1))
		T_SKIP("needs two GPUs");
	HW_CU(cuStreamCreate(&o.st, CU_NON_BLOCKING));
	o.q = rig_queue(rig_backend, 0);
	o.f = rig_open(rig_path("order"), RIG_R);
	o.m = rig_alloc("cuda:1", ORDER_PIECE);
	T_EQ(pthread_create(&thread, NULL, other_reads, &o), 0);
	HW_CU(cuCtxPopCurrent_v2(&hw_ctx));
	hw_ctx = first;
	while (o.nr_reads < 2 && t_now() < end)
		(void)usleep(1000);
	overlap_until_freed();
	o.stop = true;
	(void)pthread_join(thread, NULL);
	T_EQ(o.err, 0);
	T_CHECK(o.nr_reads >= 2);
	pst_queue_free(o.q);
	pst_file_close(o.f);
	pst_mem_free(o.m);
	HW_CU(cuStreamDestroy_v2(o.st));
}

static atomic_int refused = -1; /* threads; from 0 on pthread_create() starts none */

/* Seen by the library, which else would have libc's. */
__attribute__((visibility("default"))) int pthread_create(pthread_t *ret,
							  const pthread_attr_t *attr,
							  void *(*fn)(void *), void *arg)
{
	int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

	symbol(RTLD_NEXT, &real, "pthread_create");
	if (refused < 0)
		return real(ret, attr, fn, arg);
	refused++;
	return EAGAIN;
}

/* The library finds no thread for what it put off.  The caller's sentence names his own failure. */
static void a_failure_keeps_its_sentence(void)
{
	struct order_mem m = order_mem_new(ORDER_PIECE);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	struct pst_mem *own = rig_alloc(rig_dev, ORDER_PIECE), *none = NULL;
	struct stub_cuda_state before, now;
	uint64_t end = t_hang();
	struct pst_done d = { 0 };
	int reaped, r, nr;

	order_ready(rig_q);
	stub.state(&before);
	stub.stall("cuMemcpyHtoDAsync_v2"); /* the read has all threads that it needs by then */
	order_start(rig_q, PST_OP_READ, f, m.mem, 0, 0, LEN, made);
	T_CHECK(stream_stalled(end));
	pst_mem_free(own);
	do /* the thread for what was put off before has ended */
		(void)usleep(1000);
	while (rig_count_tasks() && strstr(rig_task_names, "pst-work") && t_now() < end);
	refused = 0;
	stub.stall(NULL);
	reaped = pst_queue_reap(rig_q, &d, 1, 1, end);
	(void)stub.fail("cuPointerGetAttribute:1:1");
	r = pst_mem_alloc(rig_dev, 4096, NULL, &none);
	(void)stub.fail(NULL);
	nr = refused;
	refused = -1;
	T_EQ(r, -EINVAL);
	T_CHECK(strstr(pst_error_text(), "CUDA_ERROR_INVALID_VALUE"));
	T_CHECK(nr > 0);
	T_EQ(reaped, 1);
	T_EQ(d.res, LEN);
	pst_mem_free(rig_alloc(rig_dev, 4096)); /* has a thread for all of them */
	do {
		T_CHECK(t_now() < end);
		(void)usleep(1000);
		stub.state(&now);
	} while (now.ranges >= before.ranges);
	pst_file_close(f);
	order_mem_free(&m);
}

static bool has_workers(void)
{
	cpu_set_t set;

	T_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
	return CPU_COUNT(&set) > 2;
}

/* The driver keeps a worker: others see to a stream's write meanwhile.  Or they slept already when
 * the worker that looks at the stream was given something else to do. */
static void write_beside_a_worker_that_is_kept(bool they_sleep)
{
	struct order_mem in = order_mem_new(LEN), out = order_mem_new(LEN);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	struct pst_file *w = rig_open(rig_path("order-written"), RIG_NEW);
	struct pst_io io = rig_io(PST_OP_READ, f, in.mem, 0, 0, LEN);
	struct pst_queue *other = rig_queue(rig_backend, 0);

	io.policy = PST_POLICY2(PST_PATH_BUFFERED, PST_PATH_STAGED);
	order_ready(rig_q);
	order_ready(other);
	rig_mem_fill(out.mem, 0, LEN, ORDER_SEED, 0);
	for (unsigned i = 0; i < 5; i++) {
		if (they_sleep) {
			order_block(made);
			order_start(other, PST_OP_WRITE, w, out.mem, 0, 0, LEN, made);
			(void)usleep(30000);
		}
		stub.stall("cuMemcpyHtoDAsync_v2");
		T_OK(pst_queue_prep(rig_q, &io));
		T_EQ(pst_queue_submit(rig_q), 1);
		T_CHECK(stream_stalled(t_hang()));
		if (they_sleep)
			order_unblock();
		else
			order_start(other, PST_OP_WRITE, w, out.mem, 0, 0, LEN, made);
		order_reap(other, 1, LEN);
		stub.stall(NULL);
		order_reap(rig_q, 1, LEN);
	}
	pst_queue_free(other);
	pst_file_close(f);
	pst_file_close(w);
	order_mem_free(&in);
	order_mem_free(&out);
}

static void writes_beside_a_worker_that_is_kept(void)
{
	if (!has_workers())
		T_SKIP("three CPUs, which are two workers");
	write_beside_a_worker_that_is_kept(false);
	write_beside_a_worker_that_is_kept(true);
}

/* The driver keeps two of the workers right after a request with a stream came. */
static void read_beside_two_workers_that_are_kept(void)
{
	struct order_mem in = order_mem_new(LEN), out = order_mem_new(2 * LEN);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	struct pst_file *w = rig_open(rig_path("order-written"), RIG_NEW);
	struct pst_queue *other = rig_queue(rig_backend, 0);

	order_ready(rig_q);
	order_ready(other);
	rig_mem_fill(out.mem, 0, 2 * LEN, ORDER_SEED, 0);
	for (unsigned i = 0; i < 8; i++) {
		order_block(made);
		stub.stall("cuMemcpyDtoHAsync_v2");
		order_start(other, PST_OP_READ, f, in.mem, 0, 0, LEN, made);
		for (unsigned k = 0; k < 2; k++) {
			struct pst_io io = rig_io(PST_OP_WRITE, w, out.mem, k * LEN, k * LEN, LEN);

			io.policy = PST_POLICY2(PST_PATH_BUFFERED, PST_PATH_STAGED);
			T_OK(pst_queue_prep(rig_q, &io));
		}
		T_EQ(pst_queue_submit(rig_q), 2);
		T_CHECK(stream_stalled(t_hang()));
		(void)usleep(20000);
		order_unblock();
		order_reap(other, 1, LEN);
		stub.stall(NULL);
		order_reap(rig_q, 2, LEN);
	}
	pst_queue_free(other);
	pst_file_close(f);
	pst_file_close(w);
	order_mem_free(&in);
	order_mem_free(&out);
}

static void reads_beside_two_workers_that_are_kept(void)
{
	if (!has_workers())
		T_SKIP("three CPUs, which are two workers");
	read_beside_two_workers_that_are_kept();
}

static void wait_for_pages(uint64_t bytes)
{
	uint64_t end = t_hang();

	while (rig_stats(NULL).pages_bytes != bytes) {
		T_CHECK(t_now() < end);
		(void)usleep(1000);
	}
}

/* The driver takes the first 8 MiB and not the next.  False: something else was refused. */
static bool pin_half(struct pst_queue *q, struct pst_file *f, struct pst_mem *m, uint64_t len)
{
	uint64_t want = rig_stats(NULL).pages_bytes + RIG_MIB(8), end = t_in_ms(1000);
	struct pst_io all = rig_io(PST_OP_READ, f, m, 0, 0, len);
	struct pst_io some = rig_io(PST_OP_READ, f, m, 0, 0, RIG_MIB(1));

	T_EQ(rig_do(q, &all).res, (int64_t)len);
	(void)stub.fail("cuMemHostRegister_v2:2:2");
	while (rig_stats(NULL).pages_bytes != want && t_now() < end)
		T_EQ(rig_do(q, &some).res, (int64_t)some.len);
	(void)stub.fail(NULL);
	return rig_stats(NULL).pages_bytes == want;
}

static bool reads_pages(const char *path)
{
	struct pst_path_info info = { .sz = sizeof(info) };
	struct pst_file *f = rig_open(path, RIG_R | PST_FILE_STABLE);
	struct pst_mem *m = rig_alloc(rig_dev, 4096);

	T_OK(pst_path_check(f, m, PST_OP_READ, PST_PATH_PAGECACHE, &info));
	pst_mem_free(m);
	pst_file_close(f);
	return info.state != PST_STATE_IMPOSSIBLE;
}

/* The driver pins a part of a file's pages, and that goes when no stream waits. */
static void pins_of_fail_half_way(const char *path)
{
	uint64_t pages = rig_stats(NULL).pages_bytes;
	struct order_mem m = order_mem_new(ORDER_PIECE);
	struct pst_mem *big = rig_alloc(rig_dev, RIG_MIB(20));
	struct pst_queue *other = rig_queue(rig_backend, 0);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	struct pst_file *stable = NULL;
	bool half = false;

	order_ready(rig_q);
	order_ready(other);
	order_block(made);
	order_start(rig_q, PST_OP_READ, f, m.mem, 0, 0, ORDER_PIECE, made);
	for (unsigned i = 0; i < 10 && !half; i++) {
		pst_file_close(stable);
		stable = rig_open(path, RIG_R | PST_FILE_STABLE);
		half = pin_half(other, stable, big, RIG_MIB(20));
	}
	T_CHECK(half);
	order_unblock();
	order_reap(rig_q, 1, ORDER_PIECE);
	HW_CU(cuStreamSynchronize(made));
	T_EQ(rig_mem_differs(m.mem, 0, ORDER_PIECE, ORDER_SEED, 0), ORDER_PIECE);
	wait_for_pages(pages);
	pst_file_close(stable);
	pst_queue_free(other);
	pst_mem_free(big);
	pst_file_close(f);
	order_mem_free(&m);
}

static void pins_fail_half_way(void)
{
	rig_make(rig_path("pins"), 6, RIG_MIB(20));
	if (!reads_pages(rig_path("pins")))
		T_SKIP("a file whose pages the device can read");
	pins_of_fail_half_way(rig_path("pins"));
}

/* Nobody looks after streams any more when the reads that they waited for are over. */
static void rests(void)
{
	struct pst_queue_opts o = { .sz = sizeof(o), .backend = rig_backend, .timeout_ms = 2000 };
	struct pst_queue *q = NULL;
	uint64_t passed;

	T_OK(pst_queue_new(&o, &q));
	T_CHECK(pst_queue_fd(q) >= 0);
	order_reads(q, made);
	for (passed = t_in_ms(o.timeout_ms); t_now() < passed;)
		(void)usleep(1000);
	idle_rests("pst-");
	pst_queue_free(q);
}

static void together(void)
{
	uint64_t before = gates();

	over_streams(order_together);
	/* Sixteen requests, one gate. */
	T_EQ(gates() - before, 4);
}

static void many(void)
{
	order_many(made);
	order_many((cu_stream)CU_LEGACY);
}

/* Two reads of one submit, the first small and the last large, and between them others that take
 * long to submit: the gate is not open when the first is through. */
static void first_and_last(void)
{
	struct pst_mem *host = rig_alloc("host", 18 * ORDER_BYTES);
	struct order_mem m = order_mem_new(ORDER_BYTES);
	uint8_t *out = order_host(ORDER_BYTES);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R | PST_FILE_PLAIN);
	uint64_t off[] = { 0, LEN }, len[] = { LEN, ORDER_BYTES - LEN };

	order_ready(rig_q);
	rig_mem_fill(m.mem, 0, ORDER_BYTES, ORDER_OLD, 0);
	for (unsigned i = 0; i < 18; i++) {
		struct pst_io io = rig_io(PST_OP_READ, f, host, 0, i * ORDER_BYTES, ORDER_BYTES);

		if (i == 0 || i == 17) {
			io = rig_io(PST_OP_READ, f, m.mem, off[i > 0], off[i > 0], len[i > 0]);
			order_name(&io, made);
		}
		T_OK(pst_queue_prep(rig_q, &io));
	}
	T_EQ(pst_queue_submit(rig_q), 18);
	HW_CU(cuMemcpyDtoHAsync_v2(out, m.ptr, ORDER_BYTES, made));
	HW_CU(cuStreamSynchronize(made));
	T_EQ(t_differs(out, ORDER_SEED, 0, ORDER_BYTES), ORDER_BYTES);
	for (unsigned i = 0; i < 18; i++)
		T_CHECK(rig_reap1(rig_q).res > 0);
	pst_file_close(f);
	pst_mem_free(host);
	order_host_free(out, ORDER_BYTES);
	order_mem_free(&m);
}

static void of_another_context(void)
{
	cu_stream st;
	cu_ctx ctx;

	HW_CU(cuCtxCreate_v2(&ctx, 0, 0));
	HW_CU(cuStreamCreate(&st, CU_NON_BLOCKING));
	order_reads(rig_q, st);
	order_writes(rig_q, st);
	order_reads(rig_q, (cu_stream)CU_LEGACY);
	/* Named while another context is current. */
	HW_CU(cuCtxPopCurrent_v2(&ctx));
	HW_CU(cuCtxPushCurrent_v2(hw_ctx));
	{
		struct order_mem m = order_mem_new(LEN);
		struct pst_file *f = rig_open(rig_path("order"), RIG_R);

		order_start(rig_q, PST_OP_READ, f, m.mem, 0, 0, LEN, st);
		order_reap(rig_q, 1, LEN);
		pst_file_close(f);
		order_mem_free(&m);
	}
	HW_CU(cuCtxPopCurrent_v2(&hw_ctx));
	HW_CU(cuCtxPushCurrent_v2(ctx));
	HW_CU(cuStreamDestroy_v2(st));
	HW_CU(cuCtxDestroy_v2(ctx));
}

/* Work behind a write does not wait for it. */
static void write_holds_nothing_back(void)
{
	struct order_mem m = order_mem_new(LEN);
	struct pst_file *f = rig_open(rig_path("order-written"), RIG_NEW);
	_Atomic int there = 0;
	struct pst_done d;

	order_ready(rig_q);
	rig_mem_fill(m.mem, 0, LEN, ORDER_OLD, 0);
	stub.delay_us(700000);
	order_start(rig_q, PST_OP_WRITE, f, m.mem, 0, 0, LEN, made);
	HW_CU(cuLaunchHostFunc(made, set, &there));
	HW_CU(cuStreamSynchronize(made));
	T_CHECK(there);
	T_EQ(pst_queue_reap(rig_q, &d, 0, 1, 0), 0);
	order_reap(rig_q, 1, LEN);
	stub.delay_us(0);
	pst_file_close(f);
	order_mem_free(&m);
}

/* Requests without a stream, or with another, go on while one is waited for. */
static void others_go_on(void)
{
	enum { NR = 100 };
	struct order_mem m = order_mem_new(LEN);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	cu_stream other;

	HW_CU(cuStreamCreate(&other, CU_NON_BLOCKING));
	order_ready(rig_q);
	order_block(made);
	for (unsigned i = 0; i < NR; i++) {
		struct pst_io io = rig_io(PST_OP_READ, f, m.mem, 0, 0, LEN);

		order_name(&io, made);
		io.user_data = 1;
		T_OK(pst_queue_prep(rig_q, &io));
	}
	T_EQ(pst_queue_submit(rig_q), NR);
	/* But no second stream may wait: the two could end behind each other. */
	for (unsigned i = 0; i < 20; i++) {
		order_start(rig_q, PST_OP_READ, f, m.mem, 0, 0, LEN, i % 2 ? other : NULL);
		order_reap(rig_q, 1, i % 2 ? -EBUSY : (int64_t)LEN);
	}
	T_EQ(pst_queue_cancel(rig_q, 1), NR);
	order_reap(rig_q, NR, -ECANCELED);
	order_unblock();
	HW_CU(cuStreamSynchronize(made));
	HW_CU(cuStreamDestroy_v2(other));
	pst_file_close(f);
	order_mem_free(&m);
}

/* A queue of the other back end has an engine of its own on the device. */
static void another_engine_waits_too(void)
{
	bool uring = rig_backend == PST_BACKEND_URING;
	struct pst_queue *q = rig_queue(uring ? PST_BACKEND_THREADS : PST_BACKEND_URING, 0);
	struct order_mem m = order_mem_new(LEN);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	cu_stream other;

	HW_CU(cuStreamCreate(&other, CU_NON_BLOCKING));
	order_ready(rig_q);
	order_ready(q);
	order_block(made);
	order_start(rig_q, PST_OP_READ, f, m.mem, 0, 0, LEN, made);
	order_start(q, PST_OP_READ, f, m.mem, 0, 0, LEN, other);
	order_reap(q, 1, -EBUSY);
	order_unblock();
	order_reap(rig_q, 1, LEN);
	order_start(q, PST_OP_READ, f, m.mem, 0, 0, LEN, other);
	order_reap(q, 1, LEN);
	HW_CU(cuStreamDestroy_v2(other));
	pst_queue_free(q);
	pst_file_close(f);
	order_mem_free(&m);
}

/* The same handle is another stream there. */
static void default_stream_of_another_context_waits_too(void)
{
	struct order_mem m = order_mem_new(LEN);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	cu_ctx ctx, top;

	order_ready(rig_q);
	order_block((cu_stream)CU_LEGACY);
	order_start(rig_q, PST_OP_READ, f, m.mem, 0, 0, LEN, (cu_stream)CU_LEGACY);
	HW_CU(cuCtxCreate_v2(&ctx, 0, 0));
	order_start(rig_q, PST_OP_READ, f, m.mem, 0, 0, LEN, (cu_stream)CU_LEGACY);
	order_reap(rig_q, 1, -EBUSY);
	HW_CU(cuCtxPopCurrent_v2(&top));
	HW_CU(cuCtxDestroy_v2(ctx));
	order_start(rig_q, PST_OP_READ, f, m.mem, 0, 0, LEN, (cu_stream)CU_LEGACY);
	order_unblock();
	order_reap(rig_q, 2, LEN);
	pst_file_close(f);
	order_mem_free(&m);
}

struct mate {
	const char *path;
	char why[300];
};

static void *mate_main(void *arg)
{
	struct mate *me = arg;
	struct pst_queue *q = NULL;
	struct pst_file *f = NULL;
	struct pst_mem *m = NULL;
	cu_stream st = (cu_stream)CU_PER_THREAD;
	struct pst_done d = { 0 };
	uint64_t end = t_hang();

	(void)hw_cu.cuCtxPushCurrent_v2(hw_ctx);
	if (pst_queue_new(NULL, &q) < 0 || pst_mem_alloc(rig_dev, LEN, NULL, &m) < 0 ||
	    pst_file_open(me->path, RIG_R, NULL, &f) < 0)
		(void)snprintf(me->why, sizeof(me->why), "%s", pst_error_text());
	/* One stream waits at a time: the others try again. */
	for (unsigned i = 0; i < 40 && !me->why[0] && t_now() < end; i += d.res == LEN) {
		struct pst_io io = rig_io(PST_OP_READ, f, m, i * 1000, 0, LEN);

		order_name(&io, st);
		if (pst_queue_prep(q, &io) < 0 || pst_queue_submit(q) != 1 ||
		    hw_cu.cuStreamSynchronize(st) != CU_OK ||
		    pst_queue_reap(q, &d, 1, 1, t_in_ms(RIG_WAIT_MS)) != 1 ||
		    (d.res != LEN && d.res != -EBUSY))
			(void)snprintf(me->why, sizeof(me->why), "%u: %" PRId64 ", %s", i, d.res,
				       pst_error_text());
	}
	if (!me->why[0] && t_now() >= end)
		(void)snprintf(me->why, sizeof(me->why), "not done in 20 s");
	pst_queue_free(q);
	pst_file_close(f);
	pst_mem_free(m);
	return NULL;
}

static void threads(void)
{
	const char *path = rig_path("order");
	struct mate mates[3] = { { path, "" }, { path, "" }, { path, "" } };
	pthread_t t[3];

	for (unsigned i = 0; i < 3; i++)
		T_EQ(pthread_create(&t[i], NULL, mate_main, &mates[i]), 0);
	for (unsigned i = 0; i < 3; i++)
		T_EQ(pthread_join(t[i], NULL), 0);
	for (unsigned i = 0; i < 3; i++)
		if (mates[i].why[0])
			T_FAIL("%s", mates[i].why);
}

/* ---------------------------------------------------------------- refusals */

static void memory_without_streams(void)
{
	static const char *const devs[] = { "host", "soft:0" };
	struct pst_file *f = rig_open(rig_path("order"), RIG_RW);
	struct pst_io io = { .op = PST_OP_SYNC, .file = f, .stream = made };

	for (unsigned i = 0; i < RIG_NR(devs); i++)
		for (uint32_t op = PST_OP_READ; op <= PST_OP_WRITE; op++) {
			struct pst_mem *m = rig_alloc(devs[i], LEN);

			io = rig_io(op, f, m, 0, 0, LEN);
			order_name(&io, made);
			T_EQ(pst_queue_prep(rig_q, &io), -EOPNOTSUPP);
			T_CHECK(strstr(pst_error_text(), "no streams to order with"));
			pst_mem_free(m);
		}
	io = (struct pst_io){ .op = PST_OP_SYNC, .file = f, .stream = made };
	T_EQ(pst_queue_prep(rig_q, &io), -EINVAL);
	T_CHECK(strstr(pst_error_text(), "sync"));
	T_EQ(pst_queue_submit(rig_q), 0);
	pst_file_close(f);
}

/* A capture that holds a request's stream: refused, and the capture stays whole and empty. */
static void refused_while_captured(struct order_mem *m, struct pst_file *f, uint32_t op,
				   cu_stream captured, cu_stream named)
{
	struct pst_io io = io_for(m, f, op, named);
	struct pst_done d;
	void *graph = NULL;

	T_OK(pst_queue_prep(rig_q, &io));
	HW_CU(cuStreamBeginCapture_v2(captured, CU_CAPTURE_GLOBAL));
	T_EQ(pst_queue_prep(rig_q, &io), -EBUSY);
	T_CHECK(strstr(pst_error_text(), "captured into a graph"));
	T_EQ(pst_queue_submit(rig_q), 1);
	d = rig_reap1(rig_q);
	T_EQ(d.res, -EBUSY);
	T_CHECK(strstr(pst_error_text(), "captured into a graph"));
	HW_CU(cuStreamEndCapture(captured, &graph));
	T_CHECK(!graph); /* of the stub: no nodes */
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 1);
	order_reap(rig_q, 1, LEN);
	HW_CU(cuStreamSynchronize(named));
}

static void captures(void)
{
	struct order_mem m = order_mem_new(LEN);
	struct pst_file *f = rig_open(rig_path("order-written"), RIG_NEW);
	cu_stream blocking;

	rig_make(rig_path("order-written"), 3, LEN);
	HW_CU(cuStreamCreate(&blocking, 0));
	for (uint32_t op = PST_OP_READ; op <= PST_OP_WRITE; op++) {
		refused_while_captured(&m, f, op, made, made);
		refused_while_captured(&m, f, op, (cu_stream)CU_PER_THREAD,
				       (cu_stream)CU_PER_THREAD);
		refused_while_captured(&m, f, op, blocking, (cu_stream)CU_LEGACY);
	}
	/* A stream that is not captured is none of a capture's business. */
	HW_CU(cuStreamBeginCapture_v2(blocking, CU_CAPTURE_GLOBAL));
	order_start(rig_q, PST_OP_READ, f, m.mem, 0, 0, LEN, made);
	order_reap(rig_q, 1, LEN);
	{
		void *graph = NULL;

		HW_CU(cuStreamEndCapture(blocking, &graph));
		T_CHECK(!graph);
	}
	HW_CU(cuStreamDestroy_v2(blocking));
	pst_file_close(f);
	order_mem_free(&m);
}

static void *prep_without_context(void *arg)
{
	struct pst_io *io = arg;
	static char text[300];
	int r = pst_queue_prep(rig_q, io);

	(void)snprintf(text, sizeof(text), "%d %s", r, pst_error_text());
	return text;
}

static void wrong_streams(void)
{
	struct order_mem m = order_mem_new(LEN);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	struct pst_io io = io_for(&m, f, PST_OP_READ, (cu_stream)CU_LEGACY);
	cu_ctx ctx, top;
	pthread_t t;
	void *text;

	T_EQ(pthread_create(&t, NULL, prep_without_context, &io), 0);
	T_EQ(pthread_join(t, &text), 0);
	if (!strstr(text, "the thread has none"))
		T_FAIL("%s", (char *)text);
	T_EQ(atoi(text), -EINVAL);

	HW_CU(cuCtxCreate_v2(&ctx, 0, 1));
	T_EQ(pst_queue_prep(rig_q, &io), -EINVAL);
	T_CHECK(strstr(pst_error_text(), "another device"));
	HW_CU(cuCtxPopCurrent_v2(&top));
	HW_CU(cuCtxDestroy_v2(ctx));
	T_EQ(pst_queue_submit(rig_q), 0);
	pst_file_close(f);
	order_mem_free(&m);
}

/* -------------------------------------------------------------------- main */

int main(void)
{
	if (setjmp(t_jump))
		HW_DIE("test-stream: %s", t_why);
	if (stream_init()) {
		T_RUN(no_stub);
		return rig_done();
	}
	RUN(reads);
	RUN(read_is_late);
	RUN(writes);
	RUN(frees);
	RUN(writes_beside_a_worker_that_is_kept);
	RUN(reads_beside_two_workers_that_are_kept);
	RUN(frees_beside_reads_without_end);
	RUN(frees_beside_reads_of_two_devices);
	RUN(a_failure_keeps_its_sentence);
	RUN(pins_fail_half_way);
	RUN(rests);
	RUN(together);
	RUN(many);
	RUN(first_and_last);
	RUN(of_another_context);
	RUN(write_holds_nothing_back);
	RUN(others_go_on);
	RUN(another_engine_waits_too);
	RUN(default_stream_of_another_context_waits_too);
	RUN(threads);
	RUN(memory_without_streams);
	RUN(captures);
	RUN(wrong_streams);
	return rig_done();
}
