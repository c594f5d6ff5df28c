/* SPDX-License-Identifier: MIT */
/*
 * Allocations of the library and of the program.
 *
 * A wrap describes what the driver tells about an address.  Most memory is one allocation.  Memory
 * of cuMemCreate is mapped into a reservation chunk by chunk, and frameworks map further
 * chunks after tensors that span several chunks.  So a wrap covers only the chunks that contain the
 * range: the addresses after them may not be mapped.
 */
#include <inttypes.h>
#include <sched.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "mem/cuda/cuda.h"

#define ID_BUCKETS 256u
#define CHUNKS_MAX (1u << 20)
#define RIGHTS_ALL (PST_RIGHT_READ | PST_RIGHT_WRITE)

static struct {
	pthread_mutex_t lock;
	struct list bucket[ID_BUCKETS];
	bool ready;
} ids = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Facts that the driver tells about an address. */
struct facts {
	unsigned device;
	cu_ctx ctx; /* NULL for memory without a context, such as mapped and pooled memory */
	bool vmm;
	bool ipc_capable;   /* true for plain memory of cuMemAlloc */
	uint64_t driver_id; /* CU_PTR_BUFFER_ID; 0: unknown */
	uint64_t base, size;
};

/* --------------------------------------------------------------------- ids */

static void id_put(struct cuda_id *e)
{
	if (!e)
		return;
	(void)pthread_mutex_lock(&ids.lock);
	if (!--e->refs) {
		list_del(&e->link);
		free(e);
	}
	(void)pthread_mutex_unlock(&ids.lock);
}

/*
 * Return the entry of an allocation, created if there is none.  *ret_new tells whether it was
 * created.  Plain memory is found by the driver's number alone, so a wrap of the library's own
 * allocation finds the requested size and not the rounded one.  Ranges of mapped memory also differ
 * by base and size.
 */
static struct cuda_id *id_get(const struct facts *f, bool *ret_new)
{
	uint64_t key_base = f->vmm ? f->base : 0, key_size = f->vmm ? f->size : 0;
	struct cuda_id *found = NULL;
	struct list *head, *e;

	(void)pthread_mutex_lock(&ids.lock);
	if (!ids.ready) {
		for (unsigned i = 0; i < ID_BUCKETS; i++)
			list_init(&ids.bucket[i]);
		ids.ready = true;
	}
	head = &ids.bucket[(f->driver_id ^ key_base >> 21) % ID_BUCKETS];
	list_for_each (e, head) {
		struct cuda_id *id = list_entry(e, struct cuda_id, link);

		/* If the driver gives no number, every wrap counts as another allocation. */
		if (f->driver_id && id->driver_id == f->driver_id && id->key_base == key_base &&
		    id->key_size == key_size) {
			found = id;
			break;
		}
	}
	*ret_new = !found;
	if (!found)
		found = calloc(1, sizeof(*found));
	if (found && *ret_new) {
		found->driver_id = f->driver_id;
		found->key_base = key_base;
		found->key_size = key_size;
		found->base = f->base;
		found->size = f->size;
		found->id = mem_buffer_id();
		list_add_tail(head, &found->link);
	}
	if (found)
		found->refs++;
	(void)pthread_mutex_unlock(&ids.lock);
	if (!found)
		(void)err_set(ENOMEM, "no memory to describe an allocation");
	return found;
}

/* ------------------------------------------------------------- life cycle */

int cuda_alloc_new(struct cuda_dev *d, enum cuda_how how, struct cuda_alloc **ret)
{
	struct cuda_alloc *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return err_set(ENOMEM, "no memory to describe an allocation");
	r = cuda_hold(d, &c->ctx, &c->a.life);
	if (r < 0) {
		free(c);
		return r;
	}
	c->d = d;
	c->how = how;
	c->a.ops = &mem_cuda_ops;
	c->a.device = d->idx;
	c->a.rights = RIGHTS_ALL;
	c->a.owned = how != CUDA_WRAPPED;
	c->chunks = 1;
	c->fd = -1;
	*ret = c;
	return 0;
}

static bool is_same_alloc(const struct cuda_alloc *c)
{
	unsigned long long id = 0;

	return cu.cuPointerGetAttribute(&id, CU_PTR_BUFFER_ID, c->a.base.va) == CU_OK &&
	       id == c->first_id;
}

/* Return true if another allocation has the address of this one, because of a reset that was not
 * noticed: drivers before CUDA 12.0 do not number contexts. */
static bool is_replaced(const struct cuda_alloc *c)
{
	unsigned long long id = 0;

	return c->how == CUDA_OWNED && c->first_id &&
	       cu.cuPointerGetAttribute(&id, CU_PTR_BUFFER_ID, c->a.base.va) == CU_OK &&
	       id != c->first_id;
}

static void give_back(struct cuda_alloc *c)
{
	bool lives = cuda_lives(c->d, c->a.life);
	CUDA_SCOPE(scope);
	cu_ptr base = c->a.base.va;

	if (lives)
		cuda_enter_anyway(&scope, c->ctx);
	/* After a reset the memory is gone, and another allocation may have its address.  A mapping
	 * may still exist. */
	else if (c->how == CUDA_OWNED || (c->how == CUDA_MAPPED && !is_same_alloc(c)))
		return;
	if (is_replaced(c))
		return;
	switch (c->how) {
	case CUDA_IPC:
		cuda_ipc_close(c, lives);
		break;
	case CUDA_MAPPED:
		cuda_ignore(c->d, cu.cuMemUnmap(base, c->map_len), "unmap imported memory");
		cuda_ignore(c->d, cu.cuMemAddressFree(base, c->map_len), "free addresses");
		break;
	default:
		cuda_ignore(c->d, cu.cuMemFree_v2(base), "free memory");
	}
}

static void alloc_end(struct cuda_alloc *c)
{
	closep(&c->fd);
	id_put(c->id);
	cuda_drop(c->d);
	free(c);
}

static void give_back_late(struct mem_late *l)
{
	struct cuda_alloc *c = container_of(l, struct cuda_alloc, late);

	give_back(c);
	alloc_end(c);
}

void cuda_alloc_free(struct cuda_alloc *c)
{
	if (c->how == CUDA_WRAPPED || (!c->a.base.va && !c->map_len)) {
		alloc_end(c);
		return;
	}
	c->late.run = give_back_late;
	cuda_late(&c->late);
}

void cuda_alloc_freep(struct cuda_alloc **c)
{
	if (*c)
		cuda_alloc_free(*c);
}

void cuda_free(struct mem_alloc *a)
{
	cuda_alloc_free(cuda_alloc_of(a));
}

/* For a range of several chunks, only the first chunk is checked. */
int cuda_alive(const struct cuda_alloc *c)
{
	int r = cuda_check_life(c->d, c->a.life);

	if (r < 0)
		return r;
	if (!c->first_id || unlikely(atomic_load(&c->d->lost)) || is_same_alloc(c))
		return 0;
	if (!cuda_lives(c->d, c->a.life))
		return cuda_check_life(c->d, c->a.life);
	return err_set(EFAULT,
		       "the memory at %#" PRIx64 " on %s was freed by its owner; free its pst_mem "
		       "first",
		       c->a.base.va, c->d->info.name);
}

int cuda_enter_of(struct cuda_scope *s, struct cuda_alloc *c)
{
	cu_ctx ctx = c->ctx;
	int r = cuda_alive(c);

	if (r < 0)
		return r;
	/* The program may have destroyed the context and created another since the wrap. */
	if (c->foreign && cu.cuPointerGetAttribute(&ctx, CU_PTR_CONTEXT, c->a.base.va) != CU_OK)
		return err_set(EFAULT, "the memory's context on %s is gone", c->d->info.name);
	return cuda_enter(s, c->d, ctx);
}

int cuda_within(const struct mem_alloc *a, int (*fn)(void *arg), void *arg)
{
	CUDA_SCOPE(scope);
	int r = cuda_enter_of(&scope, cuda_alloc_of(a));

	return r < 0 ? r : fn(arg);
}

/*
 * Make the program's synchronous copies and fills of this memory wait until they are done.
 * Otherwise they may return while queued on a stream for which the library's streams do not wait.
 */
static void sync_memops(cu_ptr base)
{
	unsigned on = 1;

	(void)cu.cuPointerSetAttribute(&on, CU_PTR_SYNC_MEMOPS, base);
}

/*
 * Wait, up to CUDA_LET_NS, while other threads start copies.  The driver has one unfair lock for
 * both: threads that allocate in a loop would delay copies by milliseconds, and leave the device
 * idle.
 */
static void let_copies_start(const struct cuda_dev *d)
{
	uint64_t begun = now_ns();

	while (atomic_load(&d->nr_starting) && now_ns() - begun < CUDA_LET_NS)
		(void)sched_yield();
}

/* ------------------------------------------------------------------- alloc */

int cuda_alloc(unsigned device, uint64_t len, uint32_t flags, struct mem_alloc **ret)
{
	_cleanup_(cuda_alloc_freep) struct cuda_alloc *c = NULL;
	struct facts f = { .size = len };
	unsigned long long driver_id = 0;
	struct cuda_dev *d = cuda_device(device);
	CUDA_SCOPE(scope);
	struct cu_ipc ipc;
	bool is_new;
	cu_ptr va = 0;
	cu_result e;
	int r;

	r = cuda_alloc_new(d, CUDA_OWNED, &c);
	if (r < 0)
		return r;
	r = cuda_enter(&scope, d, c->ctx);
	if (r < 0)
		return r;
	let_copies_start(d);
	e = cu.cuMemAlloc_v2(&va, len);
	if (e == CU_OUT_OF_MEMORY)
		return err_set(ENOMEM,
			       "%s has no %" PRIu64 " bytes free, for this program at least",
			       d->info.name, len);
	if (e != CU_OK)
		return cuda_err(d, e, "allocate %" PRIu64 " bytes", len);
	c->a.base.va = va;
	c->a.size = len;
	c->a.flags = flags;

	e = cu.cuPointerGetAttribute(&driver_id, CU_PTR_BUFFER_ID, va);
	if (e != CU_OK)
		return cuda_err(d, e, "number an allocation");
	if (flags & PST_MEM_SHARED) {
		e = cu.cuIpcGetMemHandle(&ipc, va);
		explicit_bzero(&ipc, sizeof(ipc));
		if (e != CU_OK)
			return cuda_err(d, e, "share memory with other processes");
	}
	f.base = va;
	f.driver_id = driver_id;
	c->id = id_get(&f, &is_new);
	if (!c->id)
		return -ENOMEM;
	sync_memops(va);
	c->first_id = driver_id;
	c->a.buffer_id = c->id->id;
	*ret = &TAKE_PTR(c)->a;
	return 0;
}

/* --------------------------------------------------------------------- map */

int cuda_map(struct cuda_alloc *c, cu_handle handle, uint64_t len, uint32_t rights)
{
	struct cuda_dev *d = c->d;
	struct cu_access access = {
		.location = { .type = CU_LOC_DEVICE, .id = (int)d->idx },
		.flags = rights & PST_RIGHT_WRITE ? CU_PROT_READ_WRITE : CU_PROT_READ,
	};
	unsigned long long id = 0;
	cu_ptr va = 0;
	cu_result e;

	e = cu.cuMemAddressReserve(&va, len, 0, 0, 0);
	if (e != CU_OK)
		return cuda_err(d, e, "reserve addresses for %" PRIu64 " bytes", len);
	e = cu.cuMemMap(va, len, 0, handle, 0);
	if (e != CU_OK) {
		cuda_ignore(d, cu.cuMemAddressFree(va, len), "free addresses");
		return cuda_err(d, e, "map %" PRIu64 " bytes", len);
	}
	c->a.base.va = va;
	c->map_len = len;
	e = cu.cuMemSetAccess(va, len, &access, 1);
	if (e != CU_OK)
		return cuda_err(d, e, "get access to mapped memory");
	if (cu.cuPointerGetAttribute(&id, CU_PTR_BUFFER_ID, va) == CU_OK)
		c->first_id = id;
	return 0;
}

/* -------------------------------------------------------------------- wrap */

/*
 * Get an attribute that an address may lack.  A missing attribute is no error of this call;
 * otherwise compute-sanitizer would report it.  *ret is unchanged if the driver does not know the
 * attribute.
 */
static void ask_pointer(uint64_t addr, uint32_t attr, void *ret)
{
	(void)cu.cuPointerGetAttributes(1, &attr, &ret, addr);
}

static bool is_device_memory(uint64_t addr)
{
	unsigned type = 0;

	ask_pointer(addr, CU_PTR_MEMORY_TYPE, &type);
	return type == CU_TYPE_DEVICE;
}

/* Needs no context: the driver looks the address up in its own tables.  If nothing in this process
 * uses CUDA, the driver returns "not initialized". */
bool cuda_owns(uint64_t addr, uint64_t len)
{
	return is_device_memory(addr) || (len > 1 && is_device_memory(addr + len - 1));
}

static int device_of(uint64_t addr, unsigned *ret)
{
	int idx = -1;

	if (cu.cuPointerGetAttribute(&idx, CU_PTR_DEVICE_ORDINAL, addr) != CU_OK || idx < 0 ||
	    (unsigned)idx >= cuda_nr_devices())
		return err_set(EFAULT, "the NVIDIA driver names no device for %#" PRIx64, addr);
	*ret = (unsigned)idx;
	return 0;
}

static int facts_of(uint64_t addr, uint64_t len, struct facts *ret)
{
	unsigned managed = 0;
	int r;

	*ret = (struct facts){ 0 };
	if (!is_device_memory(addr))
		return is_device_memory(addr + len - 1)
			       ? err_set(ERANGE,
					 "%" PRIu64 " bytes at %#" PRIx64 " begin before the "
					 "allocation that they end in",
					 len, addr)
			       : err_set(EFAULT, "no CUDA device has memory at %#" PRIx64, addr);
	ask_pointer(addr, CU_PTR_IS_MANAGED, &managed);
	if (managed)
		return err_set(EOPNOTSUPP,
			       "managed memory (at %#" PRIx64 ") moves between host and device by "
			       "itself; use memory of cudaMalloc or host memory",
			       addr);
	r = device_of(addr, &ret->device);
	if (r < 0)
		return r;
	ask_pointer(addr, CU_PTR_CONTEXT, &ret->ctx);
	return 0;
}

/* Find the allocation, or the mapped chunk, that holds an address.  A context must be current. */
static int chunk_at(struct cuda_dev *d, uint64_t addr, struct facts *f)
{
	unsigned long long id = 0;
	size_t size = 0;
	cu_ptr base = 0;
	cu_result e = cu.cuMemGetAddressRange_v2(&base, &size, addr);

	if (e != CU_OK)
		return cuda_err(d, e, "find the allocation at %#" PRIx64, addr);
	if (addr < base || addr - base >= size)
		return err_set(EFAULT, "the NVIDIA driver gives a wrong range for %#" PRIx64, addr);
	f->base = base;
	f->size = size;
	e = cu.cuPointerGetAttribute(&id, CU_PTR_BUFFER_ID, addr);
	f->driver_id = e == CU_OK ? id : 0;
	return 0;
}

/* Remove PST_RIGHT_WRITE from *rights if the device may not write a chunk of mapped memory.  Fail
 * if it may not read the chunk. */
static int chunk_rights(struct cuda_dev *d, uint64_t addr, uint32_t *rights)
{
	struct cu_location loc = { .type = CU_LOC_DEVICE, .id = (int)d->idx };
	unsigned long long prot = 0;
	cu_result e = cu.cuMemGetAccess(&prot, &loc, addr);

	if (e != CU_OK)
		return cuda_err(d, e, "tell the access rights at %#" PRIx64, addr);
	if (!(prot & CU_PROT_READ))
		return err_set(EACCES,
			       "the memory at %#" PRIx64 " is mapped without access; "
			       "cuMemSetAccess gives it",
			       addr);
	if (prot != CU_PROT_READ_WRITE)
		*rights &= ~PST_RIGHT_WRITE;
	return 0;
}

static uint64_t mix_id(uint64_t h, uint64_t x)
{
	h = (h ^ x) * UINT64_C(0x9e3779b97f4a7c15);
	return h ^ h >> 29;
}

/*
 * Extend the range by the chunks that follow the first one, up to the end of addr..addr+len.
 * Different lists of chunks get different mixed numbers, except with a chance of 2^-64; their
 * ranges differ as well.
 */
static int wrap_chunks(struct cuda_alloc *c, struct facts *f, uint64_t addr, uint64_t len)
{
	uint64_t end = addr + len, ids_mixed = f->driver_id;
	bool numbered = f->driver_id;
	struct facts next;
	unsigned device = 0;
	int r;

	r = chunk_rights(c->d, f->base, &c->a.rights);
	while (r == 0 && f->base + f->size < end) {
		uint64_t at = f->base + f->size;

		if (c->chunks == CHUNKS_MAX)
			return err_set(E2BIG, "the range spans more than %u mapped chunks",
				       CHUNKS_MAX);
		if (!is_device_memory(at))
			return err_set(ERANGE,
				       "%" PRIu64 " bytes at %#" PRIx64 " reach past what is "
				       "mapped, which ends at %#" PRIx64,
				       len, addr, at);
		r = device_of(at, &device);
		if (r == 0 && device != c->d->idx)
			r = err_set(EFAULT, "the range lies on cuda:%u and on cuda:%u", c->d->idx,
				    device);
		if (r == 0)
			r = chunk_at(c->d, at, &next);
		if (r == 0 && next.base != at)
			r = err_set(EFAULT, "the memory at %#" PRIx64 " belongs to another range",
				    at);
		if (r == 0)
			r = chunk_rights(c->d, at, &c->a.rights);
		if (r < 0)
			return r;
		numbered = numbered && next.driver_id;
		ids_mixed = mix_id(ids_mixed, next.driver_id);
		f->size += next.size;
		c->chunks++;
	}
	f->driver_id = numbered ? ids_mixed : 0;
	return r;
}

/*
 * Return true for memory of cuMemCreate.  cuMemRetainAllocationHandle() tells this, but fails for
 * plain and pooled memory, so it is not called for these.
 */
static bool is_mapped(struct cuda_dev *d, uint64_t addr, bool ipc_capable)
{
	cu_handle handle;
	void *pool = NULL;

	if (ipc_capable)
		return false;
	ask_pointer(addr, CU_PTR_POOL, &pool);
	if (pool)
		return false;
	if (cu.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)addr) != CU_OK)
		return false;
	cuda_ignore(d, cu.cuMemRelease(handle), "release a handle");
	return true;
}

int cuda_wrap(uint64_t addr, uint64_t len, uint32_t flags, struct mem_alloc **ret)
{
	_cleanup_(cuda_alloc_freep) struct cuda_alloc *c = NULL;
	CUDA_SCOPE(scope);
	struct facts f;
	unsigned capable = 0;
	bool is_new;
	int r;

	r = cuda_ready();
	if (r == 0)
		r = facts_of(addr, len, &f);
	if (r == 0)
		r = cuda_alloc_new(cuda_device(f.device), CUDA_WRAPPED, &c);
	if (r == 0)
		r = cuda_enter(&scope, c->d, f.ctx ? f.ctx : c->ctx);
	if (r == 0)
		r = chunk_at(c->d, addr, &f);
	if (r < 0)
		return r;
	c->foreign = f.ctx && f.ctx != c->ctx;
	c->first_id = f.driver_id;
	ask_pointer(addr, CU_PTR_IPC_CAPABLE, &capable);
	f.ipc_capable = capable;
	c->vmm = f.vmm = is_mapped(c->d, addr, f.ipc_capable);
	if (f.vmm)
		r = wrap_chunks(c, &f, addr, len);
	if (r < 0)
		return r;

	c->id = id_get(&f, &is_new);
	if (!c->id)
		return -ENOMEM;
	if (addr < c->id->base || addr + len > c->id->base + c->id->size)
		return err_set(ERANGE,
			       "%" PRIu64 " bytes at %#" PRIx64 " reach past the end of the "
			       "allocation, which has %" PRIu64 " bytes at %#" PRIx64,
			       len, addr, c->id->size, c->id->base);
	if (is_new && f.ipc_capable && !f.vmm)
		sync_memops(c->id->base);
	c->a.base.va = c->id->base;
	c->a.size = c->id->size;
	c->a.buffer_id = c->id->id;
	c->a.flags = flags;
	*ret = &TAKE_PTR(c)->a;
	return 0;
}
