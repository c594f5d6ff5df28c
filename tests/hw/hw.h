/* SPDX-License-Identifier: MIT */
/*
 * Shared by the programs of this folder: the driver's API, called next to the library as user
 * programs do, and the end of a list of cases.  Patterns, files and requests come from rig.h.
 */
#ifndef PST_HW_H
#define PST_HW_H

#include <dlfcn.h>

#include "symbol.h"
#include "mem/cuda/cuda_types.h"
#include "rig.h"

/* Functions of the driver; NULL if it lacks one. */
static struct {
#define SYM(name, args) cu_result(*name) args;
#define OPT SYM
#include "mem/cuda/cuda_syms.h"
	cu_result (*cuStreamBeginCapture_v2)(cu_stream st, uint32_t mode);
	cu_result (*cuStreamEndCapture)(cu_stream st, void **ret_graph);
	cu_result (*cuStreamCreateWithPriority)(cu_stream *ret, unsigned flags, int priority);
	cu_result (*cuCtxGetStreamPriorityRange)(int *ret_least, int *ret_greatest);
	cu_result (*cuLaunchHostFunc)(cu_stream st, void (*fn)(void *), void *arg);
	cu_result (*cuCtxCreate_v2)(cu_ctx *ret, unsigned flags, cu_device dev);
	cu_result (*cuCtxDestroy_v2)(cu_ctx ctx);
	cu_result (*cuCtxGetCurrent)(cu_ctx *ret);
	cu_result (*cuMemsetD8Async)(cu_ptr dst, unsigned char value, size_t len, cu_stream st);
	cu_result (*cuGraphInstantiateWithFlags)(void **ret, void *graph, unsigned long long flags);
	cu_result (*cuGraphLaunch)(void *exec, cu_stream st);
	cu_result (*cuGraphExecDestroy)(void *exec);
	cu_result (*cuGraphDestroy)(void *graph);
} hw_cu;

static cu_ctx hw_ctx; /* the device's primary context */

/* Load the driver and make the device's primary context current.  Return NULL or the reason of
 * the failure. */
static inline const char *hw_cuda(int ordinal)
{
	const char *name = getenv("PST_LIBCUDA");
	void *lib = dlopen(name && *name ? name : "libcuda.so.1", RTLD_NOW);
	cu_device dev;

	if (!lib)
		return "there is no libcuda.so.1";
#define SYM(name, args) symbol(lib, &hw_cu.name, #name);
#define OPT SYM
#include "mem/cuda/cuda_syms.h"
	symbol(lib, &hw_cu.cuStreamBeginCapture_v2, "cuStreamBeginCapture_v2");
	symbol(lib, &hw_cu.cuStreamEndCapture, "cuStreamEndCapture");
	symbol(lib, &hw_cu.cuStreamCreateWithPriority, "cuStreamCreateWithPriority");
	symbol(lib, &hw_cu.cuCtxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange");
	symbol(lib, &hw_cu.cuLaunchHostFunc, "cuLaunchHostFunc");
	symbol(lib, &hw_cu.cuCtxCreate_v2, "cuCtxCreate_v2");
	symbol(lib, &hw_cu.cuCtxDestroy_v2, "cuCtxDestroy_v2");
	symbol(lib, &hw_cu.cuCtxGetCurrent, "cuCtxGetCurrent");
	symbol(lib, &hw_cu.cuMemsetD8Async, "cuMemsetD8Async");
	symbol(lib, &hw_cu.cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags");
	symbol(lib, &hw_cu.cuGraphLaunch, "cuGraphLaunch");
	symbol(lib, &hw_cu.cuGraphExecDestroy, "cuGraphExecDestroy");
	symbol(lib, &hw_cu.cuGraphDestroy, "cuGraphDestroy");
	if (!hw_cu.cuInit || !hw_cu.cuMemCreate || !hw_cu.cuDevicePrimaryCtxRetain)
		return "libcuda.so.1 is too old";
	if (hw_cu.cuInit(0) || hw_cu.cuDeviceGet(&dev, ordinal) ||
	    hw_cu.cuDevicePrimaryCtxRetain(&hw_ctx, dev) || hw_cu.cuCtxPushCurrent_v2(hw_ctx))
		return "there is no NVIDIA device of this number";
	return NULL;
}

/* Check that a driver call succeeds. */
#define HW_CU(call) T_EQ(hw_cu.call, CU_OK)

/* Return the number of a "cuda:N" device; -1: another kind. */
static inline int hw_ordinal(const char *device)
{
	return strncmp(device, "cuda", 4) != 0 ? -1 : device[4] == ':' ? atoi(device + 5) : 0;
}

static inline struct pst_mem *hw_wrap(uint64_t addr, uint64_t len)
{
	struct pst_mem *m = NULL;

	T_OK(pst_mem_wrap(addr, len, NULL, &m));
	return m;
}

/* Format path bits, like "staged+cached". */
static inline const char *hw_paths(uint32_t paths, char *buf, size_t len)
{
	size_t n = 0;

	buf[0] = '\0';
	for (uint32_t i = 0; i <= PST_PATH_MAX; i++)
		if (paths & PST_PATH_BIT(i) && n < len)
			n += (size_t)snprintf(buf + n, len - n, "%s%s", n ? "+" : "",
					      pst_path_name(i));
	return buf;
}

/* Read a file of len bytes twice through a stable pst_file and wait until no page waits for
 * pinning.  Return the bytes pinned. */
static inline uint64_t hw_pin(struct pst_queue *q, struct pst_file *f, struct pst_mem *m,
			      uint64_t mem_len, uint64_t len)
{
	uint64_t before = rig_stats(NULL).pages_bytes, end = t_hang();

	for (unsigned pass = 0; pass < 2; pass++)
		for (uint64_t off = 0; off < len; off += mem_len) {
			uint64_t n = len - off < mem_len ? len - off : mem_len;
			struct pst_io io = rig_io(PST_OP_READ, f, m, off, 0, n);

			T_EQ(rig_do(q, &io).res, (int64_t)n);
		}
	while (rig_stats(NULL).pages_waiting && t_now() < end)
		(void)usleep(2000);
	T_EQ(rig_stats(NULL).pages_waiting, 0);
	return rig_stats(NULL).pages_bytes - before;
}

/* End like t_done(), but without the check for open descriptors: a driver keeps some. */
static inline int hw_done(void)
{
	printf("1..%d\n", t_cases);
	return t_failed ? 1 : 0;
}

/* End the program with a message; for programs whose standard output is parsed. */
#define HW_DIE(...)                           \
	do {                                  \
		fprintf(stderr, __VA_ARGS__); \
		fputc('\n', stderr);          \
		exit(1);                      \
	} while (0)

#endif
