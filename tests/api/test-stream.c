/* SPDX-License-Identifier: MIT */
/*
 * Requests that name a stream of the program: their order, and which are refused.  Runs on the
 * CUDA stub of tests/stub/. tests/hw/gpu-stream.c checks the order on a real GPU.
 */
#include <pthread.h>
#include <sched.h>

#include "stream.h"

#include "idle.h"
#include "wakes.h"

/* ------------------------------------------------------------------- order */

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

static bool has_workers(int nr)
{
	cpu_set_t set;

	T_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
	return CPU_COUNT(&set) > nr;
}

/* The driver stalls a worker: others must serve the stream's write.  With they_sleep, the other
 * workers already sleep when the worker that watches the stream gets other work. */
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
	if (!has_workers(2))
		T_SKIP("three CPUs, which are two workers");
	write_beside_a_worker_that_is_kept(false);
	write_beside_a_worker_that_is_kept(true);
}

/* The driver stalls two workers right after a request with a stream was submitted. */
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
	if (!has_workers(2))
		T_SKIP("three CPUs, which are two workers");
	read_beside_two_workers_that_are_kept();
}

struct late_stream {
	struct pst_queue *q;
	cu_stream st;
	_Atomic int go;
};

static void until_it_may_go(void *arg)
{
	const struct late_stream *l = arg;
	uint64_t end = t_hang();

	while (!l->go && t_now() < end)
		(void)usleep(100);
}

/* Wait for a completion on any of these queues, and return its stream. */
static struct late_stream *ended(struct late_stream *l, unsigned nr)
{
	struct pst_done d = { 0 };

	for (uint64_t end = t_hang(); t_now() < end; (void)usleep(1000))
		for (unsigned i = 0; i < nr; i++)
			if (pst_queue_reap(l[i].q, &d, 1, 1, 0) == 1) {
				T_EQ(d.res, LEN);
				return &l[i];
			}
	T_CHECK(!"a stream was asked for");
	return NULL;
}

#define STREAMS 6u /* streams, and workers that serve their requests */

/*
 * The driver stalls the queries of all streams but one, each in another worker: all reads must
 * complete.
 */
static void all_questions_but_one_are_kept(struct late_stream l[STREAMS])
{
	struct order_mem m = order_mem_new(STREAMS * LEN);
	struct pst_file *w = rig_open(rig_path("order-written"), RIG_NEW);
	struct stub_cuda_state s = { 0 };
	struct late_stream *first;

	for (unsigned i = 0; i < STREAMS; i++) {
		l[i].go = 0;
		HW_CU(cuLaunchHostFunc(l[i].st, until_it_may_go, &l[i]));
	}
	(void)usleep(100000); /* wait until all workers sleep */
	for (unsigned i = 0; i < STREAMS; i++)
		order_start(l[i].q, PST_OP_WRITE, w, m.mem, i * LEN, i * LEN, LEN, l[i].st);
	(void)usleep(300);
	stub.stall("cuEventQuery#5");
	for (uint64_t end = t_hang(); s.stalled < STREAMS - 1 && t_now() < end; stub.state(&s))
		(void)usleep(1000);
	T_EQ(s.stalled, STREAMS - 1);
	for (unsigned i = 0; i < STREAMS; i++)
		l[i].go = 1;
	first = ended(l, STREAMS);
	stub.stall(NULL);
	for (unsigned i = 0; i < STREAMS; i++)
		if (&l[i] != first)
			order_reap(l[i].q, 1, LEN);
	pst_file_close(w);
	order_mem_free(&m);
}

static void write_beside_questions_that_are_kept(void)
{
	struct late_stream l[STREAMS] = { 0 };

	if (!has_workers(7))
		T_SKIP("eight CPUs, which are seven workers");
	for (unsigned i = 0; i < STREAMS; i++) {
		HW_CU(cuStreamCreate(&l[i].st, CU_NON_BLOCKING));
		l[i].q = rig_queue(rig_backend, 0);
		order_ready(l[i].q);
	}
	for (unsigned i = 0; i < 6; i++)
		all_questions_but_one_are_kept(l);
	for (unsigned i = 0; i < STREAMS; i++) {
		pst_queue_free(l[i].q);
		HW_CU(cuStreamDestroy_v2(l[i].st));
	}
}

/* Requests on many streams arrive while the worker woken for the first one is not awake yet.  If
 * the driver stalls queries, the clock must wake a worker for each stream. */
static void each_stream_has_a_worker(void)
{
	struct late_stream l[STREAMS] = { 0 };
	struct order_mem m;
	struct pst_file *f;
	uint64_t end;

	if (!has_workers(7))
		T_SKIP("eight CPUs, which are seven workers");
	m = order_mem_new(STREAMS * LEN);
	f = rig_open(rig_path("order"), RIG_R);
	for (unsigned i = 0; i < STREAMS; i++) {
		HW_CU(cuStreamCreate(&l[i].st, CU_NON_BLOCKING));
		l[i].q = rig_queue(rig_backend, 0);
		order_ready(l[i].q);
	}
	atomic_store(&wakes_at_once, 0);
	for (end = t_hang(); atomic_load(&wakes_at_once) < 2 && t_now() < end;) {
		(void)usleep(20000); /* wait until the workers sleep */
		stub.stall("cuEventQuery#5");
		for (unsigned i = 0; i < STREAMS; i++) {
			struct pst_io io = rig_io(PST_OP_READ, f, m.mem, i * LEN, i * LEN, LEN);

			io.stream = l[i].st;
			T_OK(pst_queue_prep(l[i].q, &io));
			T_EQ(pst_queue_submit(l[i].q), 1);
		}
		(void)usleep(20000);
		stub.stall(NULL);
		for (unsigned i = 0; i < STREAMS; i++)
			order_reap(l[i].q, 1, LEN);
	}
	T_CHECK(atomic_load(&wakes_at_once) >= 2);
	for (unsigned i = 0; i < STREAMS; i++) {
		pst_queue_free(l[i].q);
		HW_CU(cuStreamDestroy_v2(l[i].st));
	}
	pst_file_close(f);
	order_mem_free(&m);
}

/* No worker watches streams once the reads that waited for them have ended. */
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

/* If several requests of one submit wait for the same stream, only one worker is woken. */
static void one_is_woken_for_a_stream(void)
{
	enum { NR = 16 };
	struct order_mem m = order_mem_new(NR * LEN);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	unsigned nr;

	order_ready(rig_q);
	order_block(made);
	for (unsigned i = 0; i < NR; i++) {
		struct pst_io io = rig_io(PST_OP_READ, f, m.mem, i * LEN, i * LEN, LEN);

		io.stream = made;
		T_OK(pst_queue_prep(rig_q, &io));
	}
	(void)usleep(20000); /* wait until the workers sleep */
	atomic_store(&wakes_here, 0);
	T_EQ(pst_queue_submit(rig_q), NR);
	nr = atomic_load(&wakes_here);
	order_unblock();
	T_CHECK(nr <= 1); /* no wake-up is needed if a worker was awake */
	order_reap(rig_q, NR, LEN);
	HW_CU(cuStreamSynchronize(made));
	pst_file_close(f);
	order_mem_free(&m);
}

static void together(void)
{
	over_streams(order_together);
}

static void many(void)
{
	order_many(made);
	order_many((cu_stream)CU_LEGACY);
}

/* Submit a small read first and a large one last, with slow ones in between: the stream must not
 * continue when the first one is done. */
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

/* Memory of the primary context with a stream of another context; then memory of that context. */
static void of_another_context(void)
{
	struct order_mem m = order_mem_new(ORDER_PIECE), foreign;
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	struct pst_file *w = rig_open(rig_path("order-written"), RIG_NEW);
	struct pst_io io;
	cu_stream st;
	cu_ctx ctx;

	order_ready(rig_q);
	HW_CU(cuCtxCreate_v2(&ctx, 0, 0));
	HW_CU(cuStreamCreate(&st, CU_NON_BLOCKING));
	order_by_foreign_stream(rig_q, &m, f, w, st);
	order_by_foreign_stream(rig_q, &m, f, w, (cu_stream)CU_LEGACY);
	order_writes(rig_q, st);
	foreign = order_mem_new(LEN);
	io = io_for(&foreign, f, PST_OP_READ, st);
	T_EQ(pst_queue_prep(rig_q, &io), -EOPNOTSUPP);
	T_CHECK(strstr(pst_error_text(), "context of the program"));
	order_start_behind(rig_q, PST_OP_READ, f, foreign.mem, LEN, st);
	order_reap(rig_q, 1, LEN);
	order_mem_free(&foreign);
	/* Name the stream while another context is current. */
	HW_CU(cuCtxPopCurrent_v2(&ctx));
	HW_CU(cuCtxPushCurrent_v2(hw_ctx));
	order_start(rig_q, PST_OP_READ, f, m.mem, 0, 0, LEN, st);
	order_reap(rig_q, 1, LEN);
	HW_CU(cuCtxPopCurrent_v2(&hw_ctx));
	HW_CU(cuCtxPushCurrent_v2(ctx));
	HW_CU(cuStreamDestroy_v2(st));
	HW_CU(cuCtxDestroy_v2(ctx));
	pst_file_close(f);
	pst_file_close(w);
	order_mem_free(&m);
}

/* A write does not hold back later work on its stream. */
static void write_holds_nothing_back(void)
{
	struct order_mem m = order_mem_new(LEN);
	struct pst_file *f = rig_open(rig_path("order-written"), RIG_NEW);
	_Atomic int there = 0;
	struct pst_done d;

	order_ready(rig_q);
	rig_mem_fill(m.mem, 0, LEN, ORDER_OLD, 0);
	stub.stall("cuMemcpyDtoHAsync_v2");
	order_start(rig_q, PST_OP_WRITE, f, m.mem, 0, 0, LEN, made);
	HW_CU(cuLaunchHostFunc(made, set, &there));
	HW_CU(cuStreamSynchronize(made));
	T_CHECK(there);
	T_EQ(pst_queue_reap(rig_q, &d, 0, 1, 0), 0);
	stub.stall(NULL);
	order_reap(rig_q, 1, LEN);
	pst_file_close(f);
	order_mem_free(&m);
}

/* Requests without a stream, or on another stream, complete while one stream waits. */
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
	for (unsigned i = 0; i < 20; i++) {
		order_start(rig_q, PST_OP_READ, f, m.mem, 0, 0, LEN, NULL);
		order_reap(rig_q, 1, LEN);
	}
	/* The requests that wait hold all staging memory, so the read on another stream waits,
	 * too, until they are cancelled. */
	order_start(rig_q, PST_OP_READ, f, m.mem, 0, 0, LEN, other);
	T_EQ(pst_queue_cancel(rig_q, 1), NR);
	for (unsigned i = 0; i < NR + 1; i++) {
		struct pst_done d = rig_reap1(rig_q);

		T_EQ(d.res, d.user_data == 1 ? -ECANCELED : (int64_t)LEN);
	}
	order_unblock();
	HW_CU(cuStreamSynchronize(made));
	HW_CU(cuStreamDestroy_v2(other));
	pst_file_close(f);
	order_mem_free(&m);
}

/* The copies of pieces of equal length are counted exactly, not by the worst case. */
static void small_pieces_take_few_copies(void)
{
	enum { NR = 768, LEN_EACH = 4096, IN_SLOT = 64 }; /* a slot has at least 256 KiB */
	static struct pst_seg segs[NR];
	struct order_mem m = order_mem_new((uint64_t)NR * LEN_EACH);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	struct pst_io io = rig_io(PST_OP_READ, f, m.mem, 0, 0, 0);
	struct stub_cuda_state before, now;

	for (unsigned i = 0; i < NR; i++)
		segs[i] = (struct pst_seg){ .file_off = (uint64_t)i * 2 * LEN_EACH,
					    .mem_off = (uint64_t)i * LEN_EACH,
					    .len = LEN_EACH };
	io.segs = segs;
	io.nr_segs = NR;
	order_name(&io, made);
	order_ready(rig_q);
	stub.state(&before);
	T_EQ(rig_do(rig_q, &io).res, NR * LEN_EACH);
	stub.state(&now);
	T_CHECK(now.words > before.words);
	T_CHECK(now.words - before.words <= NR / IN_SLOT + 4);
	for (unsigned i = 0; i < NR; i++)
		T_EQ(rig_mem_differs(m.mem, segs[i].mem_off, LEN_EACH, ORDER_SEED,
				     segs[i].file_off),
		     LEN_EACH);
	pst_file_close(f);
	order_mem_free(&m);
}

/* A queue of the other back end has an engine of its own on the same device. */
static void streams_of_two_engines(void)
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
	order_reap(q, 1, LEN);
	order_unblock();
	order_reap(rig_q, 1, LEN);
	HW_CU(cuStreamDestroy_v2(other));
	pst_queue_free(q);
	pst_file_close(f);
	order_mem_free(&m);
}

/* In another context the same handle is another stream. */
static void default_stream_of_another_context(void)
{
	struct order_mem m = order_mem_new(LEN);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	cu_ctx ctx, top;

	order_ready(rig_q);
	order_block((cu_stream)CU_LEGACY);
	order_start(rig_q, PST_OP_READ, f, m.mem, 0, 0, LEN, (cu_stream)CU_LEGACY);
	HW_CU(cuCtxCreate_v2(&ctx, 0, 0));
	order_start(rig_q, PST_OP_READ, f, m.mem, 0, 0, LEN, (cu_stream)CU_LEGACY);
	order_reap(rig_q, 1, LEN);
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
	for (unsigned i = 0; i < 40 && !me->why[0] && t_now() < end; i++) {
		struct pst_io io = rig_io(PST_OP_READ, f, m, i * 1000, 0, LEN);

		order_name(&io, st);
		if (pst_queue_prep(q, &io) < 0 || pst_queue_submit(q) != 1 ||
		    hw_cu.cuStreamSynchronize(st) != CU_OK ||
		    pst_queue_reap(q, &d, 1, 1, t_in_ms(RIG_WAIT_MS)) != 1 || d.res != LEN)
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

/* A request on a stream that is being captured is refused, and does not end or change the
 * capture. */
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
	T_CHECK(!graph); /* the stub's graph is NULL if it is empty */
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
	/* A stream that is not captured can be used during a capture. */
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
	RUN(writes_beside_a_worker_that_is_kept);
	RUN(reads_beside_two_workers_that_are_kept);
	RUN(write_beside_questions_that_are_kept);
	RUN(rests);
	RUN(one_is_woken_for_a_stream);
	RUN(each_stream_has_a_worker);
	RUN(together);
	RUN(many);
	RUN(first_and_last);
	RUN(of_another_context);
	RUN(write_holds_nothing_back);
	RUN(others_go_on);
	RUN(small_pieces_take_few_copies);
	RUN(streams_of_two_engines);
	RUN(default_stream_of_another_context);
	RUN(threads);
	RUN(memory_without_streams);
	RUN(captures);
	RUN(wrong_streams);
	return rig_done();
}
