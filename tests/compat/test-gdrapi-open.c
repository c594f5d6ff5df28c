/* SPDX-License-Identifier: MIT */
/*
 * gdr_open() in a program that uses CUDA, with the library that PST_LIBCUDA names.  It must fail
 * if no mapping is possible, and must not make a context if there is none.
 */
#include <dlfcn.h>

#include "symbol.h"
#include "gdr_rig.h"
#include "stub/cuda_stub.h"

static struct {
	cu_result (*init)(unsigned);
	cu_result (*retain)(cu_ctx *, cu_device);
	cu_result (*release)(cu_device);
	cu_result (*push)(cu_ctx);
	cu_result (*pop)(cu_ctx *);
	bool (*fail)(const char *);
	void (*state)(struct stub_cuda_state *);
} cuda;

static void load(void)
{
	void *lib = getenv("PST_LIBCUDA") ? dlopen(getenv("PST_LIBCUDA"), RTLD_NOW) : NULL;

	symbol(lib, &cuda.fail, "stub_cuda_fail");
	symbol(lib, &cuda.state, "stub_cuda_state");
	symbol(lib, &cuda.init, "cuInit");
	symbol(lib, &cuda.retain, "cuDevicePrimaryCtxRetain");
	symbol(lib, &cuda.release, "cuDevicePrimaryCtxRelease_v2");
	symbol(lib, &cuda.push, "cuCtxPushCurrent_v2");
	symbol(lib, &cuda.pop, "cuCtxPopCurrent_v2");
}

/* The driver is loaded, but has no context: gdr_open() must not make one. */
static void without_a_context(void)
{
	struct stub_cuda_state s;
	gdr_t a;

	load();
	a = gdr_open();
	T_CHECK(a);
	T_EQ(cuda.init(0), CU_OK);
	cuda.state(&s);
	T_EQ(s.contexts_made, 0);
	T_EQ(gdr_close(a), 0);
}

/* Make a device's context current: gdr_open() must check that device. */
static void push_context(int dev)
{
	cu_ctx ctx;

	load();
	T_EQ(cuda.init(0), CU_OK);
	T_EQ(cuda.retain(&ctx, dev), CU_OK);
	T_EQ(cuda.push(ctx), CU_OK);
}

static void pop_context(int dev)
{
	cu_ctx ctx;

	T_EQ(cuda.pop(&ctx), CU_OK);
	T_EQ(cuda.release(dev), CU_OK);
}

static void with_a_context(void)
{
	struct stub_cuda_state s;
	gdr_t a;

	push_context(1);
	errno = 77;
	a = gdr_open();
	T_CHECK(a);
	T_EQ(errno, 77);
	T_EQ(gdr_close(a), 0);
	cuda.state(&s);
	T_EQ(s.contexts_made, 1);
	T_EQ(s.ctx_refs[0], 0);
	T_EQ(s.ctx_refs[1], 1);
	T_EQ(s.depth, 1);
	T_EQ(s.ranges + s.streams, 0);
	pop_context(1);
}

static void where_nothing_can_be_mapped(void)
{
	push_context(0);
	(void)cuda.fail("cuMemGetHandleForAddressRange:0:801");
	errno = 77;
	T_CHECK(!gdr_open());
	T_EQ(errno, 77);
	T_CHECK(strstr(pst_error_text(), "no window can be had"));
	T_CHECK(cuda.fail(NULL));
	pop_context(0);
	/* Without a context CUDA cannot be checked yet, and other memory works: gdr_open() must
	 * succeed. */
	g = gdr_open();
	T_CHECK(g);
	T_EQ(gdr_close(g), 0);
}

int main(void)
{
	T_RUN(without_a_context);
	T_RUN(with_a_context);
	T_RUN(where_nothing_can_be_mapped);
	return t_done();
}
