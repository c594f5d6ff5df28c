/* SPDX-License-Identifier: MIT */
/*
 * Round trips between the CPU and a kernel that runs on the GPU.
 *
 *	gpu-pingpong [-m DEVICE] [--backend NAME] [--trips N]
 *
 * The kernel polls a flag until it has the next number, then answers with that number:
 *
 *	window		the CPU stores the flag in device memory through a window; the
 *			answer arrives in host memory that is registered with the driver
 *	window data	like window, but a word of data is stored and fenced before the
 *			flag; the kernel sends the word back, to count stale ones
 *	window both	the answer is in device memory too; the CPU polls it by the window
 *	host		the flag is in registered host memory, polled over the bus
 *	memcpy		cuMemcpyHtoDAsync copies the flag to device memory
 *
 * Prints one JSON object.  The kernel ends after 20 s without progress.
 */
#include <getopt.h>

#include "hw.h"

#define TRIPS_MAX 1000000u
#define WARM_UP 100u
#define WAIT_NS UINT64_C(2000000000)
#define LEN 65536u
#define FLAG 0u /* offsets in both device and host memory, bytes */
#define ANSWER 4096u
#define FOUND (ANSWER + 64u)
#define DATA 8192u
#define THE_END UINT64_MAX
#define KERNEL "pst_pingpong"

/* sm_70 is the first with acquire loads and release stores.  A flag above the next number ends
 * the kernel. */
static const char ptx[] = ".version 6.0\n"
			  ".target sm_70\n"
			  ".address_size 64\n"
			  "\n"
			  ".visible .entry " KERNEL "(.param .u64 p_flag, .param .u64 p_answer,\n"
			  "	.param .u64 p_data, .param .u64 p_nr)\n"
			  "{\n"
			  "	.reg .pred %p, %has;\n"
			  "	.reg .b32 %spin, %low;\n"
			  "	.reg .b64 %flag, %answer, %data, %nr, %i, %v, %now, %stop;\n"
			  "\n"
			  "	ld.param.u64 %flag, [p_flag];\n"
			  "	ld.param.u64 %answer, [p_answer];\n"
			  "	ld.param.u64 %data, [p_data];\n"
			  "	ld.param.u64 %nr, [p_nr];\n"
			  "	setp.ne.u64 %has, %data, 0;\n"
			  "	cvta.to.global.u64 %flag, %flag;\n"
			  "	cvta.to.global.u64 %answer, %answer;\n"
			  "	cvta.to.global.u64 %data, %data;\n"
			  "	mov.u64 %i, 1;\n"
			  "	mov.u32 %spin, 0;\n"
			  "	mov.u64 %stop, %globaltimer;\n"
			  "	add.u64 %stop, %stop, 20000000000;\n"
			  "$poll:\n"
			  "	ld.acquire.sys.global.u64 %v, [%flag];\n"
			  "	setp.eq.u64 %p, %v, %i;\n"
			  "	@%p bra $seen;\n"
			  "	setp.gt.u64 %p, %v, %i;\n"
			  "	@%p bra $end;\n"
			  "	add.u32 %spin, %spin, 1;\n"
			  "	and.b32 %low, %spin, 1023;\n"
			  "	setp.ne.u32 %p, %low, 0;\n"
			  "	@%p bra $poll;\n"
			  "	mov.u64 %now, %globaltimer;\n"
			  "	setp.lt.u64 %p, %now, %stop;\n"
			  "	@%p bra $poll;\n"
			  "	bra $end;\n"
			  "$seen:\n"
			  "	@!%has bra $answer;\n"
			  "	ld.relaxed.sys.global.u64 %v, [%data];\n"
			  "	st.relaxed.sys.global.u64 [%answer+64], %v;\n"
			  "$answer:\n"
			  "	st.release.sys.global.u64 [%answer], %i;\n"
			  "	add.u64 %i, %i, 1;\n"
			  "	setp.le.u64 %p, %i, %nr;\n"
			  "	@%p bra $poll;\n"
			  "$end:\n"
			  "	ret;\n"
			  "}\n";

static const char *device = "cuda:0", *backend;
static uint64_t trips = 10000;

static struct pst_window *w;
static cu_ptr gpu, host_at; /* host_at: the device's address of the host memory */
static char *host, *map;
static cu_func fn;
static cu_stream run_on, copy_on;

static volatile uint64_t *word(char *base, unsigned off)
{
	return (volatile uint64_t *)(void *)(base + off);
}

struct way {
	const char *name;
	bool host_flag, by_copy, window_answer, data;
};

static const struct way ways[] = {
	{ "window", false, false, false, false },     { "window data", false, false, false, true },
	{ "window both", false, false, true, false }, { "host", true, false, false, false },
	{ "memcpy", false, true, false, false },
};

/* ------------------------------------------------------------------- trips */

static void put_flag(const struct way *how, uint64_t v)
{
	static uint64_t slot;
	uint64_t *from;

	if (how->by_copy || v == THE_END) {
		/* Use a new slot each time, because the previous copy may still read its slot. */
		from = (uint64_t *)(void *)(host + LEN / 2) + slot++ % 1024;
		*from = v;
		HW_CU(cuMemcpyHtoDAsync_v2(gpu + FLAG, from, sizeof(v), copy_on));
	} else if (!how->host_flag) {
		*word(map, FLAG) = v;
		pst_window_fence();
	}
	if (how->host_flag)
		__atomic_store_n((uint64_t *)(void *)(host + FLAG), v, __ATOMIC_RELEASE);
}

/* Make one round trip and return its ns.  End the kernel before a failure. */
static uint64_t trip(const struct way *how, uint64_t i, volatile uint64_t *answer)
{
	uint64_t begun = t_now(), ns, v;

	if (how->data) {
		*word(map, DATA) = ~i;
		pst_window_fence();
	}
	put_flag(how, i);
	do {
		v = *answer;
		ns = t_now() - begun;
	} while (v != i && ns < WAIT_NS);
	if (v == i)
		return ns;
	put_flag(how, THE_END);
	T_FAIL("%s: no answer to number %" PRIu64 " in %" PRIu64 " ms, only %" PRIu64, how->name, i,
	       WAIT_NS / 1000000, v);
}

static void launch(const struct way *how)
{
	cu_ptr flag = how->host_flag ? host_at + FLAG : gpu + FLAG;
	cu_ptr answer = how->window_answer ? gpu + ANSWER : host_at + ANSWER;
	cu_ptr data = how->data ? gpu + DATA : 0;
	uint64_t nr = trips + WARM_UP;
	void *params[] = { &flag, &answer, &data, &nr };

	memset(host, 0, LEN);
	HW_CU(cuMemcpyHtoDAsync_v2(gpu, host, LEN, copy_on));
	HW_CU(cuStreamSynchronize(copy_on));
	HW_CU(cuLaunchKernel(fn, 1, 1, 1, 1, 1, 1, 0, run_on, params, NULL));
}

static int by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void one_way(const struct way *how, const char *sep)
{
	volatile uint64_t *answer = word(how->window_answer ? map : host, ANSWER);
	uint64_t *ns = calloc(trips, sizeof(*ns)), old = 0;

	T_CHECK(ns);
	launch(how);
	for (uint64_t i = 1; i <= WARM_UP; i++)
		(void)trip(how, i, answer);
	for (uint64_t i = 0; i < trips; i++) {
		ns[i] = trip(how, WARM_UP + 1 + i, answer);
		if (how->data)
			old += *word(host, FOUND) != ~(WARM_UP + 1 + i);
	}
	HW_CU(cuStreamSynchronize(run_on));
	qsort(ns, trips, sizeof(*ns), by_value);
	printf("%s{\"way\": \"%s\", \"trips\": %" PRIu64 ", \"median_us\": %.3f, \"min_us\": %.3f, "
	       "\"p99_us\": %.3f",
	       sep, how->name, trips, (double)ns[trips / 2] / 1e3, (double)ns[0] / 1e3,
	       (double)ns[(trips * 99 + 99) / 100 - 1] / 1e3);
	if (how->data)
		printf(", \"old_data\": %" PRIu64, old);
	printf("}");
	free(ns);
}

/* ------------------------------------------------------------------ set-up */

static void load_kernel(cu_module *ret)
{
	cu_result e = hw_cu.cuModuleLoadDataEx(ret, ptx, 0, NULL, NULL);

	if (e == CU_INVALID_PTX || e == CU_JIT_COMPILER_NOT_FOUND)
		T_FAIL("the driver does not compile the kernel: %u", e);
	T_EQ(e, CU_OK);
	HW_CU(cuModuleGetFunction(&fn, *ret, KERNEL));
	HW_CU(cuStreamCreate(&run_on, CU_NON_BLOCKING));
	HW_CU(cuStreamCreate(&copy_on, CU_NON_BLOCKING));
}

static void run(void)
{
	struct pst_window_opts o = { .sz = sizeof(o), .backend = backend };
	struct pst_window_info info = { .sz = sizeof(info) };
	const char *why = hw_cuda(hw_ordinal(device));
	cu_module module;
	struct pst_mem *m;

	if (why)
		T_FAIL("%s", why);
	load_kernel(&module);
	HW_CU(cuMemAlloc_v2(&gpu, LEN));
	host = aligned_alloc(LEN, LEN);
	T_CHECK(host);
	HW_CU(cuMemHostRegister_v2(host, LEN, CU_REGISTER_PORTABLE | CU_REGISTER_DEVICEMAP));
	HW_CU(cuMemHostGetDevicePointer_v2(&host_at, host, 0));
	m = hw_wrap(gpu, LEN);
	T_OK(pst_window_open(m, 0, LEN, &o, &w));
	T_OK(pst_window_info(w, &info));
	map = pst_window_ptr(w);

	printf("{\"tool\": \"gpu-pingpong\", \"device\": \"%s\", \"backend\": \"%s\", \"ways\": [",
	       device, info.backend);
	for (unsigned i = 0; i < RIG_NR(ways); i++)
		one_way(&ways[i], i ? ", " : "");
	printf("]}\n");

	pst_window_close(w);
	pst_mem_free(m);
	HW_CU(cuStreamDestroy_v2(run_on));
	HW_CU(cuStreamDestroy_v2(copy_on));
	HW_CU(cuModuleUnload(module));
	HW_CU(cuMemHostUnregister(host));
	HW_CU(cuMemFree_v2(gpu));
	free(host);
}

int main(int argc, char **argv)
{
	static const struct option longs[] = { { "backend", required_argument, NULL, 'b' },
					       { "trips", required_argument, NULL, 't' },
					       { 0 } };
	int opt;

	while ((opt = getopt_long(argc, argv, "m:", longs, NULL)) != -1) {
		if (opt == 'm')
			device = optarg;
		else if (opt == 'b')
			backend = optarg;
		else if (opt == 't')
			trips = strtoull(optarg, NULL, 10);
		else
			return 2;
	}
	if (optind != argc || trips < 100 || trips > TRIPS_MAX)
		HW_DIE("usage: gpu-pingpong [-m DEVICE] [--backend NAME] [--trips 100..1000000]");
	if (setjmp(t_jump))
		HW_DIE("gpu-pingpong: %s", t_why);
	run();
	return 0;
}
