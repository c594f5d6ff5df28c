/* SPDX-License-Identifier: MIT */
/*
 * Sharing memory with other processes.
 *
 * Memory of cuMemAlloc has a handle of 64 bytes.  Any process that knows the handle can open the
 * whole allocation for reading and writing.  The driver opens a handle only once in a process, so
 * open handles are counted here.  Memory of cuMemCreate has descriptors, if it was created for
 * them; an import by descriptor can be mapped read-only.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/log.h"
#include "mem/cuda/cuda.h"

struct cuda_ipc_map {
	struct list link;
	unsigned refs;
	struct cuda_dev *d;
	uint64_t life; /* life of the device's context */
	struct cu_ipc handle;
	cu_ptr base;   /* 0 until ipc_open() */
	uint64_t size; /* 0 until ipc_check() */
	bool moving;   /* the driver is opening, checking or closing the map: others must wait */
};

static struct {
	pthread_mutex_t lock; /* not held during calls of the driver */
	pthread_cond_t moved;
	struct list list;
} opened = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, LIST_INIT(opened.list) };

/* ------------------------------------------------------------------ export */

int cuda_export_ipc(struct cuda_alloc *c, uint8_t ret_ipc[64])
{
	struct cu_ipc ipc;
	cu_result e;

	/* The driver creates no handle for memory that was imported by a handle, so return that
	 * handle. */
	if (c->how == CUDA_IPC) {
		memcpy(ret_ipc, c->ipc->handle.reserved, sizeof(ipc.reserved));
		return 0;
	}
	e = cu.cuIpcGetMemHandle(&ipc, c->a.base.va);
	if (e == CU_INVALID_VALUE || e == CU_NOT_SUPPORTED)
		return err_set(EOPNOTSUPP,
			       "%s cannot share this memory with other processes; memory of "
			       "cudaMalloc can be shared, that of a pool (cudaMallocAsync) not",
			       c->d->info.name);
	if (e != CU_OK)
		return cuda_err(c->d, e, "share memory with other processes");
	memcpy(ret_ipc, ipc.reserved, sizeof(ipc.reserved));
	explicit_bzero(&ipc, sizeof(ipc));
	return 0;
}

int cuda_export_fd(struct cuda_alloc *c, uint64_t va, int *ret_fd)
{
	struct cu_prop prop = { 0 };
	cu_handle handle;
	cu_result e;
	int fd = -1;

	if (c->fd >= 0) {
		*ret_fd = fcntl(c->fd, F_DUPFD_CLOEXEC, 0);
		return *ret_fd >= 0 ? 0
				    : err_set(errno, "no free descriptor for the memory: %s",
					      err_name(errno));
	}
	e = cu.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)va);
	if (e != CU_OK)
		return cuda_err(c->d, e, "find the handle of mapped memory");
	e = cu.cuMemGetAllocationPropertiesFromHandle(&prop, handle);
	if (e == CU_OK && prop.handle_types & CU_HANDLE_POSIX_FD)
		e = cu.cuMemExportToShareableHandle(&fd, handle, CU_HANDLE_POSIX_FD, 0);
	cuda_ignore(c->d, cu.cuMemRelease(handle), "release a handle");
	if (e != CU_OK)
		return cuda_err(c->d, e, "share mapped memory by a descriptor");
	if (fd < 0)
		return err_set(EOPNOTSUPP,
			       "the memory was not made to be shared: cuMemCreate takes "
			       "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR for that; in PyTorch turn "
			       "expandable_segments off");
	(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	*ret_fd = fd;
	return 0;
}

int cuda_export(const struct mem_alloc *a, uint32_t rights, struct pst_grant *ret)
{
	struct cuda_alloc *c = cuda_alloc_of(a);
	CUDA_SCOPE(scope);
	int r;

	(void)rights; /* the importer respects the rights; the driver cannot enforce them */
	r = cuda_enter_of(&scope, c);
	if (r < 0)
		return r;
	if (!c->vmm)
		return cuda_export_ipc(c, ret->ipc);
	if (c->chunks > 1)
		return err_set(EOPNOTSUPP,
			       "the range spans %u mapped chunks, and each is shared by itself; "
			       "wrap a range inside one",
			       c->chunks);
	return cuda_export_fd(c, a->base.va, &ret->fd);
}

/*
 * Export a range as a dma-buf.  The driver requires whole pages of the host, so the dma-buf also
 * contains other bytes of the first and the last page.  Code that registers it for a peer must
 * register only the range.
 */
int cuda_export_dmabuf(const struct mem_alloc *a, uint64_t off, uint64_t len,
		       struct mem_dmabuf *ret)
{
	struct cuda_alloc *c = cuda_alloc_of(a);
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t start = align_down(a->base.va + off, page);
	uint64_t end = align_up(a->base.va + off + len, page);
	CUDA_SCOPE(scope);
	cu_result e;
	int fd = -1, r;

	if (!cu.cuMemGetHandleForAddressRange)
		return err_set(EOPNOTSUPP, "this NVIDIA driver makes no dma-bufs; CUDA 11.7 does");
	r = cuda_alive(c);
	if (r == 0)
		r = cuda_enter(&scope, c->d, c->ctx);
	if (r < 0)
		return r;
	e = cu.cuMemGetHandleForAddressRange(&fd, start, end - start, CU_RANGE_DMA_BUF, 0);
	if (e != CU_OK)
		return cuda_err(c->d, e, "make a dma-buf of %" PRIu64 " bytes", end - start);
	(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	ret->fd = fd;
	ret->off = a->base.va + off - start;
	ret->size = end - start;
	ret->caching = PST_CACHING_WC;
	return 0;
}

/* ------------------------------------------------------------------ import */

static struct cuda_dev *device_by_uuid(const uint8_t uuid[16])
{
	for (unsigned i = 0; i < cuda_nr_devices(); i++)
		if (!memcmp(cuda_device(i)->info.uuid, uuid, 16))
			return cuda_device(i);
	return NULL;
}

/* Open the handle.  The map is moving, and a context is current. */
static int ipc_open(struct cuda_ipc_map *m)
{
	cu_result e = cu.cuIpcOpenMemHandle_v2(&m->base, m->handle, CU_IPC_LAZY_PEER);

	if (e == CU_OK)
		return 0;
	m->base = 0;
	if (e == CU_INVALID_CONTEXT)
		return err_set(EINVAL, "the grant is this process' own; the NVIDIA driver "
				       "opens only those of other processes");
	if (e == CU_INVALID_VALUE || e == CU_INVALID_HANDLE || e == CU_MAP_FAILED)
		return err_set(EINVAL,
			       "%s cannot open the grant (%s): memory or process are gone, "
			       "or containers keep the two processes apart",
			       m->d->info.name, cuda_err_name(e));
	return cuda_err(m->d, e, "open the memory of another process");
}

/* Close the handle.  The map is moving, and a context is current. */
static void ipc_close(struct cuda_ipc_map *m)
{
	cuda_ignore(m->d, cu.cuIpcCloseMemHandle(m->base), "close imported memory");
	m->base = 0;
}

/* Wake threads that wait for the map, after a call of the driver.  Free the map if it is closed.
 * Under the lock. */
static void ipc_moved(struct cuda_ipc_map *m)
{
	m->moving = false;
	if (!m->base) {
		list_del(&m->link);
		explicit_bzero(m, sizeof(*m));
		free(m);
	}
	(void)pthread_cond_broadcast(&opened.moved);
}

/* Return the map of a handle, or NULL; under the lock. */
static struct cuda_ipc_map *ipc_find(const struct cu_ipc *handle)
{
	struct list *e;

	list_for_each (e, &opened.list) {
		struct cuda_ipc_map *m = list_entry(e, struct cuda_ipc_map, link);

		if (!memcmp(&m->handle, handle, sizeof(*handle)) &&
		    m->life == atomic_load(&m->d->life))
			return m;
	}
	return NULL;
}

/* Set the error for a handle that was opened for another device; under the lock. */
static int ipc_other(const struct cuda_ipc_map *m, const struct cuda_dev *d)
{
	if (m->size)
		return err_set(EINVAL, "the grant says %s, its handle is for other memory",
			       d->info.name);
	return err_set(EBUSY,
		       "a grant with the same handle was refused, and the handle stays open while "
		       "a stream waits for a read; try again then");
}

/* Check that the handle opened memory of this device, and set the size.  The map is moving, and a
 * context is current. */
static int ipc_check(struct cuda_ipc_map *m)
{
	size_t size = 0;
	cu_ptr base = 0;
	cu_result e;
	int idx = -1;

	e = cu.cuMemGetAddressRange_v2(&base, &size, m->base);
	if (e != CU_OK)
		return cuda_err(m->d, e, "tell the size of imported memory");
	if (m->base < base || m->base - base > size)
		return err_set(EINVAL, "the grant opens a range that is none");
	/* The handle may open memory of another device that this device can access. */
	if (cu.cuPointerGetAttribute(&idx, CU_PTR_DEVICE_ORDINAL, m->base) != CU_OK ||
	    idx != (int)m->d->idx)
		return err_set(EINVAL, "the grant says %s, its handle is for other memory",
			       m->d->info.name);
	/* Size from the address that was opened to the end of the allocation, bytes. */
	m->size = size - (m->base - base);
	return 0;
}

/* Find or create the map of a handle; under the lock.  Return 1 if the map is open and checked; 0
 * if the caller must open and check the map, which is then moving; -errno. */
static int ipc_get(struct cuda_dev *d, uint64_t life, const struct cu_ipc *handle,
		   struct cuda_ipc_map **ret)
{
	struct cuda_ipc_map *m;

	while ((m = ipc_find(handle)) && m->moving)
		(void)pthread_cond_wait(&opened.moved, &opened.lock);
	if (m && m->d != d)
		return ipc_other(m, d);
	if (!m) {
		m = calloc(1, sizeof(*m));
		if (!m)
			return err_set(ENOMEM, "no memory to describe an import");
		m->d = d;
		m->life = life;
		m->handle = *handle;
		list_add_tail(&opened.list, &m->link);
	}
	*ret = m;
	m->moving = !m->size;
	return m->size > 0;
}

/* Open the map if it is not open, and check it.  The caller has set m->moving, so other threads
 * wait.  If the check fails, close the map, unless it has references or a stream waits for a
 * read. */
static int ipc_settle(struct cuda_ipc_map *m)
{
	int r = m->base ? 0 : ipc_open(m);

	if (r == 0)
		r = ipc_check(m);
	if (r < 0 && m->base && !m->refs && cuda_now_begin()) {
		ipc_close(m);
		cuda_now_end();
	}
	return r;
}

static int import_ipc(struct cuda_alloc *c, const struct pst_grant *g)
{
	struct cuda_ipc_map *m = NULL;
	struct cu_ipc handle;
	uint64_t size = 0;
	int r;

	memcpy(handle.reserved, g->ipc, sizeof(handle.reserved));
	(void)pthread_mutex_lock(&opened.lock);
	r = ipc_get(c->d, c->a.life, &handle, &m);
	if (r == 0) {
		(void)pthread_mutex_unlock(&opened.lock);
		r = ipc_settle(m);
		(void)pthread_mutex_lock(&opened.lock);
	}
	if (m && m->base) {
		m->refs++;
		c->ipc = m;
		c->a.base.va = m->base;
		size = m->size;
	}
	if (m && m->moving)
		ipc_moved(m);
	(void)pthread_mutex_unlock(&opened.lock);
	explicit_bzero(&handle, sizeof(handle));
	if (r >= 0 && size < g->size)
		return err_set(EINVAL,
			       "the grant says %" PRIu64 " bytes, its handle opens %" PRIu64,
			       g->size, size);
	return MIN(r, 0);
}

void cuda_ipc_close(struct cuda_alloc *c, bool lives)
{
	struct cuda_ipc_map *m = c->ipc;

	(void)pthread_mutex_lock(&opened.lock);
	while (m->moving) /* another import is checking the map */
		(void)pthread_cond_wait(&opened.moved, &opened.lock);
	m->moving = !--m->refs;
	if (m->moving) {
		(void)pthread_mutex_unlock(&opened.lock);
		if (lives)
			ipc_close(m);
		m->base = 0;
		(void)pthread_mutex_lock(&opened.lock);
		ipc_moved(m);
	}
	(void)pthread_mutex_unlock(&opened.lock);
}

/* Map the memory of a handle at new addresses. */
static int map_handle(struct cuda_alloc *c, cu_handle handle, const struct pst_grant *g)
{
	struct cu_prop prop = { 0 };
	cu_result e;
	int r;

	e = cu.cuMemGetAllocationPropertiesFromHandle(&prop, handle);
	if (e != CU_OK)
		return cuda_err(c->d, e, "look at imported memory");
	if (prop.location.type != CU_LOC_DEVICE || prop.location.id != (int)c->d->idx)
		return err_set(EINVAL, "the grant says %s, its descriptor is for other memory",
			       c->d->info.name);
	r = cuda_map(c, handle, g->size, g->rights);
	/* The grant names more bytes than the memory has, or no multiple of the driver's page
	 * size. */
	if (r == -EINVAL)
		return err_set(EINVAL,
			       "the grant says %" PRIu64 " bytes, which its descriptor has not",
			       g->size);
	return r;
}

static int import_fd(struct cuda_alloc *c, const struct pst_grant *g)
{
	cu_handle handle;
	cu_result e;
	int r;

	e = cu.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)g->fd, CU_HANDLE_POSIX_FD);
	if (e != CU_OK)
		return err_set(EINVAL, "the grant's descriptor is none of CUDA memory: %s",
			       cuda_err_name(e));
	r = map_handle(c, handle, g);
	/* The mapping keeps the memory alive. */
	cuda_ignore(c->d, cu.cuMemRelease(handle), "release a handle");
	c->vmm = true;
	/* Keep a duplicate: the driver creates no descriptor for imported memory. */
	c->fd = fcntl(g->fd, F_DUPFD_CLOEXEC, 0);
	if (r == 0 && c->fd < 0)
		r = err_set(errno, "no free descriptor for an import: %s", err_name(errno));
	return r;
}

int cuda_import(const struct pst_grant *grant, struct mem_alloc **ret)
{
	_cleanup_(cuda_alloc_freep) struct cuda_alloc *c = NULL;
	static const uint8_t none[64];
	CUDA_SCOPE(scope);
	struct cuda_dev *d;
	bool by_fd = grant->fd >= 0;
	int r = cuda_ready();

	if (r < 0)
		return r;
	d = device_by_uuid(grant->uuid);
	if (!d)
		return err_set(ENODEV,
			       "the grant's CUDA device is not visible to this process; see "
			       "CUDA_VISIBLE_DEVICES");
	if (!by_fd && !memcmp(grant->ipc, none, sizeof(none)))
		return err_set(EINVAL, "the grant has neither a descriptor nor a handle");
	r = cuda_alloc_new(d, by_fd ? CUDA_MAPPED : CUDA_IPC, &c);
	if (r == 0)
		r = cuda_enter(&scope, d, c->ctx);
	if (r == 0)
		r = by_fd ? import_fd(c, grant) : import_ipc(c, grant);
	if (r < 0)
		return r;
	/* Imports of one grant get different ids, because they may have different rights. */
	c->a.buffer_id = mem_buffer_id();
	c->a.size = grant->size;
	c->a.rights = grant->rights;
	c->a.flags = PST_MEM_SHARED;
	*ret = &TAKE_PTR(c)->a;
	return 0;
}
