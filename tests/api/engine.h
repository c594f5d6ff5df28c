/* SPDX-License-Identifier: MIT */
/* Requests that meet in an engine: what the tests of that have in common. */
#ifndef PST_TESTS_API_ENGINE_H
#define PST_TESTS_API_ENGINE_H

#include <dlfcn.h>

#include "rig.h"

#define ENGINE_SEED 31u
#define PIECE RIG_MIB(1)
#define PIECES 24u
#define FILE_LEN (PIECES * PIECE)

/* Of the stand-in for the driver, see tests/stub/cuda_stub.h. */
static void (*delay_us)(unsigned us);
static void (*stall)(const char *name);

static inline int engine_set_pool(uint64_t bytes)
{
	struct pst_limits l = { .sz = sizeof(l), .pool_bytes = bytes };

	return pst_limits_set(&l);
}

static inline void engine_find(void *lib, const char *name, void *ret)
{
	void *fn = lib ? dlsym(lib, name) : NULL;

	memcpy(ret, &fn, sizeof(fn));
}

/* That stand-in, or the driver. */
static inline void *engine_stub(void)
{
	const char *name = getenv("PST_LIBCUDA");
	void *lib = dlopen(name ? name : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	engine_find(lib, "stub_cuda_delay_us", &delay_us);
	engine_find(lib, "stub_cuda_stall", &stall);
	return lib;
}

static inline void engine_needs_stub(void)
{
	if (!delay_us || !stall)
		T_SKIP("a CUDA library that stalls on demand");
}

static inline struct pst_file *engine_warm_file(uint32_t flags, uint64_t len)
{
	rig_make(rig_path("data"), ENGINE_SEED, len);
	rig_warm(rig_path("data"));
	return rig_open(rig_path("data"), PST_FILE_READ | flags);
}

static inline void engine_run(const char *dev, const char *name, void (*fn)(void))
{
	static const char *const backends[] = { "", "uring", "threads" };
	char full[100];

	for (rig_backend = PST_BACKEND_URING; rig_backend <= PST_BACKEND_THREADS; rig_backend++) {
		rig_dev = dev;
		rig_last = rig_q;
		rig_q = NULL;
		rig_fn = fn;
		(void)snprintf(full, sizeof(full), "%s %s %s", name, backends[rig_backend], dev);
		t_run(full, rig_case);
	}
}

#define ENGINE_RUN(dev, fn) engine_run(dev, #fn, fn)

#endif
