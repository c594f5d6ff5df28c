/* SPDX-License-Identifier: MIT */
/*
 * Shared by tests of the CUDA provider.  They run on the stub of tests/stub/ that PST_LIBCUDA
 * names.  Without that variable they run on the machine's driver, and skip cases that need the
 * stub.
 */
#ifndef PST_CUDA_RIG_H
#define PST_CUDA_RIG_H

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include "symbol.h"
#include "base/err.h"
#include "mem/cuda/cuda.h"
#include "stub/cuda_stub.h"

#define T_ERROR_TEXT() err_text()
#include "t.h"

#define CHUNK STUB_CHUNK

/* Driver functions that the provider does not call; NULL if the library lacks one. */
static struct {
	cu_result (*ctx_create)(cu_ctx *, unsigned, cu_device);
	cu_result (*ctx_destroy)(cu_ctx);
	cu_result (*ctx_current)(cu_ctx *);
	cu_result (*ctx_reset)(cu_device);
	cu_result (*create)(cu_handle *, size_t, const struct cu_prop *, unsigned long long);
	cu_result (*alloc_managed)(cu_ptr *, size_t, unsigned);
	cu_result (*alloc_async)(cu_ptr *, size_t, cu_stream);
	cu_result (*begin_capture)(cu_stream, uint32_t);
	cu_result (*end_capture)(cu_stream, void **);

	void (*state)(struct stub_cuda_state *);
	bool (*fail)(const char *);
	void (*delay_us)(unsigned);
	void (*stall)(const char *);
	void (*poison)(int, cu_result);
	bool (*peek)(cu_ptr, void *, size_t);
} x;

static inline bool find_all(void)
{
	const char *file = getenv("PST_LIBCUDA");
	void *lib = dlopen(file && *file ? file : "libcuda.so.1", RTLD_NOW);

	if (!lib)
		return false;
	symbol(lib, &x.ctx_create, "cuCtxCreate_v2");
	symbol(lib, &x.ctx_destroy, "cuCtxDestroy_v2");
	symbol(lib, &x.ctx_current, "cuCtxGetCurrent");
	symbol(lib, &x.ctx_reset, "cuDevicePrimaryCtxReset_v2");
	symbol(lib, &x.create, "cuMemCreate");
	symbol(lib, &x.alloc_managed, "cuMemAllocManaged");
	symbol(lib, &x.alloc_async, "cuMemAllocAsync");
	symbol(lib, &x.begin_capture, "cuStreamBeginCapture_v2");
	symbol(lib, &x.end_capture, "cuStreamEndCapture");
	symbol(lib, &x.state, "stub_cuda_state");
	symbol(lib, &x.fail, "stub_cuda_fail");
	symbol(lib, &x.delay_us, "stub_cuda_delay_us");
	symbol(lib, &x.stall, "stub_cuda_stall");
	symbol(lib, &x.poison, "stub_cuda_poison");
	symbol(lib, &x.peek, "stub_cuda_peek");
	return true;
}

#define NEED_STUB()                                                \
	do {                                                       \
		if (!x.state)                                      \
			T_SKIP("needs the library of tests/stub"); \
	} while (0)
#define NEED_DEVICES(n)                                     \
	do {                                                \
		if (cuda_nr_devices() < (n))                \
			T_SKIP("needs %d CUDA devices", n); \
	} while (0)
#define CU(call)                                                        \
	do {                                                            \
		cu_result _e = (call);                                  \
		if (_e)                                                 \
			T_FAIL("%s gave %s", #call, cuda_err_name(_e)); \
	} while (0)

static inline struct stub_cuda_state state(void)
{
	struct stub_cuda_state s = { 0 };

	if (x.state) {
		x.state(&s);
	} else {
		uint32_t mode = CU_CAPTURE_GLOBAL;

		(void)x.ctx_current(&s.current);
		(void)cu.cuThreadExchangeStreamCaptureMode(&mode);
		s.mode = mode;
		(void)cu.cuThreadExchangeStreamCaptureMode(&mode);
	}
	return s;
}

/* Check that the calling thread's context, stack depth and capture mode are unchanged. */
#define SAME_THREAD(before)                                \
	do {                                               \
		struct stub_cuda_state _now = state();     \
		T_CHECK(_now.current == (before).current); \
		T_EQ(_now.depth, (before).depth);          \
		T_EQ(_now.mode, (before).mode);            \
	} while (0)
/* Check that no object was left in the driver. */
#define SAME_OBJECTS(before)                                            \
	do {                                                            \
		struct stub_cuda_state _now = state();                  \
		for (int _i = 0; _i < STUB_DEVICES_MAX; _i++)           \
			T_EQ(_now.ctx_refs[_i], (before).ctx_refs[_i]); \
		T_EQ(_now.contexts, (before).contexts);                 \
		T_EQ(_now.streams, (before).streams);                   \
		T_EQ(_now.events, (before).events);                     \
		T_EQ(_now.ranges, (before).ranges);                     \
		T_EQ(_now.handles, (before).handles);                   \
		T_EQ(_now.reservations, (before).reservations);         \
		T_EQ(_now.registrations, (before).registrations);       \
	} while (0)

/* ----------------------------------------------------------------- helpers */

static inline const struct mem_ops *ops(void)
{
	return mem_provider(PST_KIND_CUDA);
}

/* Pin all of the memory or nothing. */
static inline int pin_host(unsigned device, void *host, uint64_t len)
{
	uint64_t pinned;
	int r = ops()->pin(device, ops()->life(device), host, len, &pinned);

	if (r < 0)
		ops()->unpin(device, host, pinned);
	return r == 0 && pinned != len ? -ERANGE : r;
}

static inline struct mem_alloc *alloc(uint64_t len)
{
	struct mem_alloc *a = NULL;

	T_OK(mem_alloc(ops(), 0, len, 0, &a));
	return a;
}

static inline struct mem_stream *stream(unsigned device)
{
	struct mem_stream *st = NULL;

	T_OK(mem_stream_new(ops(), device, &st));
	return st;
}

static inline int wait_done(struct mem_stream *st, uint64_t ticket)
{
	uint64_t until = t_hang();
	int r;

	while (!(r = mem_poll(st, ticket)))
		T_CHECK(t_now() < until);
	return r;
}

/* Make the device's primary context current, as the runtime API does in a program. */
static inline cu_ctx app_enter(unsigned device)
{
	cu_ctx ctx;

	CU(cu.cuDevicePrimaryCtxRetain(&ctx, cuda_device(device)->dev));
	CU(cu.cuCtxPushCurrent_v2(ctx));
	return ctx;
}

static inline void app_leave(unsigned device)
{
	cu_ctx ctx;

	CU(cu.cuCtxPopCurrent_v2(&ctx));
	CU(cu.cuDevicePrimaryCtxRelease_v2(cuda_device(device)->dev));
}

static inline void *map(uint64_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	T_CHECK(p != MAP_FAILED);
	return p;
}

/* Memory mapped as a growing allocator does: nr adjacent chunks, with room for more. */
struct mapped {
	cu_ptr va;
	unsigned nr, room;
};

static inline void mapped_chunk(struct mapped *m, unsigned i, uint32_t types, uint32_t prot)
{
	struct cu_prop prop = { .type = CU_ALLOC_PINNED,
				.handle_types = types,
				.location = { .type = CU_LOC_DEVICE, .id = 0 } };
	struct cu_access access = { .location = prop.location, .flags = prot };
	cu_handle h;

	CU(x.create(&h, CHUNK, &prop, 0));
	CU(cu.cuMemMap(m->va + i * CHUNK, CHUNK, 0, h, 0));
	CU(cu.cuMemRelease(h));
	if (prot)
		CU(cu.cuMemSetAccess(m->va + i * CHUNK, CHUNK, &access, 1));
}

static inline struct mapped mapped_new(unsigned room, unsigned nr, uint32_t types, uint32_t prot)
{
	struct mapped m = { .nr = nr, .room = room };

	CU(cu.cuMemAddressReserve(&m.va, room * CHUNK, 0, 0, 0));
	for (unsigned i = 0; i < nr; i++)
		mapped_chunk(&m, i, types, prot);
	return m;
}

static inline void mapped_free(struct mapped *m)
{
	for (unsigned i = 0; i < m->nr; i++)
		CU(cu.cuMemUnmap(m->va + i * CHUNK, CHUNK));
	CU(cu.cuMemAddressFree(m->va, m->room * CHUNK));
}

/* ------------------------------------------------------------ first and last */

static inline void no_cuda(void)
{
	T_SKIP("%s", err_text());
}

/* Return true if there is a driver to test with; else run a case that skips. */
static inline bool cuda_begin(void)
{
	(void)setenv("STUB_CUDA_DEVICES", "2", 0);
	if (mem_provider(PST_KIND_CUDA) && find_all())
		return true;
	T_RUN(no_cuda);
	return false;
}

/* The last case of each program: check that no object was left in the driver. */
static inline void nothing_is_left(void)
{
	struct stub_cuda_state s = state();

	NEED_STUB();
	T_EQ(s.contexts, 0);
	T_EQ(s.streams, 0);
	T_EQ(s.events, 0);
	T_EQ(s.ranges, 0);
	T_EQ(s.handles, 0);
	T_EQ(s.reservations, 0);
	T_EQ(s.registrations, 0);
	T_EQ(s.modules, 0);
	T_EQ(s.depth, 0);
}

#endif
