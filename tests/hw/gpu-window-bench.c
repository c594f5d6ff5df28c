/* SPDX-License-Identifier: MIT */
/*
 * Latency and bandwidth of windows on GPU memory, compared with the driver's copies.
 *
 *	gpu-window-bench [-m DEVICE] [--backend NAME] [--seconds S]
 *
 * Latency: stores and loads of 4 bytes to 64 KiB, in buckets of up to 100 copies, alternating
 * with buckets of cuMemcpyHtoD or cuMemcpyDtoH of the same size on registered host memory.
 * Bandwidth: 1, 2, 4 and 8 threads, each with its own slice; cuMemcpy with one thread.  Then
 * each copy kernel that this CPU supports, with one thread.  Each measurement is followed by a
 * comparison of the bytes by cuMemcpy.  Prints one JSON object.
 */
#include <getopt.h>
#include <pthread.h>

#include "hw.h"

#define LEN RIG_MIB(8)
#define BUCKETS 100u
#define BUCKET_OPS 100u
#define BUCKET_NS UINT64_C(2000000) /* ns; bounds the copies of a bucket */
#define THREADS_MAX 8u
#define KERNELS_MAX 16u
#define BATCH 16u /* copies between reads of the clock */

static const char *device = "cuda:0", *backend;
static double seconds = 0.3;

static struct pst_window *w, *unfenced;
static cu_ptr gpu;
static char *host, *seen; /* LEN bytes each, registered with the driver */
static cu_result (*memcpy_htod)(cu_ptr dst, const void *src, size_t len);
static cu_result (*memcpy_dtoh)(void *dst, cu_ptr src, size_t len);

/* Ways to copy. */
enum way { STORE, LOAD, HTOD, DTOH, UNFENCED };

static void copy(enum way how, uint64_t off, uint64_t len)
{
	switch (how) {
	case STORE:
		T_OK(pst_window_store(w, off, host + off, len));
		break;
	case UNFENCED:
		T_OK(pst_window_store(unfenced, off, host + off, len));
		break;
	case LOAD:
		T_OK(pst_window_load(w, off, seen + off, len));
		break;
	case HTOD:
		T_EQ(memcpy_htod(gpu + off, host + off, len), CU_OK);
		break;
	default:
		T_EQ(memcpy_dtoh(seen + off, gpu + off, len), CU_OK);
	}
}

static bool to_device(enum way how)
{
	return how == STORE || how == UNFENCED || how == HTOD;
}

/* Fill the source with the pattern and the target with other bytes. */
static void prepare(enum way how, uint64_t off, uint64_t len, uint64_t seed)
{
	t_fill(seen + off, ~seed, 0, len);
	t_fill(host + off, seed, 0, len);
	T_EQ(memcpy_htod(gpu + off, to_device(how) ? seen + off : host + off, len), CU_OK);
}

static void compare(enum way how, uint64_t off, uint64_t len, uint64_t seed)
{
	if (to_device(how))
		T_EQ(memcpy_dtoh(seen + off, gpu + off, len), CU_OK);
	if (t_differs(seen + off, seed, 0, len) != len)
		T_FAIL("a copy of %" PRIu64 " bytes gave wrong data", len);
}

/* ----------------------------------------------------------------- latency */

struct latency {
	uint32_t ops;
	double ns[BUCKETS];
};

static double bucket(enum way how, uint64_t len, uint32_t ops)
{
	uint64_t begun = t_now();

	/*
	 * Unfenced stores go to separate lines: a second store to a line would wait for the
	 * first.
	 */
	for (uint32_t i = 0; i < ops; i++)
		copy(how, how == UNFENCED ? i * (len + 63) / 64 * 64 % (LEN - len) / 64 * 64 : 0,
		     len);
	if (how == UNFENCED)
		pst_window_fence(); /* one fence for all stores */
	return (double)(t_now() - begun) / ops;
}

static uint32_t choose_ops(enum way how, uint64_t len)
{
	double ns = bucket(how, len, 10);

	return ns * BUCKET_OPS < (double)BUCKET_NS ? BUCKET_OPS
						   : (uint32_t)((double)BUCKET_NS / ns) + 1;
}

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void print_latency(const char *name, struct latency *l)
{
	qsort(l->ns, BUCKETS, sizeof(l->ns[0]), by_value);
	printf("\"%s\": {\"median_us\": %.4f, \"min_us\": %.4f, \"p99_us\": %.4f, "
	       "\"ops_in_bucket\": %u}",
	       name, (l->ns[BUCKETS / 2 - 1] + l->ns[BUCKETS / 2]) / 2e3, l->ns[0] / 1e3,
	       l->ns[BUCKETS * 99 / 100 - 1] / 1e3, l->ops);
}

static void latency(enum way how, enum way plain, uint64_t len, bool last)
{
	static const char *const names[] = {
		[STORE] = "store",
		[UNFENCED] = "stores side by side, one fence",
		[LOAD] = "load",
	};
	struct latency ours = { 0 }, drivers = { 0 };

	prepare(how, 0, len, len);
	ours.ops = choose_ops(how, len);
	drivers.ops = choose_ops(plain, len);
	for (unsigned i = 0; i < BUCKETS; i++) {
		ours.ns[i] = bucket(how, len, ours.ops);
		drivers.ns[i] = bucket(plain, len, drivers.ops);
	}
	/* Compare bytes that only the window has copied: above, the driver moved the same bytes. */
	prepare(how, 0, len, len + 1);
	copy(how, 0, len);
	pst_window_fence();
	compare(how, 0, len, len + 1);
	printf("{\"copy\": \"%s\", \"size\": %" PRIu64 ", ", names[how], len);
	print_latency("window", &ours);
	printf(", ");
	print_latency("memcpy", &drivers);
	printf("}%s", last ? "" : ", ");
}

static void latencies(void)
{
	static const uint64_t sizes[] = { 4,    8,    16,   32,   64,    128,   256,  512,
					  1024, 2048, 4096, 8192, 16384, 32768, 65536 };

	static const enum way ways[] = { STORE, UNFENCED, LOAD };

	printf("\"latency\": [");
	for (unsigned k = 0; k < RIG_NR(ways); k++)
		for (unsigned i = 0; i < RIG_NR(sizes); i++)
			latency(ways[k], ways[k] == LOAD ? DTOH : HTOD, sizes[i],
				ways[k] == LOAD && i + 1 == RIG_NR(sizes));
	printf("]");
}

/* --------------------------------------------------------------- bandwidth */

struct worker {
	pthread_t thread;
	pthread_barrier_t *gate;
	enum way how;
	uint64_t off, len, begun, ended, bytes;
	char why[200];
};

/* Return the error: a failed check jumps by longjmp() to the first thread's stack. */
static int copy_in_thread(const struct worker *t)
{
	switch (t->how) {
	case STORE:
		return pst_window_store(w, t->off, host + t->off, t->len);
	case LOAD:
		return pst_window_load(w, t->off, seen + t->off, t->len);
	case HTOD:
		return (int)memcpy_htod(gpu + t->off, host + t->off, t->len);
	default:
		return (int)memcpy_dtoh(seen + t->off, gpu + t->off, t->len);
	}
}

static void *work(void *arg)
{
	struct worker *t = arg;
	int r = t->how > LOAD ? (int)hw_cu.cuCtxPushCurrent_v2(hw_ctx) : 0;

	(void)pthread_barrier_wait(t->gate);
	t->begun = t->ended = t_now();
	while (r == 0 && t->ended - t->begun < (uint64_t)(seconds * 1e9)) {
		for (unsigned i = 0; i < BATCH && r == 0; i++)
			r = copy_in_thread(t);
		t->ended = t_now();
		t->bytes += BATCH * t->len;
	}
	if (r != 0)
		(void)snprintf(t->why, sizeof(t->why), "a copy gave %d: %.150s", r,
			       pst_error_text());
	return NULL;
}

/* Return GB/s of all threads together. */
static double bandwidth(enum way how, uint64_t len, unsigned threads)
{
	uint64_t first = UINT64_MAX, last = 0, bytes = 0;
	struct worker t[THREADS_MAX];
	pthread_barrier_t gate;

	T_EQ(pthread_barrier_init(&gate, NULL, threads), 0);
	for (unsigned i = 0; i < threads; i++) {
		t[i] = (struct worker){ .gate = &gate, .how = how, .off = i * len, .len = len };
		prepare(how, i * len, len, i + len);
	}
	for (unsigned i = 0; i < threads; i++)
		if (pthread_create(&t[i].thread, NULL, work, &t[i]) != 0)
			HW_DIE("gpu-window-bench: no thread");
	for (unsigned i = 0; i < threads; i++)
		(void)pthread_join(t[i].thread, NULL);
	(void)pthread_barrier_destroy(&gate);
	for (unsigned i = 0; i < threads; i++) {
		if (t[i].why[0])
			T_FAIL("%s", t[i].why);
		compare(how, i * len, len, i + len);
		first = t[i].begun < first ? t[i].begun : first;
		last = t[i].ended > last ? t[i].ended : last;
		bytes += t[i].bytes;
	}
	return (double)bytes / (double)(last - first);
}

static void bandwidths(void)
{
	static const uint64_t sizes[] = { 4096, 65536, 1048576 };
	static const unsigned threads[] = { 1, 2, 4, 8 };
	const char *sep = "";

	printf("\"bandwidth\": [");
	for (unsigned load = 0; load < 2; load++)
		for (unsigned s = 0; s < RIG_NR(sizes); s++) {
			double plain = bandwidth(load ? DTOH : HTOD, sizes[s], 1);

			for (unsigned i = 0; i < RIG_NR(threads); i++) {
				printf("%s{\"copy\": \"%s\", \"size\": %" PRIu64
				       ", \"threads\": %u, \"gb_per_s\": %.3f, "
				       "\"memcpy_gb_per_s\": %.3f}",
				       sep, load ? "load" : "store", sizes[s], threads[i],
				       bandwidth(load ? LOAD : STORE, sizes[s], threads[i]), plain);
				sep = ", ";
			}
		}
	printf("]");
}

/* ----------------------------------------------------------------- kernels */

static double median(enum way how, uint64_t len)
{
	struct latency l = { 0 };

	prepare(how, 0, len, len);
	l.ops = choose_ops(how, len);
	for (unsigned i = 0; i < BUCKETS; i++)
		l.ns[i] = bucket(how, len, l.ops);
	compare(how, 0, len, len);
	qsort(l.ns, BUCKETS, sizeof(l.ns[0]), by_value);
	return (l.ns[BUCKETS / 2 - 1] + l.ns[BUCKETS / 2]) / 2e3;
}

static void one_kernel(const char *kernel, enum way how, const char **sep)
{
	printf("%s{\"copy\": \"%s\", \"kernel\": \"%s\"", *sep, how == STORE ? "store" : "load",
	       kernel);
	printf(", \"us_64\": %.4f", median(how, 64));
	printf(", \"us_4096\": %.4f", median(how, 4096));
	printf(", \"us_65536\": %.4f", median(how, 65536));
	printf(", \"gb_per_s\": %.3f}", bandwidth(how, RIG_MIB(1), 1));
	*sep = ", ";
}

/*
 * Measure each copy kernel for stores and for loads, but only in a direction for which the window
 * really uses this kernel.  Skip kernels that the mapping does not support.
 */
static void kernels(struct pst_mem *m)
{
	struct pst_window_opts o = { .sz = sizeof(o), .backend = backend };
	struct pst_window_info info = { .sz = sizeof(info) };
	const char *names[KERNELS_MAX], *sep = "";
	int n = pst_window_kernels(names, KERNELS_MAX);
	int r;

	T_CHECK(n > 0 && n <= (int)KERNELS_MAX);
	printf("\"kernels\": [");
	for (int i = 0; i < n; i++) {
		o.kernel = names[i];
		w = pst_window_close(w);
		r = pst_window_open(m, 0, LEN, &o, &w);
		if (r == -EOPNOTSUPP)
			continue;
		T_EQ(r, 0);
		T_OK(pst_window_info(w, &info));
		if (strcmp(info.store, names[i]) == 0)
			one_kernel(names[i], STORE, &sep);
		if (strcmp(info.load, names[i]) == 0)
			one_kernel(names[i], LOAD, &sep);
	}
	printf("]");
}

/* ------------------------------------------------------------------ set-up */

static void find_copies(void)
{
	const char *name = getenv("PST_LIBCUDA");
	void *lib = dlopen(name && *name ? name : "libcuda.so.1", RTLD_NOW);

	T_CHECK(lib);
	symbol(lib, &memcpy_htod, "cuMemcpyHtoD_v2");
	symbol(lib, &memcpy_dtoh, "cuMemcpyDtoH_v2");
	T_CHECK(memcpy_htod && memcpy_dtoh);
}

static char *host_memory(void)
{
	char *p = aligned_alloc(RIG_MIB(2), LEN);

	T_CHECK(p);
	memset(p, 0, LEN);
	HW_CU(cuMemHostRegister_v2(p, LEN, CU_REGISTER_PORTABLE));
	return p;
}

static void run(void)
{
	static const char *const caching[] = { "unknown", "wc", "cached", "device" };
	struct pst_window_opts o = { .sz = sizeof(o), .backend = backend };
	struct pst_window_info info = { .sz = sizeof(info) };
	struct pst_device dev = { .sz = sizeof(dev) };
	const char *why = hw_cuda(hw_ordinal(device));
	struct pst_mem *m;

	if (why)
		T_FAIL("%s", why);
	find_copies();
	T_OK(pst_device_find(device, &dev));
	HW_CU(cuMemAlloc_v2(&gpu, LEN));
	host = host_memory();
	seen = host_memory();
	m = hw_wrap(gpu, LEN);
	T_OK(pst_window_open(m, 0, LEN, &o, &w));
	T_OK(pst_window_info(w, &info));
	o.flags = PST_WINDOW_UNFENCED;
	T_OK(pst_window_open(m, 0, LEN, &o, &unfenced));

	printf("{\"tool\": \"gpu-window-bench\", \"device\": \"%s\", \"model\": \"%s\", "
	       "\"backend\": \"%s\", \"caching\": \"%s\", \"store_kernel\": \"%s\", "
	       "\"load_kernel\": \"%s\", ",
	       dev.name, dev.model, info.backend, caching[info.caching & 3], info.store, info.load);
	latencies();
	printf(", ");
	bandwidths();
	printf(", ");
	kernels(m);
	printf("}\n");

	pst_window_close(unfenced);
	pst_window_close(w);
	pst_mem_free(m);
	HW_CU(cuMemHostUnregister(host));
	HW_CU(cuMemHostUnregister(seen));
	HW_CU(cuMemFree_v2(gpu));
	free(host);
	free(seen);
}

int main(int argc, char **argv)
{
	static const struct option longs[] = { { "backend", required_argument, NULL, 'b' },
					       { "seconds", required_argument, NULL, 's' },
					       { 0 } };
	int opt;

	while ((opt = getopt_long(argc, argv, "m:", longs, NULL)) != -1) {
		if (opt == 'm')
			device = optarg;
		else if (opt == 'b')
			backend = optarg;
		else if (opt == 's')
			seconds = strtod(optarg, NULL);
		else
			return 2;
	}
	if (optind != argc || !(seconds > 0))
		HW_DIE("usage: gpu-window-bench [-m DEVICE] [--backend NAME] [--seconds S]");
	if (setjmp(t_jump))
		HW_DIE("gpu-window-bench: %s", t_why);
	run();
	return 0;
}
