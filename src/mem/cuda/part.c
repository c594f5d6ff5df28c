/* SPDX-License-Identifier: MIT */
/*
 * Functions for mapping device memory without this provider (window/nvrm/): the handles of an
 * allocation's parts, and scratch memory of the same class to prove a mapping.
 */
#include <inttypes.h>

#include "base/err.h"
#include "mem/cuda/cuda.h"

/* Mapped memory is a sequence of chunks with a handle each.  Other memory has a single handle. */
int cuda_export_part(const struct mem_alloc *a, uint64_t off, struct mem_part *ret)
{
	struct cuda_alloc *c = cuda_alloc_of(a);
	CUDA_SCOPE(scope);
	size_t size = 0;
	cu_ptr base = 0;
	cu_result e;
	int r;

	r = cuda_enter_of(&scope, c);
	if (r < 0)
		return r;
	if (!c->vmm) {
		ret->off = 0;
		ret->len = a->size;
		ret->imported = c->how == CUDA_IPC;
		return cuda_export_ipc(c, ret->ipc);
	}
	e = cu.cuMemGetAddressRange_v2(&base, &size, a->base.va + off);
	if (e != CU_OK)
		return cuda_err(c->d, e, "find the chunk at %#" PRIx64, a->base.va + off);
	if (base < a->base.va || base - a->base.va > off || off - (base - a->base.va) >= size)
		return err_set(EFAULT, "the chunk at %#" PRIx64 " is not the one that was wrapped",
			       a->base.va + off);
	ret->off = base - a->base.va;
	ret->len = MIN(size, a->size - ret->off);
	ret->handle_off = 0; /* the driver maps a chunk only from its beginning */
	return cuda_export_fd(c, base, &ret->fd);
}

/* Get the properties of the allocation's first chunk. */
static cu_result properties(const struct cuda_alloc *c, struct cu_prop *ret)
{
	cu_handle handle;
	cu_result e;

	*ret = (struct cu_prop){ 0 };
	e = cu.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)c->a.base.va);
	if (e != CU_OK)
		return e;
	e = cu.cuMemGetAllocationPropertiesFromHandle(ret, handle);
	/* The driver does not report that imported memory can be shared. */
	if (c->fd >= 0)
		ret->handle_types |= CU_HANDLE_POSIX_FD;
	cuda_ignore(c->d, cu.cuMemRelease(handle), "release a handle");
	return e;
}

static int scratch_mapped(struct cuda_alloc *c, const struct cu_prop *prop, uint64_t len)
{
	cu_handle handle;
	size_t page = 0;
	cu_result e;
	int r;

	e = cu.cuMemGetAllocationGranularity(&page, prop, CU_GRANULARITY_MINIMUM);
	if (e != CU_OK)
		return cuda_err(c->d, e, "tell the size of its pages");
	if (!is_pow2(page))
		return err_set(EIO, "%s has pages of %zu bytes", c->d->info.name, page);
	len = align_up(len, page);
	e = cu.cuMemCreate(&handle, len, prop, 0);
	if (e != CU_OK)
		return cuda_err(c->d, e, "make %" PRIu64 " bytes of scratch memory", len);
	r = cuda_map(c, handle, len, PST_RIGHT_READ | PST_RIGHT_WRITE);
	/* The mapping keeps the memory alive. */
	cuda_ignore(c->d, cu.cuMemRelease(handle), "release a handle");
	c->vmm = true;
	c->a.size = len;
	c->a.buffer_id = mem_buffer_id();
	return r;
}

int cuda_alloc_like(const struct mem_alloc *a, uint64_t len, struct mem_alloc **ret)
{
	_cleanup_(cuda_alloc_freep) struct cuda_alloc *c = NULL;
	const struct cuda_alloc *like = cuda_alloc_of(a);
	CUDA_SCOPE(scope);
	struct cu_prop prop;
	cu_result e;
	int r;

	if (!like->vmm)
		return cuda_alloc(a->device, len, 0, ret);
	r = cuda_alloc_new(like->d, CUDA_MAPPED, &c);
	if (r == 0)
		r = cuda_enter(&scope, like->d, c->ctx);
	if (r < 0)
		return r;
	e = properties(like, &prop);
	if (e != CU_OK)
		return cuda_err(like->d, e, "tell what mapped memory was made with");
	r = scratch_mapped(c, &prop, len);
	if (r < 0)
		return r;
	*ret = &TAKE_PTR(c)->a;
	return 0;
}

/* 0: plain memory, allocated here or imported by an IPC handle. */
uint32_t cuda_alloc_class(const struct mem_alloc *a)
{
	const struct cuda_alloc *c = cuda_alloc_of(a);
	CUDA_SCOPE(scope);
	struct cu_prop prop;

	if (!c->vmm)
		return 0;
	if (cuda_alive(c) < 0 || cuda_enter(&scope, c->d, c->ctx) < 0 ||
	    properties(c, &prop) != CU_OK)
		return UINT32_MAX;
	return 1u << 31 | (prop.handle_types & 0xffffu) << 8 |
	       (prop.flags.compression & 0xfu) << 4 | (prop.flags.gdr_capable & 1u);
}
