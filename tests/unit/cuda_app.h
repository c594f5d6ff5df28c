/* SPDX-License-Identifier: MIT */
/* Shared by tests of a program's own streams.  They run on the stub that PST_LIBCUDA names. */
#ifndef PST_CUDA_APP_H
#define PST_CUDA_APP_H

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include "symbol.h"
#include "base/err.h"
#include "mem/cuda/cuda.h"
#include "stub/cuda_stub.h"

#define T_ERROR_TEXT() err_text()
#include "t.h"

static struct {
	cu_result (*ctx_create)(cu_ctx *, unsigned, cu_device);
	cu_result (*ctx_destroy)(cu_ctx);
	cu_result (*call)(cu_stream, void (*)(void *), void *);
	cu_result (*begin_capture)(cu_stream, uint32_t);
	cu_result (*end_capture)(cu_stream, void **);
	void (*state)(struct stub_cuda_state *);
	bool (*fail)(const char *);
	bool (*peek)(cu_ptr, void *, size_t);
	void (*stall)(const char *);
	void (*poison)(int, cu_result);
} x;

static bool find_all(void)
{
	const char *file = getenv("PST_LIBCUDA");
	void *lib = dlopen(file && *file ? file : "libcuda.so.1", RTLD_NOW);

	if (!lib)
		return false;
	symbol(lib, &x.ctx_create, "cuCtxCreate_v2");
	symbol(lib, &x.ctx_destroy, "cuCtxDestroy_v2");
	symbol(lib, &x.call, "cuLaunchHostFunc");
	symbol(lib, &x.begin_capture, "cuStreamBeginCapture_v2");
	symbol(lib, &x.end_capture, "cuStreamEndCapture");
	symbol(lib, &x.state, "stub_cuda_state");
	symbol(lib, &x.fail, "stub_cuda_fail");
	symbol(lib, &x.peek, "stub_cuda_peek");
	symbol(lib, &x.stall, "stub_cuda_stall");
	symbol(lib, &x.poison, "stub_cuda_poison");
	return x.state && mem_provider(PST_KIND_CUDA);
}

#define CU(call) T_EQ(call, CU_OK)

/* The program's primary context of device 0, and a stream in it. */
static cu_ctx ctx;
static cu_stream st;

static void app_stream_start(void)
{
	CU(cu.cuDevicePrimaryCtxRetain(&ctx, 0));
	CU(cu.cuCtxPushCurrent_v2(ctx));
	CU(cu.cuStreamCreate(&st, CU_NON_BLOCKING));
}

static void app_stream_end(void)
{
	CU(cu.cuStreamDestroy_v2(st));
	CU(cu.cuCtxPopCurrent_v2(&ctx));
	CU(cu.cuDevicePrimaryCtxRelease_v2(0));
}

static struct stub_cuda_state state(void)
{
	struct stub_cuda_state s;

	x.state(&s);
	return s;
}

#define SAME_THREAD(before)                                \
	do {                                               \
		struct stub_cuda_state _now = state();     \
		T_CHECK(_now.current == (before).current); \
		T_EQ(_now.depth, (before).depth);          \
		T_EQ(_now.mode, (before).mode);            \
	} while (0)

static _Atomic int go, passed;

static void wait_for_go(void *arg)
{
	uint64_t end = t_hang();

	(void)arg;
	while (!go && t_now() < end)
		(void)usleep(100);
}

static void pass(void *arg)
{
	(void)arg;
	passed++;
}

#endif
