/* SPDX-License-Identifier: MIT */
/*
 * Requests that name a stream of the program, with real copies and kernels before and after
 * them.
 *
 *	gpu-stream [-m DEVICE] [DIR]		cases, in TAP, with measurements as comments
 *
 * A stream that waits for a read blocks one of the device's few hardware queues, and all streams
 * on the same queue wait too.  The case `queues' counts the blocked streams; `crowd' checks that
 * requests complete nevertheless.
 */
#include "order.h"

#define HOLD_MS 10000 /* deadline of requests that might hang, ms */
#define LARGE RIG_MIB(512)
#define QUEUES_NR 32u
#define HANGS                                                                                      \
	"the device did nothing for the request in 10 s.  Its copies stand in a queue behind the " \
	"stream that waits for them (see the comments of `queues'), or the driver waits for all "  \
	"streams in some call"

static const char *device = "cuda:0";

/* ------------------------------------------------------------------- tools */

static struct pst_queue *queue;

/* Start one request with a deadline, in case the stream and the request wait for each other. */
static void start(const struct pst_io *io, cu_stream st)
{
	struct pst_io copy = *io;

	order_name(&copy, st);
	copy.deadline_ns = t_in_ms(HOLD_MS);
	T_OK(pst_queue_prep(queue, &copy));
	T_EQ(pst_queue_submit(queue), 1);
}

static struct pst_done finish(uint64_t len)
{
	struct pst_done d = rig_reap1(queue);

	if (d.res == -ETIMEDOUT)
		T_FAIL("%s", HANGS);
	if (d.res != (int64_t)len)
		rig_show(&d);
	T_EQ(d.res, (int64_t)len);
	return d;
}

static int cmp(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v, unsigned nr)
{
	qsort(v, nr, sizeof(*v), cmp);
	return v[nr / 2];
}

static double us_since(uint64_t t)
{
	return (double)(t_now() - t) / 1e3;
}

static const char *why;

static void no_driver(void)
{
	T_SKIP("%s", why);
}

/* ------------------------------------------------------------------- order */

static cu_stream stream;
static void (*order_fn)(struct pst_queue *q, cu_stream st);

static void order_case(void)
{
	queue = rig_queue(PST_BACKEND_AUTO, 0);
	order_fn(queue, stream);
	queue = pst_queue_free(queue);
}

static void many_case(struct pst_queue *q, cu_stream st)
{
	(void)q;
	order_many(st);
}

static void over_streams(const char *name, void (*fn)(struct pst_queue *q, cu_stream st))
{
	static const char *const kinds[] = { "non-blocking", "blocking", "legacy", "per-thread" };
	cu_stream st[4] = { NULL, NULL, (cu_stream)CU_LEGACY, (cu_stream)CU_PER_THREAD };
	char full[100];

	HW_CU(cuStreamCreate(&st[0], CU_NON_BLOCKING));
	HW_CU(cuStreamCreate(&st[1], 0));
	order_fn = fn;
	for (unsigned i = 0; i < RIG_NR(st); i++) {
		stream = st[i];
		(void)snprintf(full, sizeof(full), "%s %s", name, kinds[i]);
		t_run(full, order_case);
		queue = pst_queue_free(queue); /* an earlier case failed */
	}
	HW_CU(cuStreamDestroy_v2(st[0]));
	HW_CU(cuStreamDestroy_v2(st[1]));
}

/* Kernels instead of copies: memsets before a write, a memset after a read. */
static void kernels(void)
{
	struct order_mem m = order_mem_new(RIG_MIB(8));
	uint8_t *host = order_host(RIG_MIB(8));
	struct pst_file *f = rig_open(rig_path("set"), RIG_NEW);
	struct pst_io io = rig_io(PST_OP_WRITE, f, m.mem, 0, 0, RIG_MIB(8));

	if (!hw_cu.cuMemsetD8Async)
		T_SKIP("libcuda.so.1 has no cuMemsetD8Async");
	queue = rig_queue(PST_BACKEND_AUTO, 0);
	order_ready(queue);
	for (unsigned turn = 1; turn <= 20; turn++) {
		order_block(stream);
		for (unsigned i = 0; i < 20; i++)
			HW_CU(cuMemsetD8Async(m.ptr, (unsigned char)(turn + i), io.len, stream));
		io.op = PST_OP_WRITE;
		start(&io, stream);
		order_unblock();
		finish(io.len);
		T_EQ(rig_slurp(rig_path("set"), 0, host, io.len), io.len);
		for (uint64_t i = 0; i < io.len; i += 4093)
			T_EQ(host[i], (uint8_t)(turn + 19));

		io.op = PST_OP_READ;
		start(&io, stream);
		HW_CU(cuMemcpyDtoHAsync_v2(host, m.ptr, io.len, stream));
		HW_CU(cuMemsetD8Async(m.ptr, 0xee, io.len, stream));
		HW_CU(cuStreamSynchronize(stream));
		for (uint64_t i = 0; i < io.len; i += 4093)
			T_EQ(host[i], (uint8_t)(turn + 19));
		finish(io.len);
		/* A late read would have overwritten these bytes. */
		T_OK(pst_mem_copy_out(m.mem, 0, host, io.len));
		for (uint64_t i = 0; i < io.len; i += 4093)
			T_EQ(host[i], 0xee);
	}
	queue = pst_queue_free(queue);
	pst_file_close(f);
	order_host_free(host, RIG_MIB(8));
	order_mem_free(&m);
}

/* Queue a read and, after it on the stream, a copy of its bytes to @out. */
static struct pst_done read_and_look(const struct pst_io *io, struct order_mem *m, uint8_t *out,
				     uint64_t len, cu_stream st)
{
	uint64_t from = t_now();

	start(io, st);
	HW_CU(cuMemcpyDtoHAsync_v2(out, m->ptr, len, st));
	if (hw_cu.cuMemsetD8Async)
		HW_CU(cuMemsetD8Async(m->ptr, 0, len, st));
	HW_CU(cuStreamSynchronize(st));
	if (us_since(from) > HOLD_MS * 1e3)
		T_FAIL("%s", HANGS);
	return finish(len);
}

/* The first request, larger than the pool's initial size: the library starts threads and
 * registers memory while the stream waits. */
static void from_nothing(void)
{
	struct order_mem m = order_mem_new(LARGE);
	uint8_t *out = order_host(LARGE);
	struct pst_file *f = rig_open(rig_path("large"), RIG_R);
	struct pst_io io = rig_io(PST_OP_READ, f, m.mem, 0, 0, LARGE);
	struct pst_done d;
	uint64_t from;

	queue = rig_queue(PST_BACKEND_AUTO, 0);
	from = t_now();
	d = read_and_look(&io, &m, out, LARGE, stream);
	printf("# the first request, 512 MiB, took %.1f ms with its start\n", us_since(from) / 1e3);
	rig_show(&d);
	T_EQ(t_differs(out, 7, 0, LARGE), LARGE);
	queue = pst_queue_free(queue);
	pst_file_close(f);
	order_host_free(out, LARGE);
	order_mem_free(&m);
}

/* Thousands of small pieces, scattered by the library's kernel. */
static void pieces(void)
{
	enum { NR = 4000, EACH = 4096 };
	static struct pst_seg segs[NR];
	struct order_mem m = order_mem_new(NR * EACH);
	uint8_t *out = order_host(NR * EACH);
	struct pst_file *f = rig_open(rig_path("large"), RIG_R);
	struct pst_io io = {
		.op = PST_OP_READ, .file = f, .mem = m.mem, .segs = segs, .nr_segs = NR
	};
	struct pst_done d;

	for (unsigned i = 0; i < NR; i++)
		segs[i] = (struct pst_seg){ .file_off = i * 2 * EACH,
					    .mem_off = (uint64_t)(NR - 1 - i) * EACH,
					    .len = EACH };
	queue = rig_queue(PST_BACKEND_AUTO, 0);
	order_ready(queue);
	for (unsigned turn = 0; turn < 10; turn++) {
		d = read_and_look(&io, &m, out, NR * EACH, stream);
		for (unsigned i = 0; i < NR; i++)
			T_EQ(t_differs(out + segs[i].mem_off, 7, segs[i].file_off, EACH), EACH);
	}
	rig_show(&d);
	queue = pst_queue_free(queue);
	pst_file_close(f);
	order_host_free(out, NR * EACH);
	order_mem_free(&m);
}

/* Reads from pinned pages of the page cache. */
static void stable_file(void)
{
	struct order_mem m = order_mem_new(RIG_MIB(128));
	uint8_t *out = order_host(RIG_MIB(128));
	struct pst_file *f = rig_open(rig_path("large"), RIG_R | PST_FILE_STABLE);
	struct pst_io io = rig_io(PST_OP_READ, f, m.mem, 0, 0, RIG_MIB(128));
	struct pst_done d = { 0 };

	queue = rig_queue(PST_BACKEND_AUTO, 0);
	(void)hw_pin(queue, f, m.mem, RIG_MIB(128), RIG_MIB(128));
	for (unsigned turn = 0; turn < 5; turn++) {
		memset(out, 0, RIG_MIB(128));
		d = read_and_look(&io, &m, out, RIG_MIB(128), stream);
		T_EQ(t_differs(out, 7, 0, RIG_MIB(128)), RIG_MIB(128));
	}
	rig_show(&d);
	queue = pst_queue_free(queue);
	pst_file_close(f);
	order_host_free(out, RIG_MIB(128));
	order_mem_free(&m);
}

/* Four streams wait for reads: each read must complete or give EBUSY, as two waiting streams
 * could block each other. */
static void crowd(void)
{
	enum { NR = 4 };
	const uint64_t each = RIG_MIB(64);
	struct order_mem m = order_mem_new(NR * each);
	struct pst_file *f = rig_open(rig_path("large"), RIG_R);
	unsigned busy = 0;
	cu_stream st[NR];

	queue = rig_queue(PST_BACKEND_AUTO, 0);
	order_ready(queue);
	for (unsigned i = 0; i < NR; i++) {
		struct pst_io io = rig_io(PST_OP_READ, f, m.mem, i * each, i * each, each);

		HW_CU(cuStreamCreate(&st[i], CU_NON_BLOCKING));
		start(&io, st[i]);
	}
	for (unsigned i = 0; i < NR; i++) {
		struct pst_done d = rig_reap1(queue);

		T_CHECK(d.res == (int64_t)each || d.res == -EBUSY);
		busy += d.res == -EBUSY;
	}
	T_CHECK(busy < NR);
	for (unsigned i = 0; i < NR; i++) {
		HW_CU(cuStreamSynchronize(st[i]));
		HW_CU(cuStreamDestroy_v2(st[i]));
	}
	queue = pst_queue_free(queue);
	pst_file_close(f);
	order_mem_free(&m);
}

/* Memory of the primary context with streams of another context.  Reads into the other context's
 * memory must be refused. */
static void another_context(void)
{
	struct order_mem m = order_mem_new(ORDER_PIECE), foreign;
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	struct pst_file *w = rig_open(rig_path("order-written"), RIG_NEW);
	struct pst_io io;
	cu_device dev;
	cu_stream st;
	cu_ctx ctx;

	queue = rig_queue(PST_BACKEND_AUTO, 0);
	order_ready(queue);
	HW_CU(cuDeviceGet(&dev, hw_ordinal(device)));
	HW_CU(cuCtxCreate_v2(&ctx, 0, dev));
	HW_CU(cuStreamCreate(&st, CU_NON_BLOCKING));
	order_by_foreign_stream(queue, &m, f, w, st);
	order_by_foreign_stream(queue, &m, f, w, (cu_stream)CU_LEGACY);
	foreign = order_mem_new(ORDER_PIECE);
	io = rig_io(PST_OP_READ, f, foreign.mem, 0, 0, ORDER_PIECE);
	order_name(&io, st);
	T_EQ(pst_queue_prep(queue, &io), -EOPNOTSUPP);
	order_mem_free(&foreign);
	HW_CU(cuStreamDestroy_v2(st));
	HW_CU(cuCtxDestroy_v2(ctx));
	pst_file_close(f);
	pst_file_close(w);
	order_mem_free(&m);
	queue = pst_queue_free(queue);
}

/* -------------------------------------------------------------------- ends */

/*
 * A deadline or cancel must end a request at once, although its stream is blocked, and must not
 * block the stream.
 */
static void early_ends(void)
{
	struct order_mem m = order_mem_new(65536);
	struct pst_file *f = rig_open(rig_path("large"), RIG_R);
	struct pst_io io = rig_io(PST_OP_READ, f, m.mem, 0, 0, 65536);
	struct pst_done d;

	queue = rig_queue(PST_BACKEND_AUTO, 0);
	order_ready(queue);
	rig_mem_fill(m.mem, 0, io.len, ORDER_OLD, 0);
	order_block(stream);
	order_name(&io, stream);
	io.deadline_ns = t_in_ms(100);
	T_OK(pst_queue_prep(queue, &io));
	io.deadline_ns = 0;
	io.user_data = 1;
	T_OK(pst_queue_prep(queue, &io));
	T_EQ(pst_queue_submit(queue), 2);
	T_EQ(pst_queue_cancel(queue, 1), 1);
	for (unsigned i = 0; i < 2; i++) {
		d = rig_reap1(queue);
		T_EQ(d.res, d.user_data ? -ECANCELED : -ETIMEDOUT);
		/* A copy that was queued on the device may still run. */
		if (d.flags & PST_DONE_BUSY)
			T_EQ(pst_mem_drain(m.mem, 0), -EBUSY);
	}
	order_unblock();
	HW_CU(cuStreamSynchronize(stream));
	T_OK(pst_mem_drain(m.mem, t_hang()));
	T_EQ(rig_mem_differs(m.mem, 0, io.len, ORDER_OLD, 0), io.len);
	queue = pst_queue_free(queue);
	pst_file_close(f);
	order_mem_free(&m);
}

/* A request on a capturing stream must be refused without spoiling the capture; requests on
 * other streams are served. */
static void captured(void)
{
	struct order_mem m = order_mem_new(65536);
	struct pst_file *f = rig_open(rig_path("large"), RIG_R);
	struct pst_io io = rig_io(PST_OP_READ, f, m.mem, 0, 0, 65536);
	void *graph = NULL, *exec = NULL;
	cu_stream st;

	if (!hw_cu.cuStreamBeginCapture_v2 || !hw_cu.cuMemsetD8Async ||
	    !hw_cu.cuGraphInstantiateWithFlags)
		T_SKIP("libcuda.so.1 cannot capture");
	queue = rig_queue(PST_BACKEND_AUTO, 0);
	order_ready(queue);
	HW_CU(cuStreamCreate(&st, 0));
	order_name(&io, st);
	HW_CU(cuStreamBeginCapture_v2(st, CU_CAPTURE_GLOBAL));
	T_EQ(pst_queue_prep(queue, &io), -EBUSY);
	order_name(&io, (void *)CU_LEGACY);
	T_EQ(pst_queue_prep(queue, &io), -EBUSY);
	start(&io, stream);
	finish(io.len);
	HW_CU(cuMemsetD8Async(m.ptr, 0x3d, io.len, st));
	HW_CU(cuStreamEndCapture(st, &graph));
	HW_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	T_EQ(rig_mem_differs(m.mem, 0, io.len, 7, 0), io.len);
	HW_CU(cuGraphLaunch(exec, st));
	start(&io, st);
	HW_CU(cuGraphLaunch(exec, st));
	HW_CU(cuStreamSynchronize(st));
	finish(io.len);
	T_EQ(rig_mem_differs(m.mem, 0, io.len, 7, 0), 0);
	HW_CU(cuGraphExecDestroy(exec));
	HW_CU(cuGraphDestroy(graph));
	HW_CU(cuStreamDestroy_v2(st));
	queue = pst_queue_free(queue);
	pst_file_close(f);
	order_mem_free(&m);
}

/* ------------------------------------------------------------------ queues */

enum probe { PROBE_TO, PROBE_FROM, PROBE_KERNEL, PROBES };

static const char *const probe_names[] = { "copies to the device", "copies from it", "kernels" };

static cu_result probe(enum probe what, cu_ptr dev, uint8_t *host, cu_stream st)
{
	switch (what) {
	case PROBE_TO:
		return hw_cu.cuMemcpyHtoDAsync_v2(dev, host, 4096, st);
	case PROBE_FROM:
		return hw_cu.cuMemcpyDtoHAsync_v2(host, dev, 4096, st);
	default:
		return hw_cu.cuMemsetD8Async(dev, 1, 4096, st);
	}
}

/* Queue one operation on each of nr streams.  Return how many do not complete in 200 ms. */
static unsigned stuck(enum probe what, cu_ptr dev, uint8_t *host, const cu_stream *st, unsigned nr)
{
	uint64_t end = t_in_ms(200);
	unsigned left = nr;

	for (unsigned i = 0; i < nr; i++)
		T_EQ(probe(what, dev, host, st[i]), CU_OK);
	while (left && t_now() < end) {
		left = 0;
		for (unsigned i = 0; i < nr; i++)
			left += hw_cu.cuStreamQuery(st[i]) == CU_NOT_READY;
		(void)usleep(1000);
	}
	return left;
}

/* Block one stream, with an operation queued after its wait; then count the stuck ones of the
 * other streams. */
static unsigned stuck_behind(enum probe behind, enum probe what, int priority, cu_ptr dev,
			     uint8_t *host)
{
	_Atomic uint32_t *word = (_Atomic uint32_t *)(void *)(host + 4096);
	cu_stream waits, st[QUEUES_NR];
	unsigned left;
	cu_ptr at;

	HW_CU(cuMemHostGetDevicePointer_v2(&at, host + 4096, 0));
	HW_CU(cuStreamCreate(&waits, CU_NON_BLOCKING));
	for (unsigned i = 0; i < QUEUES_NR; i++)
		HW_CU(cuStreamCreateWithPriority(&st[i], CU_NON_BLOCKING, priority));
	*word = 0;
	HW_CU(cuStreamWaitValue32_v2(waits, at, 1, CU_WAIT_GEQ));
	T_EQ(probe(behind, dev, host, waits), CU_OK);
	left = stuck(what, dev, host, st, QUEUES_NR);
	*word = 1;
	HW_CU(cuStreamSynchronize(waits));
	HW_CU(cuStreamDestroy_v2(waits));
	for (unsigned i = 0; i < QUEUES_NR; i++) {
		HW_CU(cuStreamSynchronize(st[i]));
		HW_CU(cuStreamDestroy_v2(st[i]));
	}
	return left;
}

/* Print facts about the driver; the library is not used. */
static void queues(void)
{
	int least = 0, greatest = 0;
	uint8_t *host;
	cu_ptr dev;

	if (!hw_cu.cuStreamWaitValue32_v2 || !hw_cu.cuStreamQuery || !hw_cu.cuMemsetD8Async ||
	    !hw_cu.cuStreamCreateWithPriority || !hw_cu.cuCtxGetStreamPriorityRange)
		T_SKIP("libcuda.so.1 lacks a call for it");
	host = order_host(8192);
	HW_CU(cuMemAlloc_v2(&dev, 4096));
	HW_CU(cuCtxGetStreamPriorityRange(&least, &greatest));
	printf("# CUDA_DEVICE_MAX_CONNECTIONS is %s, CUDA_DEVICE_MAX_COPY_CONNECTIONS %s\n"
	       "# one stream waits, %u others get one thing to do; how many do not get it done\n"
	       "# (first number: streams of priority %d, second: of %d)\n",
	       getenv("CUDA_DEVICE_MAX_CONNECTIONS") ?: "not set",
	       getenv("CUDA_DEVICE_MAX_COPY_CONNECTIONS") ?: "not set", QUEUES_NR, least, greatest);
	for (enum probe behind = 0; behind < PROBES; behind++) {
		unsigned n[PROBES][2];

		for (enum probe what = 0; what < PROBES; what++)
			for (unsigned high = 0; high < 2; high++)
				n[what][high] = stuck_behind(behind, what, high ? greatest : least,
							     dev, host);
		printf("# %s behind the wait: ", probe_names[behind]);
		for (enum probe what = 0; what < PROBES; what++)
			printf("%s %u %u%s", probe_names[what], n[what][0], n[what][1],
			       what + 1 < PROBES ? ", " : "\n");
	}
	HW_CU(cuMemFree_v2(dev));
	order_host_free(host, 8192);
}

/* -------------------------------------------------------------------- cost */

struct cost {
	double submit_us, done_us, stream_us;
};

/* Return the medians of 201 runs with one submit of @batch requests in flight, bytes in the page
 * cache: time per request until pst_queue_submit() returned, until the completions, and until
 * the stream was idle. */
static struct cost cost_of(struct pst_io *io, cu_stream st, unsigned batch)
{
	enum { NR = 201 };
	static double submit[NR], done[NR], through[NR];
	struct pst_done d[64];

	for (unsigned i = 0; i < NR; i++) {
		uint64_t from = t_now();

		io->stream = st;
		for (unsigned k = 0; k < batch; k++)
			T_OK(pst_queue_prep(queue, io));
		T_EQ(pst_queue_submit(queue), batch);
		submit[i] = us_since(from) / batch;
		T_EQ(pst_queue_reap(queue, d, batch, batch, t_in_ms(HOLD_MS)), batch);
		done[i] = us_since(from) / batch;
		for (unsigned k = 0; k < batch; k++)
			T_EQ(d[k].res, (int64_t)io->len);
		if (st)
			HW_CU(cuStreamSynchronize(st));
		/* Run again without a wait for completions before the stream's. */
		from = t_now();
		for (unsigned k = 0; k < batch; k++)
			T_OK(pst_queue_prep(queue, io));
		T_EQ(pst_queue_submit(queue), batch);
		if (st)
			HW_CU(cuStreamSynchronize(st));
		through[i] = us_since(from) / batch;
		T_EQ(pst_queue_reap(queue, d, batch, batch, t_in_ms(HOLD_MS)), batch);
	}
	return (struct cost){ median(submit, NR), median(done, NR), median(through, NR) };
}

static void cost(void)
{
	static const uint64_t sizes[] = { 4096, 65536, 1 << 20 };
	static const unsigned batches[] = { 1, 16 };
	struct order_mem m = order_mem_new(RIG_MIB(1));
	struct pst_file *f = rig_open(rig_path("set"), RIG_NEW);

	rig_make(rig_path("set"), 3, RIG_MIB(1));
	queue = rig_queue(PST_BACKEND_AUTO, 0);
	order_ready(queue);
	printf("# microseconds a request, medians of 201: without a stream -> with one\n");
	for (uint32_t op = PST_OP_READ; op <= PST_OP_WRITE; op++)
		for (unsigned s = 0; s < RIG_NR(sizes); s++)
			for (unsigned b = 0; b < RIG_NR(batches); b++) {
				struct pst_io io = rig_io(op, f, m.mem, 0, 0, sizes[s]);
				struct cost plain, with;

				if (op == PST_OP_WRITE && batches[b] > 1)
					continue; /* the writes would overlap */
				plain = cost_of(&io, NULL, batches[b]);
				with = cost_of(&io, stream, batches[b]);
				printf("# %s %7" PRIu64 " bytes, %2u in a submit: submit %.2f -> "
				       "%.2f (%+.2f), completion %.2f -> %.2f (%+.2f), stream "
				       "through %.2f\n",
				       op == PST_OP_READ ? "read " : "write", sizes[s], batches[b],
				       plain.submit_us, with.submit_us,
				       with.submit_us - plain.submit_us, plain.done_us,
				       with.done_us, with.done_us - plain.done_us, with.stream_us);
			}
	queue = pst_queue_free(queue);
	pst_file_close(f);
	order_mem_free(&m);
}

/* -------------------------------------------------------------------- main */

/* Run a case; afterwards free the queue and release the stream that a failed case left. */
static void run(const char *name, void (*fn)(void))
{
	t_run(name, fn);
	queue = pst_queue_free(queue);
	order_work.go = 1;
}

#define RUN(fn) run(#fn, fn)

int main(int argc, char **argv)
{
	int opt;

	while ((opt = getopt(argc, argv, "m:")) != -1) {
		if (opt != 'm')
			return 2;
		device = optarg;
	}
	if (optind < argc)
		(void)setenv("PST_TEST_DIR", argv[optind], 1);
	rig_init();
	rig_dev = device;
	why = hw_cuda(hw_ordinal(device));
	if (!why && !hw_cu.cuLaunchHostFunc)
		why = "libcuda.so.1 is too old";
	if (why) {
		T_RUN(no_driver);
		return hw_done();
	}
	if (setjmp(t_jump))
		HW_DIE("gpu-stream: %s", t_why);
	rig_make(rig_path("order"), ORDER_SEED, ORDER_BYTES);
	rig_make(rig_path("large"), 7, LARGE);
	HW_CU(cuStreamCreate(&stream, CU_NON_BLOCKING));

	RUN(queues);
	RUN(from_nothing);
	over_streams("reads", order_reads);
	over_streams("read_is_late", order_read_is_late);
	over_streams("writes", order_writes);
	over_streams("together", order_together);
	over_streams("frees", order_frees);
	over_streams("many", many_case);
	if (setjmp(t_jump))
		HW_DIE("gpu-stream: %s", t_why);
	HW_CU(cuStreamCreate(&stream, CU_NON_BLOCKING));
	RUN(kernels);
	RUN(pieces);
	RUN(stable_file);
	RUN(crowd);
	RUN(another_context);
	RUN(early_ends);
	RUN(captured);
	RUN(cost);
	return hw_done();
}
