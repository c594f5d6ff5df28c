/* SPDX-License-Identifier: MIT */
/*
 * The software device: an accelerator without silicon.
 *
 * It behaves as a real one does where that matters to the layers above.  The address that
 * users hold lies in a range mapped PROT_NONE, so that a CPU which follows it crashes
 * at once instead of working here and failing on hardware.  The bytes are in a sealed
 * memfd with a second mapping that only this file and soft_stream.c know, where copies are
 * made.
 *
 * Allocations stand in one array sorted by address, because every wrap asks whose an
 * address is.  What an allocation consists of is counted (struct region), so that a wrap
 * of memory that its owner has freed copies to a mapping nobody sees and not to one
 * that is gone.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"
#include "base/log.h"
#include "mem/mem.h"
#include "mem/memfd.h"
#include "mem/soft.h"
#include "mem/udmabuf.h"

/* What one allocation consists of. */
struct region {
	_Atomic unsigned refs;
	unsigned device;
	uint64_t va;      /* of the PROT_NONE range */
	uint64_t size;    /* as asked for */
	uint64_t map_len; /* in whole pages */
	char *hidden;     /* the bytes: for the device's thread */
	int fd;
	uint32_t rights;
	uint64_t buffer_id;
};

struct soft_alloc {
	struct mem_alloc a;
	struct region *region;
};

static uint8_t uuids[SOFT_DEVICES_MAX][16];
static unsigned nr_devices;

static pthread_rwlock_t regions_lock = PTHREAD_RWLOCK_INITIALIZER;
static struct region **regions; /* sorted by va, disjoint */
static size_t nr_regions, room_regions;

/* ----------------------------------------------------------------- devices */

static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	x ^= x >> 27;
	x *= UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

/*
 * The same in every process of this boot of the machine, and in its containers: a grant
 * names its device by it.  Without /proc the boot is left out, which does no harm, since
 * grants do not leave the machine.
 */
static void make_uuid(unsigned idx, uint8_t ret[16])
{
	_cleanup_(closep) int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	uint64_t h[2] = { UINT64_C(0x736f667464657630), idx };
	char boot[64];
	ssize_t n = fd >= 0 ? read(fd, boot, sizeof(boot)) : 0;

	for (ssize_t i = 0; i < n; i++) {
		h[0] = mix(h[0] ^ (unsigned char)boot[i]);
		h[1] = mix(h[1] + h[0]);
	}
	h[0] = mix(h[0] + h[1]);
	h[1] = mix(h[1] ^ h[0]);
	memcpy(ret, h, 16);
	ret[6] = (uint8_t)((ret[6] & 0x0f) | 0x80); /* RFC 9562: version 8, made our own way */
	ret[8] = (uint8_t)((ret[8] & 0x3f) | 0x80);
}

static int soft_load(void)
{
	const char *env = secure_getenv("PST_SOFT_DEVICES");

	nr_devices = 1;
	if (env && *env) {
		if (env[0] >= '1' && env[0] <= '0' + SOFT_DEVICES_MAX && !env[1])
			nr_devices = (unsigned)(env[0] - '0');
		else
			log_warn("PST_SOFT_DEVICES is not 1 to %d, ignoring", SOFT_DEVICES_MAX);
	}
	for (unsigned i = 0; i < nr_devices; i++)
		make_uuid(i, uuids[i]);
	soft_streams_init();
	return 0;
}

static unsigned soft_devices(void)
{
	return nr_devices;
}

static void soft_device_info(unsigned idx, struct pst_device *ret)
{
	ret->kind = PST_KIND_SOFT;
	ret->numa_node = -1;
	ret->total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	memcpy(ret->uuid, uuids[idx], sizeof(ret->uuid));
	(void)snprintf(ret->name, sizeof(ret->name), "soft:%u", idx);
	(void)snprintf(ret->model, sizeof(ret->model), "software device in host memory");
}

/* ------------------------------------------------------------- allocations */

static struct region *region_unref(struct region *g)
{
	if (!g || atomic_fetch_sub(&g->refs, 1) > 1)
		return NULL;
	if (g->hidden)
		(void)munmap(g->hidden, g->map_len);
	if (g->va)
		(void)munmap((void *)(uintptr_t)g->va, g->map_len);
	closep(&g->fd);
	free(g);
	return NULL;
}

static void region_unrefp(struct region **g)
{
	(void)region_unref(*g);
}

/* How many regions begin before addr; the lock is held. */
static size_t regions_before(uint64_t addr)
{
	size_t lo = 0, hi = nr_regions;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (regions[mid]->va < addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* A region that shares at least a byte with the range; the lock is held. */
static struct region *region_at(uint64_t addr, uint64_t len)
{
	/* They are disjoint, so that the last to begin before the end reaches farthest. */
	size_t i = regions_before(addr + len);

	if (!i || regions[i - 1]->va + regions[i - 1]->map_len <= addr)
		return NULL;
	return regions[i - 1];
}

static int region_add(struct region *g)
{
	size_t i;
	int r = 0;

	(void)pthread_rwlock_wrlock(&regions_lock);
	if (nr_regions == room_regions) {
		size_t room = room_regions ? 2 * room_regions : 16;
		struct region **p = realloc(regions, room * sizeof(struct region *));

		if (p) {
			regions = p;
			room_regions = room;
		} else {
			r = err_set(ENOMEM, "no memory to describe an allocation");
		}
	}
	if (!r) {
		i = regions_before(g->va);
		memmove(&regions[i + 1], &regions[i], (nr_regions - i) * sizeof(struct region *));
		regions[i] = g;
		nr_regions++;
	}
	(void)pthread_rwlock_unlock(&regions_lock);
	return r;
}

static void region_del(struct region *g)
{
	size_t i;

	(void)pthread_rwlock_wrlock(&regions_lock);
	for (i = regions_before(g->va); i + 1 < nr_regions; i++)
		regions[i] = regions[i + 1];
	nr_regions--;
	if (!nr_regions) {
		free(regions);
		regions = NULL;
		room_regions = 0;
	}
	(void)pthread_rwlock_unlock(&regions_lock);
}

/* Takes fd over, also when it fails. */
static int region_new(unsigned device, uint64_t size, int fd, uint32_t rights, struct region **ret)
{
	_cleanup_(region_unrefp) struct region *g = calloc(1, sizeof(*g));
	int prot = PROT_READ | (rights & PST_RIGHT_WRITE ? PROT_WRITE : 0);
	void *p;

	if (!g) {
		closep(&fd);
		return err_set(ENOMEM, "no memory to describe an allocation");
	}
	g->refs = 1;
	g->device = device;
	g->size = size;
	g->map_len = align_up(size, (uint64_t)sysconf(_SC_PAGESIZE));
	g->fd = fd;
	g->rights = rights;
	g->buffer_id = mem_buffer_id();

	p = mmap(NULL, g->map_len, prot, MAP_SHARED, fd, 0);
	if (p != MAP_FAILED) {
		g->hidden = p;
		p = mmap(NULL, g->map_len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			 -1, 0);
	}
	if (p == MAP_FAILED) {
		int e = errno;

		return err_set(e == EACCES || e == EPERM ? EACCES : ENOMEM,
			       "cannot map %" PRIu64 " bytes of soft:%u twice: %s; see free memory "
			       "and RLIMIT_AS (ulimit -v)",
			       size, device, err_name(e));
	}
	g->va = (uintptr_t)p;
	*ret = TAKE_PTR(g);
	return 0;
}

/* Takes over the caller's reference of the region. */
static int alloc_new(struct region *g, uint32_t flags, bool owned, struct mem_alloc **ret)
{
	_cleanup_(region_unrefp) struct region *ref = g;
	_cleanup_(freep) struct soft_alloc *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return err_set(ENOMEM, "no memory to describe an allocation");
	s->a = (struct mem_alloc){
		.ops = &mem_soft_ops,
		.device = g->device,
		.base.va = g->va,
		.size = g->size,
		.buffer_id = g->buffer_id,
		.flags = flags,
		.rights = g->rights,
		.owned = owned,
	};
	s->region = g;
	if (owned) {
		r = region_add(g);
		if (r < 0)
			return r;
	}
	ref = NULL;
	*ret = &TAKE_PTR(s)->a;
	return 0;
}

static bool soft_owns(uint64_t addr, uint64_t len)
{
	bool ours;

	(void)pthread_rwlock_rdlock(&regions_lock);
	ours = region_at(addr, len);
	(void)pthread_rwlock_unlock(&regions_lock);
	return ours;
}

/*
 * A device's memory is there when it is allocated: the first copy does not pay for pages,
 * and too much is an error here and not later.  Kernels before 5.14 do it page by page.
 */
static int region_populate(const struct region *g)
{
	(void)madvise(g->hidden, g->map_len, MADV_HUGEPAGE);
	if (madvise(g->hidden, g->map_len, MADV_POPULATE_WRITE) < 0 &&
	    (errno == ENOMEM || errno == EFAULT))
		return err_set(ENOMEM,
			       "soft:%u has no %" PRIu64 " bytes left: the machine's memory "
			       "is used up",
			       g->device, g->size);
	return 0;
}

static int soft_alloc(unsigned device, uint64_t len, uint32_t flags, struct mem_alloc **ret)
{
	struct region *g = NULL;
	int fd, r;

	fd = memfd_new("penstock-soft", len);
	if (fd < 0)
		return fd;
	r = region_new(device, len, fd, PST_RIGHT_READ | PST_RIGHT_WRITE, &g);
	if (!g)
		return r;
	r = region_populate(g);
	if (r < 0) {
		(void)region_unref(g);
		return r;
	}
	return alloc_new(g, flags, true, ret);
}

static int soft_wrap(uint64_t addr, uint64_t len, uint32_t flags, struct mem_alloc **ret)
{
	struct region *g;

	(void)pthread_rwlock_rdlock(&regions_lock);
	g = region_at(addr, len);
	if (g)
		g->refs++;
	(void)pthread_rwlock_unlock(&regions_lock);
	if (!g)
		return err_set(EFAULT, "soft knows no allocation at %#" PRIx64, addr);
	if (addr < g->va || addr - g->va > g->size || len > g->size - (addr - g->va)) {
		int r = err_set(ERANGE,
				"%" PRIu64 " bytes at %#" PRIx64 " reach past the allocation, "
				"which has %" PRIu64 " bytes at %#" PRIx64,
				len, addr, g->size, g->va);

		(void)region_unref(g);
		return r;
	}
	return alloc_new(g, flags, false, ret);
}

static int soft_import(const struct pst_grant *grant, struct mem_alloc **ret)
{
	struct region *g = NULL;
	unsigned device;
	int fd, r;

	for (device = 0; device < nr_devices; device++)
		if (!memcmp(uuids[device], grant->uuid, sizeof(grant->uuid)))
			break;
	if (device == nr_devices)
		return err_set(ENODEV, "the grant is for a soft device that is not here; set "
				       "PST_SOFT_DEVICES as its owner does");
	r = memfd_check(grant->fd, grant->size, grant->rights);
	if (r < 0)
		return r;
	fd = memfd_again(grant->fd, grant->rights);
	if (fd < 0)
		return fd;
	r = region_new(device, grant->size, fd, grant->rights, &g);
	if (!g)
		return r;
	return alloc_new(g, PST_MEM_SHARED, true, ret);
}

static int soft_export(const struct mem_alloc *a, uint32_t rights, struct pst_grant *ret)
{
	const struct soft_alloc *s = container_of(a, struct soft_alloc, a);

	ret->fd = memfd_again(s->region->fd, rights);
	return MIN(ret->fd, 0);
}

/* Whole pages, so that what else lies in the first and the last one is shown too. */
static int soft_export_dmabuf(const struct mem_alloc *a, uint64_t off, uint64_t len,
			      struct mem_dmabuf *ret)
{
	const struct soft_alloc *s = container_of(a, struct soft_alloc, a);
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t start = align_down(off, page), end = align_up(off + len, page);
	int fd = udmabuf_new(s->region->fd, start, end - start);

	if (fd < 0)
		return fd;
	*ret = (struct mem_dmabuf){
		.fd = fd,
		.off = off - start,
		.size = end - start,
		.caching = PST_CACHING_CACHED,
	};
	return 0;
}

static void soft_free(struct mem_alloc *a)
{
	struct soft_alloc *s = container_of(a, struct soft_alloc, a);

	if (a->owned)
		region_del(s->region);
	(void)region_unref(s->region);
	free(s);
}

char *soft_bytes(const struct mem_alloc *a)
{
	return container_of(a, struct soft_alloc, a)->region->hidden;
}

/* The thread reads and writes host memory as the CPU does: nothing has to be pinned. */
static int soft_pin(unsigned device, void *host, uint64_t len)
{
	(void)device;
	(void)host;
	(void)len;
	return 0;
}

static void soft_unpin(unsigned device, void *host, uint64_t len)
{
	(void)device;
	(void)host;
	(void)len;
}

const struct mem_ops mem_soft_ops = {
	.name = "soft",
	.kind = PST_KIND_SOFT,
	.caps = MEM_CAP_COPY | MEM_CAP_EXPORT,
	.load = soft_load,
	.devices = soft_devices,
	.device_info = soft_device_info,
	.owns = soft_owns,
	.alloc = soft_alloc,
	.wrap = soft_wrap,
	.import = soft_import,
	.export = soft_export,
	.export_dmabuf = soft_export_dmabuf,
	.sync = soft_sync,
	.free = soft_free,
	.pin = soft_pin,
	.unpin = soft_unpin,
	.stream_new = soft_stream_new,
	.stream_free = soft_stream_free,
	.copy = soft_copy,
	.poll = soft_poll,
	.stream_fd = soft_stream_fd,
};
