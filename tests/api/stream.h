/* SPDX-License-Identifier: MIT */
/*
 * Shared by the tests of requests with streams: the CUDA stub of tests/stub/, a stream, and cases
 * over both back ends.
 */
#ifndef PST_TEST_STREAM_H
#define PST_TEST_STREAM_H

#include "hw/order.h"
#include "stub/cuda_stub.h"

#define LEN 65536u

static struct {
	void (*state)(struct stub_cuda_state *);
	bool (*fail)(const char *);
	void (*delay_us)(unsigned);
	void (*stall)(const char *);
	void (*poison)(int, cu_result);
} stub;

static const char *why; /* why there is no stream, or NULL */
static cu_stream made;  /* a non-blocking stream, like the library's own */

static inline void no_stub(void)
{
	T_SKIP("%s", why);
}

/* Return why there is no stream, for HW_CU().  To be called in a case or after setjmp(t_jump). */
static inline const char *stream_init(void)
{
	const char *name = getenv("PST_LIBCUDA");
	void *lib;

	rig_init();
	why = hw_cuda(0);
	if (why)
		return why;
	lib = dlopen(name && *name ? name : "libcuda.so.1", RTLD_NOW);
	symbol(lib, &stub.state, "stub_cuda_state");
	symbol(lib, &stub.fail, "stub_cuda_fail");
	symbol(lib, &stub.delay_us, "stub_cuda_delay_us");
	symbol(lib, &stub.stall, "stub_cuda_stall");
	symbol(lib, &stub.poison, "stub_cuda_poison");
	if (!stub.state)
		return why = "needs the library of tests/stub";
	rig_make(rig_path("order"), ORDER_SEED, ORDER_BYTES);
	HW_CU(cuStreamCreate(&made, CU_NON_BLOCKING));
	rig_tasks = rig_count_tasks();
	return NULL;
}

/* Wait until the stub stalls a call.  Return false if no call stalls until end. */
static inline bool stream_stalled(uint64_t end)
{
	struct stub_cuda_state now;

	do {
		(void)usleep(1000);
		stub.state(&now);
	} while (!now.stalled && t_now() < end);
	return now.stalled;
}

static inline void set(void *arg)
{
	*(_Atomic int *)arg = 1;
}

/* Check that the stream executes work queued now. */
static inline void is_free(cu_stream st)
{
	_Atomic int there = 0;
	uint64_t end = t_hang();

	HW_CU(cuLaunchHostFunc(st, set, &there));
	while (!there && t_now() < end)
		(void)usleep(200);
	T_CHECK(there);
}

static inline void over_streams(void (*fn)(struct pst_queue *q, cu_stream st))
{
	cu_stream blocking;

	HW_CU(cuStreamCreate(&blocking, 0));
	fn(rig_q, made);
	fn(rig_q, blocking);
	fn(rig_q, (cu_stream)CU_LEGACY);
	fn(rig_q, (cu_stream)CU_PER_THREAD);
	HW_CU(cuStreamDestroy_v2(blocking));
}

static inline struct pst_io io_for(struct order_mem *m, struct pst_file *f, uint32_t op,
				   cu_stream st)
{
	struct pst_io io = rig_io(op, f, m->mem, 0, 0, LEN);

	order_name(&io, st);
	return io;
}

static inline void run1(const char *name, void (*fn)(void), uint32_t backend)
{
	static const char *const backends[] = { "", "uring", "threads" };
	char full[100];

	rig_dev = "cuda:0";
	rig_backend = backend;
	rig_last = rig_q;
	rig_q = NULL;
	rig_fn = fn;
	(void)snprintf(full, sizeof(full), "%s %s", name, backends[backend]);
	t_run(full, rig_case);
}

static inline void run(const char *name, void (*fn)(void))
{
	run1(name, fn, PST_BACKEND_URING);
	run1(name, fn, PST_BACKEND_THREADS);
}

#define RUN(fn) run(#fn, fn)

#endif
