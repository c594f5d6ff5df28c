/* SPDX-License-Identifier: MIT */
/*
 * Test handles of the parts of CUDA memory, and scratch memory of the same class.  Runs on the stub
 * of tests/stub that PST_LIBCUDA names.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/err.h"
#include "window/nvrm/nvrm_types.h"
#include "mem/cuda/cuda.h"
#include "stub/cuda_stub.h"

#define T_ERROR_TEXT() err_text()
#include "t.h"

#define CHUNK STUB_CHUNK
#define RW (PST_RIGHT_READ | PST_RIGHT_WRITE)

static void (*stub_state)(struct stub_cuda_state *);
static cu_result (*mem_alloc_async)(cu_ptr *, size_t, cu_stream);
static cu_ctx ctx;

static bool cuda(void)
{
	const char *file = getenv("PST_LIBCUDA");
	void *lib = file && *file ? dlopen(file, RTLD_NOW) : NULL, *fn;

	if (!lib || !(fn = dlsym(lib, "stub_cuda_state")))
		return false;
	memcpy(&stub_state, &fn, sizeof(fn));
	fn = dlsym(lib, "cuMemAllocAsync");
	memcpy(&mem_alloc_async, &fn, sizeof(fn));
	return mem_provider(PST_KIND_CUDA) && cu.cuDevicePrimaryCtxRetain(&ctx, 0) == CU_OK &&
	       cu.cuCtxPushCurrent_v2(ctx) == CU_OK;
}

#define CU(call) T_EQ(call, CU_OK)

static struct mem_alloc *wrap(cu_ptr va, uint64_t len)
{
	struct mem_alloc *a = NULL;

	T_OK(mem_wrap(va, len, PST_KIND_CUDA, 0, &a));
	return a;
}

static cu_ptr map_row(unsigned nr, const struct cu_prop *prop, uint32_t prot)
{
	struct cu_access access = { .location = prop->location, .flags = prot };
	cu_ptr va;

	CU(cu.cuMemAddressReserve(&va, nr * CHUNK, 0, 0, 0));
	for (unsigned i = 0; i < nr; i++) {
		cu_handle h;

		CU(cu.cuMemCreate(&h, CHUNK, prop, 0));
		CU(cu.cuMemMap(va + i * CHUNK, CHUNK, 0, h, 0));
		CU(cu.cuMemRelease(h));
	}
	CU(cu.cuMemSetAccess(va, nr * CHUNK, &access, 1));
	return va;
}

static void unmap_row(cu_ptr va, unsigned nr)
{
	CU(cu.cuMemUnmap(va, nr * CHUNK));
	CU(cu.cuMemAddressFree(va, nr * CHUNK));
}

static const struct cu_prop shared = { .type = CU_ALLOC_PINNED,
				       .handle_types = CU_HANDLE_POSIX_FD,
				       .location = { CU_LOC_DEVICE, 0 } };

static void plain_memory_has_one_part(void)
{
	uint32_t w[NVRM_IPC_WORDS];
	struct mem_alloc *a = NULL;
	struct mem_part p;
	cu_ptr va;

	CU(cu.cuMemAlloc_v2(&va, 10000));
	a = wrap(va + 5000, 100);
	T_OK(mem_export_part(a, 9999, &p));
	T_EQ(p.off, 0);
	T_EQ(p.len, 10000);
	T_EQ(p.fd, -1);
	T_CHECK(!p.imported);
	memcpy(w, p.ipc, sizeof(w));
	T_EQ(w[NVRM_IPC_PID], getpid());
	T_EQ(w[NVRM_IPC_SIZE], 10000);
	T_EQ(mem_export_part(a, 10000, &p), -ERANGE);
	mem_free(a);
	CU(cu.cuMemFree_v2(va));
}

static void chunks_are_parts(void)
{
	cu_ptr va = map_row(4, &shared, CU_PROT_READ_WRITE);
	struct mem_alloc *a = wrap(va + CHUNK + 5, 2 * CHUNK);
	struct mem_part p;
	struct stat st;

	T_EQ(a->size, 3 * CHUNK);
	for (unsigned i = 0; i < 3; i++) {
		T_OK(mem_export_part(a, i * CHUNK + CHUNK - 1, &p));
		T_EQ(p.off, i * CHUNK);
		T_EQ(p.len, CHUNK);
		T_EQ(p.handle_off, 0);
		T_CHECK(fcntl(p.fd, F_GETFD) & FD_CLOEXEC);
		T_EQ(fstat(p.fd, &st), 0);
		T_EQ(st.st_size, CHUNK);
		(void)close(p.fd);
	}
	mem_free(a);
	unmap_row(va, 4);
}

static void parts_without_a_handle(void)
{
	struct cu_prop prop = shared;
	struct mem_alloc *a;
	struct mem_part p;
	cu_ptr va;

	prop.handle_types = 0;
	va = map_row(1, &prop, CU_PROT_READ_WRITE);
	a = wrap(va, CHUNK);
	T_EQ(mem_export_part(a, 0, &p), -EOPNOTSUPP);
	mem_free(a);
	unmap_row(va, 1);
	CU(mem_alloc_async(&va, 5000, NULL));
	a = wrap(va, 5000);
	T_EQ(mem_export_part(a, 0, &p), -EOPNOTSUPP);
	mem_free(a);
	CU(cu.cuMemFree_v2(va));
	CU(cu.cuMemAlloc_v2(&va, 5000));
	a = wrap(va, 5000);
	CU(cu.cuMemFree_v2(va));
	T_EQ(mem_export_part(a, 0, &p), -EFAULT);
	mem_free(a);
}

/* Check that scratch memory can be written and read by copies, and is freed. */
static void check_scratch(const struct mem_alloc *like, bool mapped)
{
	struct mem_alloc *s = NULL;
	char in[100], out[100];

	T_OK(mem_alloc_like(like, 70000, &s));
	T_CHECK(s->size >= 70000 && s->device == like->device && s->rights == RW);
	T_EQ(cuda_alloc_of(s)->vmm, mapped);
	T_EQ(mem_alloc_class(s), mem_alloc_class(like));
	T_CHECK(s->buffer_id != like->buffer_id);
	t_fill(in, 1, 0, sizeof(in));
	T_OK(mem_copy_sync(s, MEM_TO_DEVICE, 69900, in, sizeof(in)));
	T_OK(mem_copy_sync(s, MEM_FROM_DEVICE, 69900, out, sizeof(out)));
	T_CHECK(!memcmp(in, out, sizeof(in)));
	mem_free(s);
}

static void scratch_memory_is_alike(void)
{
	struct mem_alloc *plain = NULL, *mapped, *other, *read_only;
	struct stub_cuda_state before, after;
	struct cu_prop prop = shared;
	cu_ptr va[3];

	T_OK(mem_alloc(mem_provider(PST_KIND_CUDA), 0, 1000, 0, &plain));
	va[0] = map_row(1, &shared, CU_PROT_READ_WRITE);
	va[1] = map_row(2, &shared, CU_PROT_READ);
	prop.handle_types = 0;
	va[2] = map_row(1, &prop, CU_PROT_READ_WRITE);
	mapped = wrap(va[0], CHUNK);
	read_only = wrap(va[1], 2 * CHUNK);
	other = wrap(va[2], CHUNK);
	T_CHECK(mem_alloc_class(plain) != mem_alloc_class(mapped));
	T_CHECK(mem_alloc_class(other) != mem_alloc_class(mapped));
	T_EQ(mem_alloc_class(read_only), mem_alloc_class(mapped));
	stub_state(&before);
	check_scratch(plain, false);
	check_scratch(mapped, true);
	check_scratch(other, true);
	check_scratch(read_only, true);
	stub_state(&after);
	T_EQ(after.ranges, before.ranges);
	T_EQ(after.handles, before.handles);
	T_EQ(after.reservations, before.reservations);
	mem_free(plain);
	mem_free(mapped);
	mem_free(read_only);
	mem_free(other);
	unmap_row(va[0], 1);
	unmap_row(va[1], 2);
	unmap_row(va[2], 1);
}

int main(void)
{
	if (!cuda()) {
		printf("1..0 # SKIP PST_LIBCUDA does not name the library of tests/stub\n");
		return 0;
	}
	T_RUN(plain_memory_has_one_part);
	T_RUN(chunks_are_parts);
	T_RUN(parts_without_a_handle);
	T_RUN(scratch_memory_is_alike);
	return t_done();
}
