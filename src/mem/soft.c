/* SPDX-License-Identifier: MIT */
/*
 * The software device: an accelerator without silicon.
 *
 * To the layers above it behaves like a real device.  The address that users hold is in a range
 * mapped PROT_NONE, so that a CPU which accesses it crashes at once, instead of working here and
 * failing on hardware.  The bytes are in a sealed memfd with a second mapping, which only this file
 * and soft_stream.c know, and in which copies are made.
 *
 * Allocations are in one array sorted by address, because every wrap looks up the owner of an
 * address.  The memory of an allocation (struct backing) is reference counted.  So a wrap of memory
 * that its owner has freed copies to a mapping that no one sees, instead of to one that does not
 * exist.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/crc32c.h"
#include "base/err.h"
#include "base/log.h"
#include "mem/mem.h"
#include "mem/memfd.h"
#include "mem/soft.h"
#include "mem/udmabuf.h"

/* The two mappings and the memfd of one allocation. */
struct backing {
	_Atomic unsigned refs;
	unsigned device;
	uint64_t va;      /* address of the PROT_NONE range */
	uint64_t size;    /* requested bytes */
	uint64_t map_len; /* mapped bytes: size in whole pages */
	char *hidden;     /* mapping of the bytes, only for the device's thread */
	int fd;
	uint32_t rights;
	uint64_t buffer_id;
};

struct soft_alloc {
	struct mem_alloc a;
	struct backing *backing;
};

static uint8_t uuids[SOFT_DEVICES_MAX][16];
static unsigned nr_devices;

static pthread_rwlock_t backings_lock = PTHREAD_RWLOCK_INITIALIZER;
static struct backing **backings; /* sorted by va, disjoint */
static size_t nr_backings, room_backings;

/* ----------------------------------------------------------------- devices */

static uint64_t mix_hash(uint64_t x)
{
	x ^= x >> 30;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	x ^= x >> 27;
	x *= UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

/*
 * Make the device's UUID.  The UUID is equal in every process and container during this boot of the
 * machine, because a grant identifies its device by this UUID.  Without /proc the boot id is left
 * out, which does no harm, because grants do not leave the machine.
 */
static void make_uuid(unsigned idx, uint8_t ret[16])
{
	_cleanup_(closep) int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	uint64_t h[2] = { UINT64_C(0x736f667464657630), idx };
	char boot[64];
	ssize_t n = fd >= 0 ? read(fd, boot, sizeof(boot)) : 0;

	for (ssize_t i = 0; i < n; i++) {
		h[0] = mix_hash(h[0] ^ (unsigned char)boot[i]);
		h[1] = mix_hash(h[1] + h[0]);
	}
	h[0] = mix_hash(h[0] + h[1]);
	h[1] = mix_hash(h[1] ^ h[0]);
	memcpy(ret, h, 16);
	ret[6] = (uint8_t)((ret[6] & 0x0f) | 0x80); /* UUID version 8 of RFC 9562: custom */
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

static struct backing *backing_unref(struct backing *b)
{
	if (!b || atomic_fetch_sub(&b->refs, 1) > 1)
		return NULL;
	if (b->hidden)
		(void)munmap(b->hidden, b->map_len);
	if (b->va)
		(void)munmap((void *)(uintptr_t)b->va, b->map_len);
	closep(&b->fd);
	free(b);
	return NULL;
}

static void backing_unrefp(struct backing **b)
{
	(void)backing_unref(*b);
}

/* Return the number of backings that begin before addr; under the lock. */
static size_t backings_before(uint64_t addr)
{
	size_t lo = 0, hi = nr_backings;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (backings[mid]->va < addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Return a backing that shares at least one byte with the range, or NULL; under the lock. */
static struct backing *backing_at(uint64_t addr, uint64_t len)
{
	/* Backings are disjoint, so the last one that begins before the end of the range reaches
	 * farthest. */
	size_t i = backings_before(addr + len);

	if (!i || backings[i - 1]->va + backings[i - 1]->map_len <= addr)
		return NULL;
	return backings[i - 1];
}

static int backing_add(struct backing *b)
{
	size_t i;
	int r = 0;

	(void)pthread_rwlock_wrlock(&backings_lock);
	if (nr_backings == room_backings) {
		size_t room = room_backings ? 2 * room_backings : 16;
		struct backing **p = realloc(backings, room * sizeof(struct backing *));

		if (p) {
			backings = p;
			room_backings = room;
		} else {
			r = err_set(ENOMEM, "no memory to describe an allocation");
		}
	}
	if (!r) {
		i = backings_before(b->va);
		memmove(&backings[i + 1], &backings[i],
			(nr_backings - i) * sizeof(struct backing *));
		backings[i] = b;
		nr_backings++;
	}
	(void)pthread_rwlock_unlock(&backings_lock);
	return r;
}

static void backing_del(struct backing *b)
{
	size_t i;

	(void)pthread_rwlock_wrlock(&backings_lock);
	for (i = backings_before(b->va); i + 1 < nr_backings; i++)
		backings[i] = backings[i + 1];
	nr_backings--;
	if (!nr_backings) {
		free(backings);
		backings = NULL;
		room_backings = 0;
	}
	(void)pthread_rwlock_unlock(&backings_lock);
}

/* Map a memfd as a backing.  Takes over fd, even on failure. */
static int backing_new(unsigned device, uint64_t size, int fd, uint32_t rights,
		       struct backing **ret)
{
	_cleanup_(backing_unrefp) struct backing *b = calloc(1, sizeof(*b));
	int prot = PROT_READ | (rights & PST_RIGHT_WRITE ? PROT_WRITE : 0);
	void *p;

	if (!b) {
		closep(&fd);
		return err_set(ENOMEM, "no memory to describe an allocation");
	}
	b->refs = 1;
	b->device = device;
	b->size = size;
	b->map_len = align_up(size, (uint64_t)sysconf(_SC_PAGESIZE));
	b->fd = fd;
	b->rights = rights;
	b->buffer_id = mem_buffer_id();

	p = mmap(NULL, b->map_len, prot, MAP_SHARED, fd, 0);
	if (p != MAP_FAILED) {
		b->hidden = p;
		p = mmap(NULL, b->map_len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			 -1, 0);
	}
	if (p == MAP_FAILED) {
		int e = errno;

		return err_set(e == EACCES || e == EPERM ? EACCES : ENOMEM,
			       "cannot map %" PRIu64 " bytes of soft:%u twice: %s; see free memory "
			       "and RLIMIT_AS (ulimit -v)",
			       size, device, err_name(e));
	}
	b->va = (uintptr_t)p;
	*ret = TAKE_PTR(b);
	return 0;
}

/* Create an allocation of a backing.  Takes over the caller's reference. */
static int alloc_new(struct backing *b, uint32_t flags, bool owned, struct mem_alloc **ret)
{
	_cleanup_(backing_unrefp) struct backing *ref = b;
	_cleanup_(freep) struct soft_alloc *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return err_set(ENOMEM, "no memory to describe an allocation");
	s->a = (struct mem_alloc){
		.ops = &mem_soft_ops,
		.device = b->device,
		.base.va = b->va,
		.size = b->size,
		.buffer_id = b->buffer_id,
		.flags = flags,
		.rights = b->rights,
		.owned = owned,
	};
	s->backing = b;
	if (owned) {
		r = backing_add(b);
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

	(void)pthread_rwlock_rdlock(&backings_lock);
	ours = backing_at(addr, len);
	(void)pthread_rwlock_unlock(&backings_lock);
	return ours;
}

/*
 * Allocate all pages now, as a device does: the first copy must not pay for pages, and a lack of
 * memory must be an error of the allocation.  Kernels before 5.14 allocate page by page.
 */
static int backing_populate(const struct backing *b)
{
	(void)madvise(b->hidden, b->map_len, MADV_HUGEPAGE);
	if (madvise(b->hidden, b->map_len, MADV_POPULATE_WRITE) < 0 &&
	    (errno == ENOMEM || errno == EFAULT))
		return err_set(ENOMEM,
			       "soft:%u has no %" PRIu64 " bytes left: the machine's memory "
			       "is used up",
			       b->device, b->size);
	return 0;
}

static int soft_alloc(unsigned device, uint64_t len, uint32_t flags, struct mem_alloc **ret)
{
	struct backing *b = NULL;
	int fd, r;

	fd = memfd_new("penstock-soft", len);
	if (fd < 0)
		return fd;
	r = backing_new(device, len, fd, PST_RIGHT_READ | PST_RIGHT_WRITE, &b);
	if (!b)
		return r;
	r = backing_populate(b);
	if (r < 0) {
		(void)backing_unref(b);
		return r;
	}
	return alloc_new(b, flags, true, ret);
}

static int soft_wrap(uint64_t addr, uint64_t len, uint32_t flags, struct mem_alloc **ret)
{
	struct backing *b;

	(void)pthread_rwlock_rdlock(&backings_lock);
	b = backing_at(addr, len);
	if (b)
		b->refs++;
	(void)pthread_rwlock_unlock(&backings_lock);
	if (!b)
		return err_set(EFAULT, "soft knows no allocation at %#" PRIx64, addr);
	if (addr < b->va || addr - b->va > b->size || len > b->size - (addr - b->va)) {
		int r = err_set(ERANGE,
				"%" PRIu64 " bytes at %#" PRIx64 " reach past the allocation, "
				"which has %" PRIu64 " bytes at %#" PRIx64,
				len, addr, b->size, b->va);

		(void)backing_unref(b);
		return r;
	}
	return alloc_new(b, flags, false, ret);
}

static int soft_import(const struct pst_grant *grant, struct mem_alloc **ret)
{
	struct backing *b = NULL;
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
	r = backing_new(device, grant->size, fd, grant->rights, &b);
	if (!b)
		return r;
	return alloc_new(b, PST_MEM_SHARED, true, ret);
}

static int soft_export(const struct mem_alloc *a, uint32_t rights, struct pst_grant *ret)
{
	const struct soft_alloc *s = container_of(a, struct soft_alloc, a);

	ret->fd = memfd_again(s->backing->fd, rights);
	return MIN(ret->fd, 0);
}

/* Export whole pages, which contain other bytes of the first and the last page. */
static int soft_export_dmabuf(const struct mem_alloc *a, uint64_t off, uint64_t len,
			      struct mem_dmabuf *ret)
{
	const struct soft_alloc *s = container_of(a, struct soft_alloc, a);
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t start = align_down(off, page), end = align_up(off + len, page);
	int fd = udmabuf_new(s->backing->fd, start, end - start);

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
		backing_del(s->backing);
	(void)backing_unref(s->backing);
	free(s);
}

char *soft_bytes(const struct mem_alloc *a)
{
	return container_of(a, struct soft_alloc, a)->backing->hidden;
}

/* --------------------------------------------------------------- checksums */

struct soft_sums {
	struct mem_sums base;
	unsigned nr;
	uint32_t crc[MEM_RANGES];
};

static int soft_sums_new(unsigned device, struct mem_sums **ret)
{
	struct soft_sums *s = calloc(1, sizeof(*s));

	(void)device;
	if (!s)
		return err_set(ENOMEM, "no memory for checksums");
	s->base.ops = &mem_soft_ops;
	*ret = &s->base;
	return 0;
}

static void soft_sums_free(struct mem_sums *base)
{
	free(container_of(base, struct soft_sums, base));
}

/* Compute the checksums on the caller's thread. */
static int soft_sums_start(struct mem_sums *base, const struct mem_range *v, unsigned nr)
{
	struct soft_sums *s = container_of(base, struct soft_sums, base);

	for (unsigned i = 0; i < nr; i++)
		s->crc[i] = crc32c(0, soft_bytes(v[i].alloc) + v[i].off, v[i].len);
	s->nr = nr;
	return 0;
}

static int soft_sums_poll(struct mem_sums *base, uint32_t *ret)
{
	const struct soft_sums *s = container_of(base, struct soft_sums, base);

	memcpy(ret, s->crc, s->nr * sizeof(*ret));
	return 1;
}

/* Stores are visible, because the device's threads run on CPUs. */
static bool soft_lands(const struct mem_alloc *a)
{
	(void)a;
	return true;
}

const struct mem_ops mem_soft_ops = {
	.name = "soft",
	.kind = PST_KIND_SOFT,
	.caps = MEM_CAP_COPY | MEM_CAP_EXPORT | MEM_CAP_FD | MEM_CAP_BETWEEN,
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
	.lands = soft_lands,
	.free = soft_free,
	/* No .pin: CPU threads make the copies, and need no pinned memory. */
	.stream_new = soft_stream_new,
	.stream_free = soft_stream_free,
	.copy = soft_copy,
	.poll = soft_poll,
	.stream_fd = soft_stream_fd,
	.sums_new = soft_sums_new,
	.sums_free = soft_sums_free,
	.sums_start = soft_sums_start,
	.sums_poll = soft_sums_poll,
};
