/* SPDX-License-Identifier: MIT */
/* Memory mapped into reserved addresses, and handles passed between processes. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "window/nvrm/nvrm_types.h"
#include "cuda_stub_int.h"
#include "nvrm_stub.h"

#define PAGE 4096u

/* A handle of cuMemCreate(); its value is its address. */
struct handle {
	struct list link;
	unsigned refs;
	struct obj *obj;
};

struct reservation {
	struct list link;
	cu_ptr va;
	uint64_t len;
};

/* Return the handle with this number, or NULL. Call it with the lock held. */
static struct handle *handle_at(cu_handle number)
{
	struct list *e;

	list_for_each (e, &stub.handles)
		if ((cu_handle)(uintptr_t)list_entry(e, struct handle, link) == number)
			return list_entry(e, struct handle, link);
	return NULL;
}

/* Make a handle that takes over the reference to o.  Call it with the lock held. */
static cu_handle handle_new(struct obj *o)
{
	struct handle *h = calloc(1, sizeof(*h));

	if (!h)
		stub_abort("out of memory");
	h->refs = 1;
	h->obj = o;
	list_add_tail(&stub.handles, &h->link);
	return (uintptr_t)h;
}

cu_result cuMemGetAllocationGranularity(size_t *ret, const struct cu_prop *prop, uint32_t which)
{
	ENTER(0);
	if (prop->type != CU_ALLOC_PINNED || which != CU_GRANULARITY_MINIMUM)
		return CU_INVALID_VALUE;
	*ret = STUB_CHUNK;
	return CU_OK;
}

cu_result cuMemCreate(cu_handle *ret, size_t len, const struct cu_prop *prop,
		      unsigned long long flags)
{
	int dev = prop->location.id;
	struct obj *o;

	ENTER(UNSAFE);
	if (!len || len % STUB_CHUNK || flags || prop->type != CU_ALLOC_PINNED ||
	    prop->location.type != CU_LOC_DEVICE || dev < 0 || dev >= stub.nr_devices)
		return CU_INVALID_VALUE;
	(void)pthread_mutex_lock(&stub.lock);
	o = stub_obj_new(stub_bytes_new("vmm", dev, prop->handle_types, len), dev, len,
			 prop->handle_types);
	if (!o)
		stub_abort("out of memory");
	*ret = handle_new(o);
	(void)pthread_mutex_unlock(&stub.lock);
	return CU_OK;
}

cu_result cuMemRelease(cu_handle number)
{
	struct handle *h;

	ENTER(UNSAFE | ENDS);
	(void)pthread_mutex_lock(&stub.lock);
	h = handle_at(number);
	if (!h)
		stub_abort("cuMemRelease of a handle that is none");
	if (!--h->refs) {
		list_del(&h->link);
		stub_obj_unref(h->obj);
		free(h);
	}
	(void)pthread_mutex_unlock(&stub.lock);
	return stub_late();
}

cu_result cuMemRetainAllocationHandle(cu_handle *ret, void *addr)
{
	struct range *r;
	struct list *e;
	bool found = false;

	ENTER(0);
	(void)pthread_mutex_lock(&stub.lock);
	r = stub_range_at((uintptr_t)addr);
	if (r && r->kind == RANGE_MAPPED) {
		list_for_each (e, &stub.handles) {
			struct handle *h = list_entry(e, struct handle, link);

			if (h->obj != r->obj)
				continue;
			h->refs++;
			*ret = (uintptr_t)h;
			found = true;
			break;
		}
		if (!found) {
			r->obj->refs++;
			*ret = handle_new(r->obj);
			found = true;
		}
	}
	stub.count.refused += !found;
	(void)pthread_mutex_unlock(&stub.lock);
	return found ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMemGetAllocationPropertiesFromHandle(struct cu_prop *ret, cu_handle number)
{
	struct handle *h;

	ENTER(0);
	(void)pthread_mutex_lock(&stub.lock);
	h = handle_at(number);
	if (h)
		*ret = (struct cu_prop){
			.type = CU_ALLOC_PINNED,
			.handle_types = h->obj->handle_types,
			.location = { .type = CU_LOC_DEVICE, .id = h->obj->dev },
		};
	(void)pthread_mutex_unlock(&stub.lock);
	return h ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMemExportToShareableHandle(void *ret, cu_handle number, uint32_t type,
				       unsigned long long flags)
{
	struct handle *h;
	int fd = -1;

	ENTER(UNSAFE);
	(void)pthread_mutex_lock(&stub.lock);
	h = handle_at(number);
	if (h && !flags && type == CU_HANDLE_POSIX_FD && h->obj->handle_types & type)
		fd = fcntl(h->obj->fd, F_DUPFD, 0);
	(void)pthread_mutex_unlock(&stub.lock);
	if (fd < 0)
		return CU_INVALID_VALUE;
	*(int *)ret = fd;
	return CU_OK;
}

cu_result cuMemImportFromShareableHandle(cu_handle *ret, void *shareable, uint32_t type)
{
	int fd = (int)(intptr_t)shareable, dev;
	unsigned types;
	struct stat st;
	char path[64];
	struct obj *o;

	ENTER(UNSAFE);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (type != CU_HANDLE_POSIX_FD || fstat(fd, &st) < 0 ||
	    !stub_name_of(path, "/memfd:stub-cuda-vmm-%d-%u", &dev, &types) ||
	    dev >= stub.nr_devices)
		return CU_INVALID_VALUE;
	(void)pthread_mutex_lock(&stub.lock);
	o = stub_obj_new(fcntl(fd, F_DUPFD_CLOEXEC, 0), dev, (uint64_t)st.st_size, types);
	if (!o)
		stub_abort("out of memory");
	*ret = handle_new(o);
	(void)pthread_mutex_unlock(&stub.lock);
	return CU_OK;
}

/* Return the reservation of an address, or NULL. Call it with the lock held. */
static struct reservation *reservation_of(cu_ptr va, uint64_t len)
{
	struct list *e;

	list_for_each (e, &stub.reservations) {
		struct reservation *v = list_entry(e, struct reservation, link);

		if (va >= v->va && va - v->va <= v->len && len <= v->len - (va - v->va))
			return v;
	}
	return NULL;
}

cu_result cuMemAddressReserve(cu_ptr *ret, size_t len, size_t align, cu_ptr wish,
			      unsigned long long flags)
{
	struct reservation *v;
	char *p;

	ENTER(UNSAFE);
	(void)align;
	(void)wish;
	if (!len || len % STUB_CHUNK || flags)
		return CU_INVALID_VALUE;
	v = calloc(1, sizeof(*v));
	p = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!v || p == MAP_FAILED) {
		free(v);
		return CU_OUT_OF_MEMORY;
	}
	v->va = *ret = (uintptr_t)p;
	v->len = len;
	(void)pthread_mutex_lock(&stub.lock);
	list_add_tail(&stub.reservations, &v->link);
	(void)pthread_mutex_unlock(&stub.lock);
	return CU_OK;
}

cu_result cuMemAddressFree(cu_ptr ptr, size_t len)
{
	struct reservation *v;

	ENTER(UNSAFE | ENDS);
	(void)pthread_mutex_lock(&stub.lock);
	v = reservation_of(ptr, len);
	if (!v || v->va != ptr || v->len != len)
		stub_abort("cuMemAddressFree of what was not reserved");
	for (uint64_t at = 0; at < len; at += STUB_CHUNK)
		if (stub_range_at(ptr + at))
			stub_abort("cuMemAddressFree of addresses that are mapped");
	list_del(&v->link);
	(void)munmap((void *)(uintptr_t)ptr, len);
	free(v);
	(void)pthread_mutex_unlock(&stub.lock);
	return stub_late();
}

cu_result cuMemMap(cu_ptr ptr, size_t len, size_t off, cu_handle number, unsigned long long flags)
{
	struct handle *h;
	struct range *r;
	bool good;

	ENTER(UNSAFE);
	r = calloc(1, sizeof(*r));
	if (!r)
		return CU_OUT_OF_MEMORY;
	(void)pthread_mutex_lock(&stub.lock);
	h = handle_at(number);
	good = h && !off && !flags && len && len % STUB_CHUNK == 0 && ptr % PAGE == 0 &&
	       len <= h->obj->size && reservation_of(ptr, len);
	for (uint64_t at = 0; good && at < len; at += STUB_CHUNK)
		good = !stub_range_at(ptr + at);
	if (good) {
		*r = (struct range){ .kind = RANGE_MAPPED,
				     .va = ptr,
				     .size = len,
				     .map_len = len,
				     .dev = h->obj->dev,
				     .obj = h->obj,
				     .id = ++stub.last_id };
		h->obj->refs++;
		list_add_tail(&stub.ranges, &r->link);
	}
	(void)pthread_mutex_unlock(&stub.lock);
	if (!good)
		free(r);
	return good ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMemUnmap(cu_ptr ptr, size_t len)
{
	cu_ptr end = ptr + len;

	ENTER(UNSAFE | ENDS);
	for (int i = 0; i < stub.nr_devices; i++)
		stub_quiesce(i);
	(void)pthread_mutex_lock(&stub.lock);
	while (ptr < end) {
		struct range *r = stub_range_at(ptr);

		if (!r || r->kind != RANGE_MAPPED || r->va != ptr || r->size > end - ptr)
			stub_abort("cuMemUnmap of what is no whole mapping");
		ptr += r->size;
		stub_range_free(r);
	}
	(void)pthread_mutex_unlock(&stub.lock);
	return stub_late();
}

cu_result cuMemSetAccess(cu_ptr ptr, size_t len, const struct cu_access *desc, size_t nr)
{
	cu_ptr end = ptr + len;
	bool good = nr == 1 && desc->location.type == CU_LOC_DEVICE;

	ENTER(UNSAFE);
	(void)pthread_mutex_lock(&stub.lock);
	while (good && ptr < end) {
		struct range *r = stub_range_at(ptr);

		good = r && r->kind == RANGE_MAPPED && r->dev == desc->location.id;
		if (good) {
			r->prot = desc->flags;
			ptr = r->va + r->size;
		}
	}
	(void)pthread_mutex_unlock(&stub.lock);
	return good ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMemGetAccess(unsigned long long *ret, const struct cu_location *loc, cu_ptr ptr)
{
	struct range *r;

	ENTER(0);
	(void)pthread_mutex_lock(&stub.lock);
	r = stub_range_at(ptr);
	if (r)
		*ret = r->dev == loc->id ? r->prot : 0;
	(void)pthread_mutex_unlock(&stub.lock);
	return r ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMemGetHandleForAddressRange(void *ret, cu_ptr ptr, size_t len, uint32_t type,
					unsigned long long flags)
{
	struct range *r;
	int fd = -1;

	ENTER(0);
	if (type != CU_RANGE_DMA_BUF || flags || ptr % PAGE || len % PAGE || !len)
		return CU_INVALID_VALUE;
	(void)pthread_mutex_lock(&stub.lock);
	r = stub_range_at(ptr);
	/* The dma-buf has to begin at ptr.  A memfd can only do that for the beginning of its
	 * object; else return a descriptor that the CPU cannot map. */
	if (r && len <= r->map_len - (ptr - r->va))
		fd = ptr == r->va && !r->lead ? fcntl(r->obj->fd, F_DUPFD, 0) : eventfd(0, 0);
	(void)pthread_mutex_unlock(&stub.lock);
	if (fd < 0)
		return CU_INVALID_VALUE;
	*(int *)ret = fd;
	return CU_OK;
}
