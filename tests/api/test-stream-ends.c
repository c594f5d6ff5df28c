/* SPDX-License-Identifier: MIT */
/*
 * However a request with a stream ends, the stream must continue.  Runs on the CUDA stub of
 * tests/stub/, with streams that are late, files that never answer and calls that fail.
 */
#include <pthread.h>
#include <sys/wait.h>

#include "fusefs.h"
#include "stream.h"

static const char *self;

/* -------------------------------------------------------------------- ends */

struct setting {
	struct order_mem m;
	struct pst_file *f;
	struct pst_queue *keep; /* keeps the engine alive: its end would wait for all streams */
};

static struct setting set_up(const char *path)
{
	struct setting s = { .m = order_mem_new(LEN), .f = rig_open(path, RIG_R) };

	s.keep = rig_queue(rig_backend, 0);
	order_ready(s.keep);
	rig_mem_fill(s.m.mem, 0, LEN, ORDER_OLD, 0);
	return s;
}

static void take_down(struct setting *s)
{
	pst_file_close(s->f);
	order_mem_free(&s->m);
	pst_queue_free(s->keep);
}

static bool is_filled(const struct order_mem *m, uint8_t value)
{
	uint8_t *out = order_host(LEN);
	bool is = true;

	HW_CU(cuMemcpyDtoHAsync_v2(out, m->ptr, LEN, made));
	HW_CU(cuStreamSynchronize(made));
	for (unsigned i = 0; i < LEN; i++)
		is = is && out[i] == value;
	order_host_free(out, LEN);
	return is;
}

/* The stream has not reached the request's mark: a cancel ends the request without BUSY, and no
 * byte was moved. */
static void canceled_before_the_mark(void)
{
	struct setting s = set_up(rig_path("order"));
	struct pst_done d;

	order_block(made);
	order_start_behind(rig_q, PST_OP_READ, s.f, s.m.mem, LEN, made);
	T_EQ(pst_queue_cancel(rig_q, 0), 1);
	d = rig_reap1(rig_q);
	T_EQ(d.res, -ECANCELED);
	T_CHECK(!(d.flags & PST_DONE_BUSY));
	T_OK(pst_mem_drain(s.m.mem, 0));
	order_unblock();
	is_free(made);
	T_EQ(rig_mem_differs(s.m.mem, 0, LEN, ORDER_OLD, 0), LEN);
	take_down(&s);
}

/* The stream waits, and has not reached the copies of its read: once the request has ended, they
 * move nothing. */
static void ends_before_the_copies(bool cancel)
{
	struct setting s = set_up(rig_path("order"));
	struct pst_io io = rig_io(PST_OP_READ, s.f, s.m.mem, 0, 0, LEN);
	struct pst_done d;

	order_block(made);
	order_name(&io, made);
	io.deadline_ns = cancel ? t_hang() : t_in_ms(80);
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 1);
	(void)usleep(20000); /* the copies are queued by then; if not, the results are the same */
	if (cancel)
		T_EQ(pst_queue_cancel(rig_q, 0), 1);
	d = rig_reap1(rig_q);
	T_EQ(d.res, cancel ? -ECANCELED : -ETIMEDOUT);
	if (d.flags & PST_DONE_BUSY)
		T_EQ(pst_mem_drain(s.m.mem, 0), -EBUSY);
	order_unblock();
	is_free(made);
	T_OK(pst_mem_drain(s.m.mem, t_hang()));
	T_EQ(rig_mem_differs(s.m.mem, 0, LEN, ORDER_OLD, 0), LEN);
	take_down(&s);
}

static void canceled_before_the_copies(void)
{
	ends_before_the_copies(true);
}

static void late_before_the_copies(void)
{
	ends_before_the_copies(false);
}

/* Cancel while a worker is in a call on the stream's context, which the program may destroy
 * after the completion.  Return false if the completion said BUSY although the call was short. */
static bool canceled_while_a_worker_asks(bool for_long)
{
	struct setting s = set_up(rig_path("order"));
	struct pst_done d;
	uint64_t from;
	bool busy;

	order_block(made);
	stub.stall("cuEventQuery");
	order_start_behind(rig_q, PST_OP_READ, s.f, s.m.mem, LEN, made);
	T_CHECK(stream_stalled(t_hang()));
	from = t_now();
	T_EQ(pst_queue_cancel(rig_q, 0), 1);
	if (!for_long)
		stub.stall(NULL);
	d = rig_reap1(rig_q);
	busy = d.flags & PST_DONE_BUSY;
	T_EQ(d.res, -ECANCELED);
	T_CHECK(busy || !for_long);
	T_CHECK(!busy || t_now() - from >= 100 * 1000000u);
	if (for_long || !busy)
		T_EQ(pst_mem_drain(s.m.mem, 0), for_long ? -EBUSY : 0);
	stub.stall(NULL);
	T_OK(pst_mem_drain(s.m.mem, t_hang()));
	order_unblock();
	is_free(made);
	T_EQ(rig_mem_differs(s.m.mem, 0, LEN, ORDER_OLD, 0), LEN);
	take_down(&s);
	return busy == for_long;
}

/* The cancel waits 100 ms for the worker.  A busy machine may take longer, so try several times. */
static void canceled_while_a_worker_asks_briefly(void)
{
	unsigned tries = 0;

	while (!canceled_while_a_worker_asks(false))
		T_CHECK(++tries < 20);
}

static void canceled_while_the_driver_keeps_a_worker(void)
{
	(void)canceled_while_a_worker_asks(true);
}

/* After a cancel no worker queries the stream, even if nobody reaps. */
static void nobody_asks_for_a_canceled_one(void)
{
	struct setting s = set_up(rig_path("order"));
	struct stub_cuda_state now;

	order_block(made);
	order_start_behind(rig_q, PST_OP_READ, s.f, s.m.mem, LEN, made);
	T_EQ(pst_queue_cancel(rig_q, 0), 1);
	stub.stall("cuEventQuery");
	(void)usleep(20000); /* workers query more often than that */
	stub.state(&now);
	T_EQ(now.stalled, 0);
	T_CHECK(!(rig_reap1(rig_q).flags & PST_DONE_BUSY));
	stub.stall(NULL);
	order_unblock();
	is_free(made);
	take_down(&s);
}

static void late_before_the_mark(void)
{
	struct setting s = set_up(rig_path("order"));
	uint64_t from = t_now();
	struct pst_io io = rig_io(PST_OP_READ, s.f, s.m.mem, 0, 0, LEN);
	struct pst_done d;

	order_block(made);
	io.stream = made;
	io.deadline_ns = from + 80 * 1000000u;
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 1);
	d = rig_reap1(rig_q);
	T_EQ(d.res, -ETIMEDOUT);
	T_CHECK(!(d.flags & PST_DONE_BUSY));
	T_CHECK(t_now() - from >= 80 * 1000000u);
	order_unblock();
	is_free(made);
	T_EQ(rig_mem_differs(s.m.mem, 0, LEN, ORDER_OLD, 0), LEN);
	take_down(&s);
}

/* Nobody reaps: the program waits for the stream, which waits for a read of a file that never
 * answers. */
static void late_with_nobody_awake(void)
{
	struct fusefs fs;
	struct setting s;
	struct pst_done d;
	uint64_t from, ms;
	char path[200];

	if (fusefs_start(&fs, rig_dir) < 0)
		T_SKIP("%s", fs.why);
	(void)snprintf(path, sizeof(path), "%s/hang", fs.dir);
	s = set_up(path);
	from = t_now();
	for (unsigned i = 0; i < 2; i++) {
		struct pst_io io = rig_io(PST_OP_READ, s.f, s.m.mem, 0, 0, LEN);

		order_name(&io, made);
		io.deadline_ns = from + 100 * 1000000u;
		T_OK(pst_queue_prep(rig_q, &io));
	}
	T_EQ(pst_queue_submit(rig_q), 2);
	HW_CU(cuStreamSynchronize(made));
	ms = (t_now() - from) / 1000000;
	if (ms < 99 || ms > 60000)
		T_FAIL("the stream went on after %" PRIu64 " ms", ms);
	for (unsigned i = 0; i < 2; i++) {
		d = rig_reap1(rig_q);
		T_EQ(d.res, -ETIMEDOUT);
		T_CHECK(!(d.flags & PST_DONE_BUSY));
	}
	fusefs_stop(&fs);
	take_down(&s);
}

/* Reads of a file that never answers hold all slots.  At their deadline, a read that waits for
 * slots must get others, without another submit. */
static void slots_of_hanging_reads_are_replaced(void)
{
	struct order_mem hung = order_mem_new(FUSEFS_SIZE), m = order_mem_new(LEN);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R), *hangs;
	struct pst_queue *second = rig_queue(rig_backend, 0);
	cu_stream other;
	struct fusefs fs;
	struct pst_io io;
	char path[200];

	if (fusefs_start(&fs, rig_dir) < 0)
		T_SKIP("%s", fs.why);
	HW_CU(cuStreamCreate(&other, CU_NON_BLOCKING));
	order_ready(rig_q);
	(void)snprintf(path, sizeof(path), "%s/hang", fs.dir);
	hangs = rig_open(path, RIG_R);
	for (unsigned i = 0; i < 4; i++) {
		io = rig_io(PST_OP_READ, hangs, hung.mem, 0, 0, FUSEFS_SIZE);
		order_name(&io, other);
		io.deadline_ns = t_in_ms(200);
		T_OK(pst_queue_prep(rig_q, &io));
	}
	T_EQ(pst_queue_submit(rig_q), 4);
	order_start(second, PST_OP_READ, f, m.mem, 0, 0, LEN, made);
	order_reap(second, 1, LEN);
	T_EQ(rig_mem_differs(m.mem, 0, LEN, ORDER_SEED, 0), LEN);
	for (unsigned i = 0; i < 4; i++)
		T_EQ(rig_reap1(rig_q).res, -ETIMEDOUT);
	fusefs_stop(&fs);
	is_free(other);
	HW_CU(cuStreamDestroy_v2(other));
	pst_queue_free(second);
	pst_file_close(hangs);
	pst_file_close(f);
	order_mem_free(&hung);
	order_mem_free(&m);
}

/* Copies are in flight at the deadline: later work on the stream must come after them. */
static void late_with_copies(void)
{
	struct setting s = set_up(rig_path("order"));
	struct pst_io io = rig_io(PST_OP_READ, s.f, s.m.mem, 0, 0, LEN);
	struct pst_done d;

	for (unsigned slow = 0; slow < 2; slow++) {
		stub.delay_us(slow ? 900000 : 100000);
		order_name(&io, made);
		io.deadline_ns = t_in_ms(50);
		T_OK(pst_queue_prep(rig_q, &io));
		T_EQ(pst_queue_submit(rig_q), 1);
		HW_CU(cuMemsetD8Async(s.m.ptr, 0x77, LEN, made));
		d = rig_reap1(rig_q);
		/* All bytes may have arrived before the deadline was checked. */
		T_CHECK(d.res == -ETIMEDOUT || (!slow && d.res == LEN));
		stub.delay_us(0);
		HW_CU(cuStreamSynchronize(made));
		T_OK(pst_mem_drain(s.m.mem, t_hang()));
		T_CHECK(is_filled(&s.m, 0x77));
	}
	take_down(&s);
}

/* After pst_queue_submit() the read must need no driver call that other work on the stream may
 * block, as the first launch of a kernel does.  Stall each of these calls in turn. */
static void the_read_needs_no_driver(void)
{
	static const char *const names[] = {
		"cuMemcpyHtoDAsync_v2", "cuMemcpyBatchAsync_v2", "cuLaunchKernel",
		"cuEventRecord",        "cuEventQuery",          "cuPointerGetAttribute",
		"cuMemHostRegister_v2", "cuCtxPushCurrent_v2",
	};
	struct order_mem m = order_mem_new(ORDER_BYTES), beside = order_mem_new(LEN);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	struct pst_queue *other = rig_queue(rig_backend, 0);

	order_ready(rig_q);
	order_ready(other);
	for (unsigned i = 0; i < RIG_NR(names); i++) {
		struct pst_io io = rig_io(PST_OP_READ, f, beside.mem, 0, 0, LEN);
		uint64_t end = t_hang();
		_Atomic int there = 0;

		rig_mem_fill(m.mem, 0, ORDER_BYTES, ORDER_OLD, 0);
		io.policy = PST_POLICY2(PST_PATH_BUFFERED, PST_PATH_STAGED);
		order_block(made);
		order_start(rig_q, PST_OP_READ, f, m.mem, 0, 0, ORDER_BYTES, made);
		HW_CU(cuLaunchHostFunc(made, set, &there));
		stub.stall(names[i]);
		/* Let workers call the driver, too. */
		T_OK(pst_queue_prep(other, &io));
		T_EQ(pst_queue_submit(other), 1);
		(void)usleep(5000);
		order_unblock();
		while (!there && t_now() < end)
			(void)usleep(200);
		stub.stall(NULL);
		if (!there)
			T_FAIL("the stream waits for %s", names[i]);
		order_reap(rig_q, 1, ORDER_BYTES);
		order_reap(other, 1, LEN);
		T_EQ(rig_mem_differs(m.mem, 0, ORDER_BYTES, ORDER_SEED, 0), ORDER_BYTES);
	}
	pst_queue_free(other);
	pst_file_close(f);
	order_mem_free(&m);
	order_mem_free(&beside);
}

static void *submit_all(void *q)
{
	HW_CU(cuCtxPushCurrent_v2(hw_ctx));
	return (void *)(intptr_t)pst_queue_submit(q);
}

/* The driver stalls pst_queue_submit() after it has queued copies on one stream: that stream
 * must continue. */
static void a_submit_that_is_kept(void)
{
	struct setting s = set_up(rig_path("order"));
	struct pst_io io = rig_io(PST_OP_READ, s.f, s.m.mem, 0, 0, LEN);
	uint64_t end = t_hang();
	_Atomic int there = 0;
	pthread_t submit;
	cu_stream other;
	void *sent;

	HW_CU(cuStreamCreate(&other, CU_NON_BLOCKING));
	order_name(&io, made);
	io.deadline_ns = end;
	T_OK(pst_queue_prep(rig_q, &io));
	order_name(&io, other);
	T_OK(pst_queue_prep(rig_q, &io));
	stub.stall("cuEventRecord:1");
	T_EQ(pthread_create(&submit, NULL, submit_all, rig_q), 0);
	T_CHECK(stream_stalled(end));
	HW_CU(cuLaunchHostFunc(made, set, &there));
	while (!there && t_now() < end)
		(void)usleep(1000);
	stub.stall(NULL);
	T_CHECK(there);
	T_EQ(pthread_join(submit, &sent), 0);
	T_EQ((intptr_t)sent, 2);
	order_reap(rig_q, 2, LEN);
	is_free(made);
	is_free(other);
	HW_CU(cuStreamDestroy_v2(other));
	take_down(&s);
}

static void queue_is_freed(void)
{
	struct setting s = set_up(rig_path("order"));
	struct pst_file *w = rig_open(rig_path("order-written"), RIG_NEW);
	struct pst_io io = rig_io(PST_OP_WRITE, w, s.m.mem, 0, 0, LEN);
	struct pst_queue *q = rig_queue(rig_backend, 0);

	order_block(made);
	order_start(q, PST_OP_READ, s.f, s.m.mem, 0, 0, LEN, made);
	order_start(q, PST_OP_WRITE, w, s.m.mem, 0, 0, LEN, made);
	/* Prepare without submitting: nothing is queued on the stream. */
	order_name(&io, made);
	T_OK(pst_queue_prep(q, &io));
	pst_queue_free(q);
	order_unblock();
	is_free(made);
	T_OK(pst_mem_drain(s.m.mem, t_hang()));
	T_EQ(rig_mem_differs(s.m.mem, 0, LEN, ORDER_OLD, 0), LEN);
	T_EQ(rig_file_info(w).size, 0);
	pst_file_close(w);
	take_down(&s);
}

/* ---------------------------------------------------------------- failures */

/*
 * Fail each call of a mark or a gate once: the request ends with an error, and the stream is
 * free.
 */
static void calls_fail(void)
{
	static const char *const names[] = {
		"cuStreamGetCtx",      "cuCtxGetDevice",
		"cuStreamIsCapturing", "cuEventCreate",
		"cuEventRecord",       "cuStreamWaitValue32_v2",
		"cuCtxPushCurrent_v2", "cuMemHostGetDevicePointer_v2",
		"cuLaunchKernel",      "cuStreamWriteValue32_v2",
	};
	struct order_mem m = order_mem_new(LEN);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	unsigned failed = 0;

	for (unsigned i = 0; i < RIG_NR(names); i++)
		for (unsigned n = 1; n < 4; n++) {
			struct pst_io io = io_for(&m, f, PST_OP_READ, made);
			char spec[80];
			int r;

			(void)snprintf(spec, sizeof(spec), "%s:%u:1", names[i], n);
			(void)stub.fail(spec);
			r = pst_queue_prep(rig_q, &io);
			T_CHECK(r == 0 || (r < 0 && pst_error_text()[0]));
			failed += r < 0;
			T_EQ(pst_queue_submit(rig_q), r == 0);
			if (r == 0) {
				struct pst_done d = rig_reap1(rig_q);

				failed += d.res < 0;
				T_CHECK(d.res == LEN || (d.res < 0 && d.res != -ETIMEDOUT));
			}
			(void)stub.fail(NULL);
			is_free(made);
			order_start(rig_q, PST_OP_READ, f, m.mem, 0, 0, LEN, made);
			order_reap(rig_q, 1, LEN);
		}
	T_CHECK(failed >= RIG_NR(names));
	pst_file_close(f);
	order_mem_free(&m);
}

/* The context gets an error while requests wait for the stream, and while a submit waits for
 * room on it: all of them end with the error. */
static void lose_the_device(void)
{
	/* More copies than the stream has room for. */
	struct pst_seg many = { .len = 1, .file_stride = 128, .mem_stride = 1, .count = 40000 };
	struct order_mem m = order_mem_new(LEN);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	struct pst_io io = rig_io(PST_OP_READ, f, m.mem, 0, 0, 0);
	uint64_t end = t_hang(), first, before;
	struct stub_cuda_state now;
	pthread_t submit;
	struct pst_done d;
	void *sent;

	order_ready(rig_q);
	order_block(made);
	order_start(rig_q, PST_OP_READ, f, m.mem, 0, 0, LEN, made);
	order_start(rig_q, PST_OP_READ, f, m.mem, 0, 0, LEN, made);
	io.segs = &many;
	io.nr_segs = 1;
	order_name(&io, made);
	T_OK(pst_queue_prep(rig_q, &io));
	stub.state(&now);
	first = now.words;
	T_EQ(pthread_create(&submit, NULL, submit_all, rig_q), 0);
	do {
		before = now.words;
		(void)usleep(50000);
		stub.state(&now);
	} while ((now.words == first || now.words != before) && t_now() < end);
	stub.poison(0, CU_ILLEGAL_ADDRESS);
	T_EQ(pthread_join(submit, &sent), 0);
	T_EQ((intptr_t)sent, 1);
	for (unsigned i = 0; i < 3; i++) {
		d = rig_reap1(rig_q);
		T_EQ(d.res, -EIO);
	}
	order_unblock();
	io = io_for(&m, f, PST_OP_READ, made);
	T_EQ(pst_queue_prep(rig_q, &io), -EIO);
	T_CHECK(strstr(pst_error_text(), "restart the process"));
	pst_file_close(f);
	pst_mem_free(m.mem);
}

/* Nothing works after a lost device, so use a process of its own. */
static void device_is_lost(void)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		(void)dup2(STDERR_FILENO, STDOUT_FILENO);
		(void)execl(self, self, rig_backend == PST_BACKEND_URING ? "uring" : "threads",
			    (char *)NULL);
		_exit(127);
	}
	T_CHECK(waitpid(pid, &status, 0) == pid);
	T_EQ(status, 0);
}

/* The driver cannot make streams wait: later reads are refused, writes still work.  The last
 * case, because the library remembers this. */
static void no_barriers(void)
{
	static bool known;
	struct order_mem m = order_mem_new(LEN);
	struct pst_file *f = rig_open(rig_path("order-written"), RIG_NEW);
	struct pst_io io = io_for(&m, f, PST_OP_READ, made);
	struct pst_done d;

	rig_make(rig_path("order-written"), 3, LEN);
	if (!known) {
		known = true;
		(void)stub.fail("cuStreamWaitValue32_v2:1:801");
		T_OK(pst_queue_prep(rig_q, &io));
		T_EQ(pst_queue_submit(rig_q), 1);
		d = rig_reap1(rig_q);
		T_EQ(d.res, -EOPNOTSUPP);
		T_CHECK(stub.fail(NULL));
	}
	T_EQ(pst_queue_prep(rig_q, &io), -EOPNOTSUPP);
	T_CHECK(strstr(pst_error_text(), "stream memory operations"));
	order_start(rig_q, PST_OP_WRITE, f, m.mem, 0, 0, LEN, made);
	order_reap(rig_q, 1, LEN);
	pst_file_close(f);
	order_mem_free(&m);
}

/* -------------------------------------------------------------------- main */

int main(int argc, char **argv)
{
	self = argv[0];
	if (setjmp(t_jump))
		HW_DIE("test-stream-ends: %s", t_why);
	if (stream_init()) {
		T_RUN(no_stub);
		return rig_done();
	}
	if (argc == 2) {
		run1("lose_the_device", lose_the_device,
		     strcmp(argv[1], "uring") ? PST_BACKEND_THREADS : PST_BACKEND_URING);
		return hw_done();
	}
	RUN(canceled_before_the_mark);
	RUN(canceled_before_the_copies);
	RUN(late_before_the_copies);
	RUN(canceled_while_a_worker_asks_briefly);
	RUN(canceled_while_the_driver_keeps_a_worker);
	RUN(nobody_asks_for_a_canceled_one);
	RUN(late_before_the_mark);
	RUN(late_with_nobody_awake);
	RUN(slots_of_hanging_reads_are_replaced);
	RUN(late_with_copies);
	RUN(a_submit_that_is_kept);
	RUN(the_read_needs_no_driver);
	RUN(queue_is_freed);
	RUN(calls_fail);
	RUN(device_is_lost);
	RUN(no_barriers);
	return rig_done();
}
