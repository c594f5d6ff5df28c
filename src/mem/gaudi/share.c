/* SPDX-License-Identifier: MIT */
/*
 * Sharing Gaudi memory: dma-bufs, grants, and memory that the program allocated.
 *
 * A dma-buf contains the whole pages of the range and no more, because its holder reaches all of
 * it.  The driver takes the beginning of one of its mappings and an offset, both multiples of a
 * page, and only the flags O_RDWR | O_CLOEXEC.
 *
 * The ipc member of a grant begins with one 64-bit number.  With a dma-buf, it is the number of
 * bytes in the dma-buf before the allocation.  With the descriptor of a device, it is the device
 * address of a mapping of the driver that is size bytes long; a program passes memory that it
 * allocated itself in this form.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "mem/dmabuf.h"
#include "mem/gaudi/gaudi.h"

#define EXPORT_FLAGS ((uint32_t)(O_RDWR | O_CLOEXEC))

static uint64_t gaudi_host_page(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* ------------------------------------------------------------------ dma-bufs */

static int export_failed(struct gaudi_dev *d, int err, uint64_t va, uint64_t len)
{
	switch (err) {
	case EINVAL:
		return err_set(EINVAL,
			       "%s exports no %" PRIu64 " bytes at %#" PRIx64 ": they are not in "
			       "one mapping of its driver, or not in its PCI BAR; check the "
			       "address and size of memory that was passed by a descriptor, and "
			       "enable the large BAR in the firmware",
			       d->name, len, va);
	case EBUSY:
	case ENODEV:
		return err_set(ENODEV,
			       "%s was reset, and its memory is gone; free the memory of before "
			       "and allocate anew",
			       d->name);
	case EBADF:
		return err_set(EBADF, "the descriptor of %s is stale; pass one that is open",
			       d->name);
	case EMFILE:
		return err_set(EMFILE, "no free descriptor for a dma-buf; raise RLIMIT_NOFILE "
				       "(ulimit -n)");
	default:
		return err_set(err, "%s exports no dma-buf: %s; see the kernel's log", d->name,
			       err_name(err));
	}
}

/* Export whole pages at va, in the mapping that begins at map_base; under the lock. */
static int export_pages(struct gaudi_dev *d, int fd, uint64_t map_base, uint64_t va, uint64_t len)
{
	int r = hl.hlthunk_device_mapped_memory_export_dmabuf_fd(fd, map_base, len, va - map_base,
								 EXPORT_FLAGS);

	if (r >= 0)
		return r;
	if (r == -EBUSY || r == -ENODEV)
		gaudi_lost(d);
	return export_failed(d, -r, va, len);
}

static int can_export(const struct gaudi_dev *d)
{
	int r = hl_load();

	if (r < 0)
		return r;
	if (gaudi_is_old(d))
		return gaudi_too_old(d);
	if (!hl.hlthunk_device_mapped_memory_export_dmabuf_fd)
		return err_set(EOPNOTSUPP, "libhl-thunk is too old to export dma-bufs: it lacks "
					   "hlthunk_device_mapped_memory_export_dmabuf_fd; update "
					   "it and the kernel's driver");
	return 0;
}

/* Create a dma-buf of the whole pages that contain a range of a buffer. */
static int export_range(struct gaudi_buf *b, uint64_t va, uint64_t len, struct mem_dmabuf *ret)
{
	uint64_t start = align_down(va, gaudi_host_page()),
		 end = align_up(va + len, gaudi_host_page());
	uint64_t map_base = b->map_base;
	struct gaudi_dev *d = b->d;
	int fd = b->fd, r = can_export(d);

	if (r == 0)
		r = gaudi_check_life(d, b->life);
	if (r == 0 && b->how == GAUDI_SYNAPSE)
		r = gaudi_syn_where(b, va, &fd, &map_base);
	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&d->lock);
	if (b->how == GAUDI_OWN && gaudi_own_stale(d))
		gaudi_lost(d);
	r = gaudi_check_life(d, b->life);
	if (r == 0)
		r = export_pages(d, b->how == GAUDI_OWN ? d->fd : fd, map_base, start, end - start);
	(void)pthread_mutex_unlock(&d->lock);
	if (r < 0)
		return r;
	*ret = (struct mem_dmabuf){
		.fd = r, .off = va - start, .size = end - start, .caching = PST_CACHING_WC
	};
	return 0;
}

int gaudi_export_dmabuf(const struct mem_alloc *a, uint64_t off, uint64_t len,
			struct mem_dmabuf *ret)
{
	struct gaudi_buf *b = gaudi_buf_of(a);
	int fd;

	if (b->how != GAUDI_DMABUF)
		return export_range(b, a->base.va + off, len, ret);
	fd = dmabuf_again(b->fd);
	if (fd < 0)
		return fd;
	*ret = (struct mem_dmabuf){
		.fd = fd, .off = b->lead + off, .size = b->lead + b->size, .caching = PST_CACHING_WC
	};
	return 0;
}

/* ------------------------------------------------------------------ grants */

int gaudi_export(const struct mem_alloc *a, uint32_t rights, struct pst_grant *ret)
{
	struct mem_dmabuf d;
	int r = mem_export_dmabuf(a, 0, a->size, &d);

	(void)rights; /* a dma-buf has the access mode of its exporter's descriptor */
	if (r < 0)
		return r;
	ret->fd = d.fd;
	memcpy(ret->ipc, &d.off, sizeof(d.off));
	return 0;
}

/*
 * Import memory that the program allocated itself.  The grant has the device's descriptor and the
 * mapping's address.
 */
static int import_pool(const struct pst_grant *grant, struct gaudi_dev *d, int fd,
		       struct mem_alloc **ret)
{
	struct gaudi_buf *b;
	uint64_t base;

	memcpy(&base, grant->ipc, sizeof(base));
	if (!base || base % gaudi_host_page() || base + grant->size < base)
		return err_set(EINVAL,
			       "the mapping at %#" PRIx64 " of the grant is no device address in "
			       "whole pages; put the address of the pool, as "
			       "hlthunk_device_memory_map() or scal_pool_get_infoV2() gives it, "
			       "into the first 8 bytes of ipc",
			       base);
	b = gaudi_buf_new(GAUDI_POOL, d);
	if (!b)
		return -ENOMEM;
	b->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (b->fd < 0) {
		free(b);
		return err_set(errno, "no free descriptor: %s; raise RLIMIT_NOFILE (ulimit -n)",
			       err_name(errno));
	}
	b->va = b->map_base = base;
	b->size = grant->size;
	gaudi_buf_publish(b);
	return gaudi_alloc_new(b, b->va, b->size, 0, grant->rights, true, ret);
}

static int import_dmabuf(const struct pst_grant *grant, struct gaudi_dev *d, struct mem_alloc **ret)
{
	_cleanup_(closep) int fd = dmabuf_again(grant->fd);
	struct gaudi_buf *b;
	uint64_t lead, end;
	int r;

	if (fd < 0)
		return fd;
	memcpy(&lead, grant->ipc, sizeof(lead));
	if (lead >= gaudi_host_page() || __builtin_add_overflow(grant->size, lead, &end))
		return err_set(EINVAL,
			       "the grant says that its memory begins %" PRIu64
			       " bytes into the dma-buf, which is not in its first page",
			       lead);
	r = dmabuf_check_fd(fd, grant->fd, end, grant->rights);
	if (r < 0)
		return r;
	b = gaudi_buf_new(GAUDI_DMABUF, d);
	if (!b)
		return -ENOMEM;
	b->fd = TAKE_FD(fd);
	b->lead = lead;
	b->size = grant->size;
	return gaudi_alloc_new(b, 0, b->size, PST_MEM_SHARED, grant->rights, true, ret);
}

int gaudi_import(const struct pst_grant *grant, struct mem_alloc **ret)
{
	struct gaudi_dev *d = gaudi_by_fd(grant->fd);

	if (d)
		return import_pool(grant, d, grant->fd, ret);
	d = gaudi_by_uuid(grant->uuid);
	if (!d)
		return err_set(ENODEV, "the grant is for a Gaudi device that is not here; mount "
				       "the /sys of its owner into this container");
	return import_dmabuf(grant, d, ret);
}

/* ------------------------------------------------------------------ wraps */

int gaudi_wrap(uint64_t addr, uint64_t len, uint32_t flags, struct mem_alloc **ret)
{
	struct gaudi_buf *b = gaudi_buf_at(addr, len);
	int r;

	if (!b) {
		r = gaudi_syn_wrap(addr, len, &b);
		return r < 0 ? r
			     : gaudi_alloc_new(b, addr, len, flags,
					       PST_RIGHT_READ | PST_RIGHT_WRITE, false, ret);
	}
	if (addr >= b->va && len <= b->size && addr - b->va <= b->size - len)
		return gaudi_alloc_new(b, b->va, b->size, flags, PST_RIGHT_READ | PST_RIGHT_WRITE,
				       false, ret);
	r = err_set(ERANGE,
		    "%" PRIu64 " bytes at %#" PRIx64 " reach past the allocation, which has "
		    "%" PRIu64 " bytes at %#" PRIx64,
		    len, addr, b->size, b->va);
	gaudi_buf_unref(b);
	return r;
}
