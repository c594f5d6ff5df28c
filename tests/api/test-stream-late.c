/* SPDX-License-Identifier: MIT */
/*
 * Memory that the library frees and unpins while a stream waits for a read: the driver's calls for
 * that would block the read, so the library defers them.  Also test streams while the library gets
 * no thread.  Runs on the CUDA stub of tests/stub/.
 */
#include <pthread.h>

#include "stream.h"

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

/* Free memory during a read that a stream waits for.  Return true if the driver's free was
 * deferred.  Return false, with the read completed, if the read may have ended before. */
static bool put_off(struct pst_file *f, struct pst_mem *m, struct stub_cuda_state *ret)
{
	struct pst_mem *own = rig_alloc(rig_dev, ORDER_PIECE);
	struct stub_cuda_state before;

	stub.state(&before);
	order_start(rig_q, PST_OP_READ, f, m, 0, 0, ORDER_PIECE, made);
	pst_mem_free(own);
	stub.state(ret);
	if (ret->ranges == before.ranges)
		return true;
	order_reap(rig_q, 1, ORDER_PIECE);
	return false;
}

/* Some read always waits: the deferred free must still happen. */
static void overlap_until_freed(unsigned us)
{
	struct order_mem m = order_mem_new(ORDER_PIECE);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	struct stub_cuda_state before, now;
	uint64_t end = t_hang();

	order_ready(rig_q);
	stub.delay_us(us);
	while (!put_off(f, m.mem, &before))
		T_CHECK(t_now() < end);
	now = before;
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
	overlap_until_freed(20000);
}

/* Two of these reads take longer than the first deferral may. */
static void frees_beside_long_reads_without_end(void)
{
	overlap_until_freed(60000);
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

/* Keep two reads in flight. */
static void *other_reads(void *arg)
{
	struct other_device *o = arg;

	o->err = other_start(o);
	while (!o->err && !o->stop)
		o->err = other_start(o) || other_reap(o);
	o->err = o->err || other_reap(o);
	return NULL;
}

/* Streams of two devices must not defer the free for ever, either. */
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
	overlap_until_freed(20000);
	o.stop = true;
	(void)pthread_join(thread, NULL);
	T_EQ(o.err, 0);
	T_CHECK(o.nr_reads >= 2);
	pst_queue_free(o.q);
	pst_file_close(o.f);
	pst_mem_free(o.m);
	HW_CU(cuStreamDestroy_v2(o.st));
}

static _Thread_local unsigned pauses;

/* Replaces libc's function for the library, and counts sleeps of the thread. */
__attribute__((visibility("default"))) int nanosleep(const struct timespec *ts,
						     struct timespec *ret_left)
{
	int (*real)(const struct timespec *, struct timespec *);

	symbol(RTLD_NEXT, &real, "nanosleep");
	pauses++;
	return real(ts, ret_left);
}

/* Free memory while a submit stalls, wait longer than work is deferred, then release the submit. */
static void *put_off_and_let_go(void *own)
{
	if (stream_stalled(t_hang()))
		pst_mem_free(own);
	(void)usleep(1100000);
	stub.stall(NULL);
	return own;
}

/* A submit must not wait for the streams that it has made wait itself. */
static void a_submit_with_two_streams(void)
{
	struct order_mem m = order_mem_new(ORDER_PIECE);
	struct pst_mem *own = rig_alloc(rig_dev, ORDER_PIECE), *other;
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	cu_ctx first = hw_ctx;
	pthread_t thread;
	struct pst_io io;
	cu_stream st;
	unsigned nr;

	if (hw_cuda(1))
		T_SKIP("needs two GPUs");
	HW_CU(cuStreamCreate(&st, CU_NON_BLOCKING));
	HW_CU(cuCtxPopCurrent_v2(&hw_ctx));
	hw_ctx = first;
	other = rig_alloc("cuda:1", ORDER_PIECE);
	order_ready(rig_q);
	io = rig_io(PST_OP_READ, f, m.mem, 0, 0, ORDER_PIECE);
	order_name(&io, made);
	T_OK(pst_queue_prep(rig_q, &io));
	io = rig_io(PST_OP_READ, f, other, 0, 0, ORDER_PIECE);
	order_name(&io, st);
	T_OK(pst_queue_prep(rig_q, &io));
	stub.stall("cuEventRecord:1");
	T_EQ(pthread_create(&thread, NULL, put_off_and_let_go, own), 0);
	nr = pauses;
	T_EQ(pst_queue_submit(rig_q), 2);
	nr = pauses - nr;
	(void)pthread_join(thread, NULL);
	T_EQ(nr, 0);
	order_reap(rig_q, 2, ORDER_PIECE);
	pst_mem_free(other);
	pst_file_close(f);
	order_mem_free(&m);
	HW_CU(cuStreamDestroy_v2(st));
}

static atomic_int refused = -1; /* refused threads; -1: pthread_create() works */

/* Return true if a thread of the test provider runs fn. */
bool test_provider_runs(void *(*fn)(void *)) __attribute__((weak));

/* Replaces libc's function for the library. */
__attribute__((visibility("default"))) int pthread_create(pthread_t *ret,
							  const pthread_attr_t *attr,
							  void *(*fn)(void *), void *arg)
{
	int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

	symbol(RTLD_NEXT, &real, "pthread_create");
	if (refused < 0 || (test_provider_runs && test_provider_runs(fn)))
		return real(ret, attr, fn, arg);
	refused++;
	return EAGAIN;
}

/*
 * The library gets no thread for deferred work: the error text of the caller's own failure must
 * stay.
 */
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
	order_block(made);
	order_start(rig_q, PST_OP_READ, f, m.mem, 0, 0, LEN,
		    made); /* starts all threads of the engine */
	pst_mem_free(own);
	do /* wait until the thread for earlier deferred work has ended */
		(void)usleep(1000);
	while (rig_count_tasks() && strstr(rig_task_names, "pst-work") && t_now() < end);
	refused = 0;
	order_unblock();
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
	pst_mem_free(rig_alloc(rig_dev, 4096)); /* gets a thread for all deferred work */
	do {
		T_CHECK(t_now() < end);
		(void)usleep(1000);
		stub.state(&now);
	} while (now.ranges >= before.ranges);
	pst_file_close(f);
	order_mem_free(&m);
}

/*
 * No thread for the clock could be started when the first request with a stream came.  A later
 * attempt must succeed, and end a read at its deadline.
 */
static void the_clock_begins_later(void)
{
	struct order_mem m = order_mem_new(LEN);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	struct pst_io io = rig_io(PST_OP_READ, f, m.mem, 0, 0, LEN);
	struct pst_queue *other = rig_queue(rig_backend, 0);
	int r, nr;

	order_ready(rig_q);
	io.stream = made;
	refused = 0;
	r = pst_queue_prep(rig_q, &io);
	nr = refused;
	refused = -1;
	T_OK(r);
	T_CHECK(nr > 0);
	T_EQ(pst_queue_submit(rig_q), 1);
	order_reap(rig_q, 1, LEN);
	(void)usleep(20000);
	/* starts the clock's thread, which this queue's deadlines need */
	T_CHECK(pst_queue_fd(other) >= 0);
	(void)usleep(20000);
	io.flags |= PST_IO_STREAM_WAIT;
	io.deadline_ns = t_in_ms(200);
	T_OK(pst_queue_prep(rig_q, &io));
	order_block(made);
	T_EQ(pst_queue_submit(rig_q), 1);
	(void)usleep(400000); /* let the deadline pass without a reap */
	order_unblock();
	is_free(made);
	order_reap(rig_q, 1, -ETIMEDOUT);
	T_OK(pst_mem_drain(m.mem, t_hang()));
	pst_queue_free(other);
	pst_file_close(f);
	order_mem_free(&m);
}

static void wait_for_pages(uint64_t bytes)
{
	uint64_t end = t_hang();

	while (rig_stats(NULL).pages_bytes != bytes) {
		T_CHECK(t_now() < end);
		(void)usleep(1000);
	}
}

/* Pin until the driver refuses, after 8 MiB. Return false if something else was refused. */
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

/* The driver pins only a part of the file's pages: they are unpinned once no stream waits. */
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

int main(void)
{
	if (setjmp(t_jump))
		HW_DIE("test-stream-late: %s", t_why);
	if (stream_init()) {
		T_RUN(no_stub);
		return rig_done();
	}
	RUN(frees);
	RUN(frees_beside_reads_without_end);
	RUN(frees_beside_long_reads_without_end);
	RUN(frees_beside_reads_of_two_devices);
	RUN(a_submit_with_two_streams);
	RUN(a_failure_keeps_its_sentence);
	RUN(the_clock_begins_later);
	RUN(pins_fail_half_way);
	return rig_done();
}
