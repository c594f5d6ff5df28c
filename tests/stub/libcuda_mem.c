/* SPDX-License-Identifier: MIT */
/* Memory of the libcuda stub: allocations, shared memory, registered host memory. */
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
#define GPU_PAGE 65536u
#define SMALL (UINT64_C(1) << 20)

/* A freed address range; the next allocation of the same length gets the one freed last. */
struct hole {
	struct list link;
	cu_ptr va;
	uint64_t len;
};

static struct list holes = LIST_INIT(holes);

/* ------------------------------------------------------------------- bytes */

void stub_obj_unref(struct obj *o)
{
	if (--o->refs)
		return;
	stub.used[o->dev] -= o->size;
	(void)munmap(o->bytes, o->size);
	(void)close(o->fd);
	free(o);
}

/* Make an object that takes over fd.  Call it with the lock held. */
struct obj *stub_obj_new(int fd, int dev, uint64_t size, uint32_t types)
{
	struct obj *o = calloc(1, sizeof(*o));
	void *p = MAP_FAILED;

	if (o && fd >= 0)
		p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		if (fd >= 0)
			(void)close(fd);
		free(o);
		return NULL;
	}
	*o = (struct obj){
		.refs = 1, .fd = fd, .dev = dev, .bytes = p, .size = size, .handle_types = types
	};
	stub.used[dev] += size;
	return o;
}

/* Make a memfd whose name tells a receiver its kind, device and handle types. */
int stub_bytes_new(const char *kind, int dev, uint32_t types, uint64_t size)
{
	char name[64];
	int fd;

	(void)snprintf(name, sizeof(name), "stub-cuda-%s-%d-%u", kind, dev, types);
	fd = memfd_create(name, MFD_CLOEXEC);
	if (fd >= 0 && ftruncate(fd, (off_t)size) < 0) {
		(void)close(fd);
		fd = -1;
	}
	return fd;
}

bool stub_name_of(const char *path, const char *format, int *dev, unsigned *types)
{
	char name[128] = "";

	return readlink(path, name, sizeof(name) - 1) > 0 && sscanf(name, format, dev, types) == 2;
}

/* Reserve addresses; a large allocation begins at a GPU page. */
static cu_ptr reserve(uint64_t len)
{
	uint64_t align = len < GPU_PAGE ? PAGE : GPU_PAGE, extra = align - PAGE;
	char *p = mmap(NULL, len + extra, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		       -1, 0);
	uint64_t lead;

	if (p == MAP_FAILED)
		return 0;
	lead = align_up((uintptr_t)p, align) - (uintptr_t)p;
	if (lead)
		(void)munmap(p, lead);
	if (extra > lead)
		(void)munmap(p + lead + len, extra - lead);
	return (uintptr_t)p + lead;
}

static cu_ptr addresses(uint64_t len)
{
	struct list *e, *n;
	cu_ptr va;

	for (e = holes.prev; e != &holes; e = n) {
		struct hole *h = list_entry(e, struct hole, link);

		n = e->prev;
		if (h->len != len)
			continue;
		va = h->va;
		list_del(&h->link);
		free(h);
		return va;
	}
	return reserve(len);
}

static void addresses_back(cu_ptr va, uint64_t len)
{
	struct hole *h = calloc(1, sizeof(*h));

	if (!h)
		stub_abort("out of memory");
	h->va = va;
	h->len = len;
	list_add_tail(&holes, &h->link);
}

struct range *stub_range_at(cu_ptr ptr)
{
	struct list *e;

	list_for_each (e, &stub.ranges) {
		struct range *r = list_entry(e, struct range, link);

		if (ptr >= r->va && ptr - r->va < r->size)
			return r;
	}
	return NULL;
}

/* ------------------------------------------------------------- allocations */

static cu_result range_new(enum range_kind kind, uint64_t len, cu_ctx ctx, int dev, cu_ptr *ret)
{
	/* A small allocation begins in the middle of a larger object, as the driver's do. */
	uint64_t lead = kind == RANGE_PLAIN && len < SMALL ? len % 128 * 512 : 0;
	uint64_t map_len = align_up(lead + len, PAGE);
	struct range *r;
	struct obj *o;

	if (!len)
		return CU_INVALID_VALUE;
	if (len > STUB_TOTAL || stub.used[dev] + map_len > STUB_TOTAL)
		return CU_OUT_OF_MEMORY;
	o = stub_obj_new(stub_bytes_new("plain", dev, 0, map_len), dev, map_len, 0);
	r = calloc(1, sizeof(*r));
	if (!o || !r)
		stub_abort("out of memory");
	r->kind = kind;
	r->obj = o;
	r->ctx = ctx;
	r->dev = dev;
	r->size = len;
	r->map_len = map_len;
	r->prot = CU_PROT_READ_WRITE;
	r->id = ++stub.last_id;
	r->lead = lead;
	r->va = addresses(map_len);
	if (!r->va)
		stub_abort("out of addresses");
	r->va += lead;
	if (ctx)
		ctx->ranges++;
	list_add_tail(&stub.ranges, &r->link);
	*ret = r->va;
	return CU_OK;
}

static cu_result range_new_locked(enum range_kind kind, uint64_t len, cu_ptr *ret)
{
	cu_ctx ctx = stub_current();
	cu_result e;

	(void)pthread_mutex_lock(&stub.lock);
	e = range_new(kind, len, kind == RANGE_POOL ? NULL : ctx, ctx->dev, ret);
	(void)pthread_mutex_unlock(&stub.lock);
	return e;
}

cu_result cuMemAlloc_v2(cu_ptr *ret, size_t len)
{
	ENTER(IN_CTX | UNSAFE);
	return range_new_locked(RANGE_PLAIN, len, ret);
}

cu_result cuMemAllocManaged(cu_ptr *ret, size_t len, unsigned flags)
{
	ENTER(IN_CTX | UNSAFE);
	(void)flags;
	return range_new_locked(RANGE_MANAGED, len, ret);
}

cu_result cuMemAllocAsync(cu_ptr *ret, size_t len, cu_stream st)
{
	ENTER(IN_CTX);
	(void)st;
	return range_new_locked(RANGE_POOL, len, ret);
}

/* Free a range.  Call it with the lock held. */
void stub_range_free(struct range *r)
{
	list_del(&r->link);
	if (r->ctx)
		r->ctx->ranges--;
	if (r->kind != RANGE_MAPPED)
		addresses_back(r->va - r->lead, r->map_len);
	stub_obj_unref(r->obj);
	free(r);
}

cu_result cuMemFree_v2(cu_ptr ptr)
{
	struct range *r;
	int dev;

	ENTER(IN_CTX | UNSAFE | ENDS);
	(void)pthread_mutex_lock(&stub.lock);
	r = stub_range_at(ptr);
	if (!r || r->va != ptr || r->kind == RANGE_MAPPED || r->kind == RANGE_IPC)
		stub_abort("cuMemFree of %#llx, which is no allocation", ptr);
	dev = r->dev;
	(void)pthread_mutex_unlock(&stub.lock);
	stub_quiesce(dev);
	(void)pthread_mutex_lock(&stub.lock);
	stub_range_free(r);
	(void)pthread_mutex_unlock(&stub.lock);
	return stub_late();
}

cu_result cuMemGetAddressRange_v2(cu_ptr *ret_base, size_t *ret_size, cu_ptr ptr)
{
	struct range *r;

	ENTER(IN_CTX);
	(void)pthread_mutex_lock(&stub.lock);
	r = stub_range_at(ptr);
	if (r) {
		*ret_base = r->va;
		*ret_size = r->size;
	}
	(void)pthread_mutex_unlock(&stub.lock);
	return r ? CU_OK : CU_NOT_FOUND;
}

int stub_cuda_fd(cu_ptr ptr, uint64_t *ret_off)
{
	struct range *r;
	int fd = -1;

	(void)pthread_mutex_lock(&stub.lock);
	r = stub_range_at(ptr);
	if (r) {
		fd = fcntl(r->obj->fd, F_DUPFD_CLOEXEC, 0);
		*ret_off = ptr - r->va;
	}
	(void)pthread_mutex_unlock(&stub.lock);
	return fd;
}

/* ---------------------------------------------------------------- pointers */

static cu_result range_attribute(const struct range *r, void *ret, uint32_t attr)
{
	switch (attr) {
	case CU_PTR_CONTEXT:
		*(cu_ctx *)ret = r->ctx;
		return CU_OK;
	case CU_PTR_MEMORY_TYPE:
		*(unsigned *)ret = CU_TYPE_DEVICE;
		return CU_OK;
	case CU_PTR_BUFFER_ID:
		*(unsigned long long *)ret = r->id;
		return CU_OK;
	case CU_PTR_IS_MANAGED:
		*(unsigned *)ret = r->kind == RANGE_MANAGED;
		return CU_OK;
	case CU_PTR_DEVICE_ORDINAL:
		*(int *)ret = r->dev;
		return CU_OK;
	case CU_PTR_IPC_CAPABLE:
		*(unsigned *)ret = r->kind == RANGE_PLAIN;
		return CU_OK;
	case CU_PTR_POOL:
		*(const void **)ret = r->kind == RANGE_POOL ? &stub : NULL;
		return CU_OK;
	default:
		return CU_INVALID_VALUE;
	}
}

/* Get one attribute of an address.  Call it with the lock held. */
static cu_result attribute(void *ret, uint32_t attr, cu_ptr ptr)
{
	struct range *r = stub_range_at(ptr);
	cu_result e = CU_INVALID_VALUE;
	struct registration *g;

	if (r) {
		e = range_attribute(r, ret, attr);
	} else if (attr == CU_PTR_MEMORY_TYPE &&
		   stub_registered((void *)(uintptr_t)(ptr & ~HOST_BIT), 1, &g) == 1) {
		*(unsigned *)ret = CU_TYPE_HOST;
		e = CU_OK;
	}
	return e;
}

cu_result cuPointerGetAttribute(void *ret, uint32_t attr, cu_ptr ptr)
{
	cu_result e;

	ENTER(0);
	(void)pthread_mutex_lock(&stub.lock);
	e = attribute(ret, attr, ptr);
	stub.count.refused += e != CU_OK;
	(void)pthread_mutex_unlock(&stub.lock);
	return e;
}

/* An attribute that the address lacks reads as 0. */
cu_result cuPointerGetAttributes(unsigned nr, uint32_t *attrs, void **ret, cu_ptr ptr)
{
	ENTER(0);
	(void)pthread_mutex_lock(&stub.lock);
	for (unsigned i = 0; i < nr; i++) {
		bool wide = attrs[i] == CU_PTR_CONTEXT || attrs[i] == CU_PTR_BUFFER_ID ||
			    attrs[i] == CU_PTR_POOL;

		if (attribute(ret[i], attrs[i], ptr) != CU_OK)
			memset(ret[i], 0, wide ? sizeof(uint64_t) : sizeof(uint32_t));
	}
	(void)pthread_mutex_unlock(&stub.lock);
	return CU_OK;
}

cu_result cuPointerSetAttribute(const void *value, uint32_t attr, cu_ptr ptr)
{
	struct range *r;
	bool good;

	ENTER(IN_CTX | UNSAFE);
	(void)pthread_mutex_lock(&stub.lock);
	r = stub_range_at(ptr);
	good = r && r->kind == RANGE_PLAIN && attr == CU_PTR_SYNC_MEMOPS;
	if (good)
		r->sync_memops = *(const unsigned *)value;
	(void)pthread_mutex_unlock(&stub.lock);
	return good ? CU_OK : CU_INVALID_VALUE;
}

/* Copy between device memory, which may span chunks, and a buffer. */
static bool touch(cu_ptr ptr, char *buf, size_t len, bool write)
{
	bool good = true;

	(void)pthread_mutex_lock(&stub.lock);
	while (good && len) {
		struct range *r = stub_range_at(ptr);
		uint64_t n = r ? MIN(len, r->size - (ptr - r->va)) : 0;

		good = n > 0;
		if (good)
			memcpy(write ? stub_bytes(r, ptr) : buf, write ? buf : stub_bytes(r, ptr),
			       n);
		ptr += n;
		buf += n;
		len -= n;
	}
	(void)pthread_mutex_unlock(&stub.lock);
	return good;
}

bool stub_cuda_peek(cu_ptr ptr, void *buf, size_t len)
{
	return touch(ptr, buf, len, false);
}

bool stub_cuda_poke(cu_ptr ptr, const void *buf, size_t len)
{
	return touch(ptr, (char *)(uintptr_t)buf, len, true);
}

/* ------------------------------------------------------------- shared: IPC */

/*
 * The known words of the driver's IPC handle: process, size, offset of the allocation in its
 * object, client, object.  In the stub a client is a process, and an object is a descriptor in
 * it.
 */
static uint32_t client_of(uint32_t pid)
{
	return NVRM_CLIENT_BASE | (pid & ~NVRM_CLIENT_MASK);
}

cu_result cuIpcGetMemHandle(struct cu_ipc *ret, cu_ptr ptr)
{
	uint32_t w[NVRM_IPC_WORDS] = { 0 };
	struct range *r;

	ENTER(IN_CTX | UNSAFE);
	(void)pthread_mutex_lock(&stub.lock);
	r = stub_range_at(ptr);
	if (r && r->kind == RANGE_PLAIN) {
		w[NVRM_IPC_PID] = (uint32_t)getpid();
		memcpy(&w[NVRM_IPC_SIZE], &r->size, 8);
		w[NVRM_IPC_OFFSET] = (uint32_t)r->lead;
		memcpy(&w[8], &r->id, 8);
		w[NVRM_IPC_CLIENT] = client_of((uint32_t)getpid());
		w[NVRM_IPC_OBJECT] = STUB_OBJECT | (uint32_t)r->obj->fd;
		memcpy(ret->reserved, w, 64);
	} else {
		r = NULL;
	}
	(void)pthread_mutex_unlock(&stub.lock);
	return r ? CU_OK : CU_INVALID_VALUE;
}

static struct range *opened_by(const struct cu_ipc *ipc)
{
	struct list *e;

	list_for_each (e, &stub.ranges) {
		struct range *r = list_entry(e, struct range, link);

		if (r->kind == RANGE_IPC && !memcmp(r->ipc, ipc->reserved, 64))
			return r;
	}
	return NULL;
}

static cu_result ipc_open(cu_ptr *ret, const struct cu_ipc *ipc, cu_ctx ctx)
{
	uint32_t w[NVRM_IPC_WORDS], pid;
	uint64_t size, lead;
	unsigned types;
	char path[64];
	struct range *r;
	struct obj *o;
	int dev, fd;

	memcpy(w, ipc->reserved, 64);
	memcpy(&size, &w[NVRM_IPC_SIZE], 8);
	lead = w[NVRM_IPC_OFFSET];
	pid = w[NVRM_IPC_PID];
	if (w[NVRM_IPC_CLIENT] != client_of(pid) || size > STUB_TOTAL)
		return CU_INVALID_VALUE;
	if (pid == (uint32_t)getpid())
		return CU_INVALID_CONTEXT;
	if (opened_by(ipc))
		return CU_ALREADY_MAPPED;
	(void)snprintf(path, sizeof(path), "/proc/%u/fd/%u", pid,
		       w[NVRM_IPC_OBJECT] & ~STUB_OBJECT);
	if (!stub_name_of(path, "/memfd:stub-cuda-plain-%d-%u", &dev, &types) ||
	    dev >= stub.nr_devices)
		return CU_MAP_FAILED;
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return CU_MAP_FAILED;
	/* Memory of another device is opened by peer access. */
	o = stub_obj_new(fd, dev, align_up(lead + size, PAGE), 0);
	r = calloc(1, sizeof(*r));
	if (!o || !r)
		stub_abort("out of memory");
	*r = (struct range){ .kind = RANGE_IPC,
			     .obj = o,
			     .ctx = ctx,
			     .dev = dev,
			     .lead = lead,
			     .size = size,
			     .map_len = align_up(lead + size, PAGE),
			     .prot = CU_PROT_READ_WRITE };
	r->id = ++stub.last_id;
	r->va = addresses(r->map_len) + lead;
	memcpy(r->ipc, ipc->reserved, 64);
	ctx->ranges++;
	list_add_tail(&stub.ranges, &r->link);
	*ret = r->va;
	return CU_OK;
}

cu_result cuIpcOpenMemHandle_v2(cu_ptr *ret, struct cu_ipc ipc, unsigned flags)
{
	cu_result e;

	ENTER(IN_CTX | UNSAFE);
	if (flags != CU_IPC_LAZY_PEER)
		return CU_INVALID_VALUE;
	(void)pthread_mutex_lock(&stub.lock);
	e = ipc_open(ret, &ipc, stub_current());
	(void)pthread_mutex_unlock(&stub.lock);
	return e;
}

cu_result cuIpcCloseMemHandle(cu_ptr ptr)
{
	struct range *r;

	ENTER(IN_CTX | UNSAFE | ENDS);
	stub_quiesce(stub_current()->dev);
	(void)pthread_mutex_lock(&stub.lock);
	r = stub_range_at(ptr);
	if (!r || r->va != ptr || r->kind != RANGE_IPC)
		stub_abort("cuIpcCloseMemHandle of %#llx, which was not opened", ptr);
	stub_range_free(r);
	(void)pthread_mutex_unlock(&stub.lock);
	return stub_late();
}

/* --------------------------------------------------- registered host memory */

int stub_registered(const void *host, uint64_t len, struct registration **ret)
{
	const char *at = host;
	struct list *e;

	list_for_each (e, &stub.registrations) {
		struct registration *g = list_entry(e, struct registration, link);

		if (at + len <= g->host || at >= g->host + g->len)
			continue;
		*ret = g;
		return at >= g->host && at + len <= g->host + g->len ? 1 : -1;
	}
	return 0;
}

/* Return true if all of the range is mapped, and writable if @writable. */
static bool is_mapped_now(const char *host, uint64_t len, bool writable)
{
	uint64_t at = (uintptr_t)host, end = at + len, from, to;
	char line[512], perm[8];
	FILE *f = fopen("/proc/self/maps", "re");

	if (!f)
		stub_abort("no /proc/self/maps");
	while (at < end && fgets(line, sizeof(line), f))
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s", &from, &to, perm) == 3 &&
		    at >= from && at < to && perm[0] == 'r' && (!writable || perm[1] == 'w'))
			at = to;
	(void)fclose(f);
	return at >= end;
}

/* Try again: /proc/self/maps may skip a mapping while other threads change theirs. */
static bool is_mapped(const char *host, uint64_t len, bool writable)
{
	for (unsigned i = 0; i < 4; i++)
		if (is_mapped_now(host, len, writable))
			return true;
	return false;
}

cu_result cuMemHostRegister_v2(void *host, size_t len, unsigned flags)
{
	struct registration *g, *other;
	cu_result e = CU_OK;

	ENTER(IN_CTX | UNSAFE);
	if (!host || !len ||
	    flags & ~(CU_REGISTER_PORTABLE | CU_REGISTER_DEVICEMAP | CU_REGISTER_READ_ONLY))
		return CU_INVALID_VALUE;
	if (!is_mapped(host, len, !(flags & CU_REGISTER_READ_ONLY)))
		return CU_INVALID_VALUE;
	/* "file pages" stalls only these registrations, not those of staging slots. */
	if (flags & CU_REGISTER_READ_ONLY)
		stub_stall_at("file pages");
	if (stub.register_us)
		(void)usleep(stub.register_us);
	g = calloc(1, sizeof(*g));
	if (!g)
		return CU_OUT_OF_MEMORY;
	*g = (struct registration){
		.host = host, .len = len, .flags = flags, .ctx = stub_current()
	};
	(void)pthread_mutex_lock(&stub.lock);
	if (stub_registered(host, len, &other)) {
		e = CU_HOST_ALREADY_REGISTERED;
		free(g);
	} else {
		list_add_tail(&stub.registrations, &g->link);
		g->ctx->registrations++;
		stub.count.largest_registration = MAX(stub.count.largest_registration, len);
	}
	(void)pthread_mutex_unlock(&stub.lock);
	return e;
}

cu_result cuMemHostUnregister(void *host)
{
	struct registration *g;
	bool found;

	ENTER(IN_CTX | UNSAFE | ENDS);
	for (int i = 0; i < stub.nr_devices; i++)
		stub_quiesce(i);
	(void)pthread_mutex_lock(&stub.lock);
	found = stub_registered(host, 1, &g) && g->host == host;
	if (found) {
		if (!is_mapped(g->host, g->len, false))
			stub_abort("host memory was unmapped while it was registered");
		list_del(&g->link);
		g->ctx->registrations -= !g->words;
		free(g);
	}
	(void)pthread_mutex_unlock(&stub.lock);
	return found ? stub_late() : CU_HOST_NOT_REGISTERED;
}

cu_result cuMemHostGetDevicePointer_v2(cu_ptr *ret, void *host, unsigned flags)
{
	struct registration *g;
	bool good;

	ENTER(IN_CTX);
	(void)pthread_mutex_lock(&stub.lock);
	good = !flags && stub_registered(host, 1, &g) == 1 && g->flags & CU_REGISTER_DEVICEMAP;
	(void)pthread_mutex_unlock(&stub.lock);
	if (!good)
		return CU_INVALID_VALUE;
	*ret = (uintptr_t)host | HOST_BIT;
	return CU_OK;
}

void stub_reset_memory(cu_ctx ctx)
{
	struct list *e, *n;

	list_for_each_safe (e, n, &stub.ranges)
		if (list_entry(e, struct range, link)->ctx == ctx)
			stub_range_free(list_entry(e, struct range, link));
	list_for_each_safe (e, n, &stub.registrations) {
		struct registration *g = list_entry(e, struct registration, link);

		if (g->ctx != ctx)
			continue;
		list_del(&g->link);
		free(g);
	}
}
