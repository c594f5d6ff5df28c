/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"
#include "base/sysfs.h"
#include "mem/facts.h"
#include "mem/mem.h"
#include "mem/memfd.h"

#define HUGE_LEN MIB(2) /* allocations from this size on are aligned for transparent huge pages */

struct host_alloc {
	struct mem_alloc a;
	int fd; /* memfd of shared memory; else -1 */
};

static uint64_t page_size(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

static unsigned host_devices(void)
{
	return 1;
}

static void host_device_info(unsigned idx, struct pst_device *ret)
{
	(void)idx;
	ret->kind = PST_KIND_HOST;
	ret->numa_node = -1;
	ret->total = (uint64_t)sysconf(_SC_PHYS_PAGES) * page_size();
	(void)snprintf(ret->name, sizeof(ret->name), "host");
	(void)snprintf(ret->model, sizeof(ret->model), "memory of this machine");
}

/* Return the word in brackets, which is the active setting: "always [madvise] never". */
static const char *chosen(char *line)
{
	char *p = strchr(line, '['), *end = p ? strchr(p, ']') : NULL;

	if (!end)
		return "unknown";
	*end = '\0';
	return p + 1;
}

static void host_device_text(unsigned idx, struct facts *f)
{
	char line[128] = "";

	(void)idx;
	facts_add(f, "page size", "%" PRIu64 " bytes", page_size());
	(void)sysfs_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof(line));
	facts_add(f, "transparent huge pages", "%s", chosen(line));
	if (sysfs_line("/sys/devices/system/node/online", line, sizeof(line)) < 0)
		(void)snprintf(line, sizeof(line), "unknown");
	/* Write "number 0", because "0" alone would look like no node. */
	facts_add(f, "NUMA nodes", "%s%s", line[0] >= '0' && line[0] <= '9' ? "number " : "", line);
}

/* Claim every address without asking the kernel: using an unmapped address returns EFAULT later. */
static bool host_owns(uint64_t addr, uint64_t len)
{
	(void)len;
	return addr != 0;
}

/*
 * Map len bytes, of fd if it is not -1.  Huge pages need an aligned address, which mmap() rarely
 * returns, so reserve more and keep the aligned part.
 */
static void *map(uint64_t len, int prot, int fd)
{
	int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
	uint64_t room = align_up(len, page_size()) + HUGE_LEN;
	uint64_t start, at, end;
	void *reserved, *p;

	if (len < HUGE_LEN)
		return mmap(NULL, len, prot, flags, fd, 0);
	reserved = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (reserved == MAP_FAILED) /* address space is short: use small pages */
		return mmap(NULL, len, prot, flags, fd, 0);

	start = (uintptr_t)reserved;
	at = align_up(start, HUGE_LEN);
	end = at + align_up(len, page_size());
	p = mmap((void *)(uintptr_t)at, len, prot, flags | MAP_FIXED, fd, 0);
	if (p == MAP_FAILED) {
		int e = errno;

		(void)munmap(reserved, room);
		errno = e;
		return MAP_FAILED;
	}
	if (at > start)
		(void)munmap(reserved, at - start);
	if (start + room > end)
		(void)munmap((void *)(uintptr_t)end, start + room - end);
	(void)madvise(p, len, MADV_HUGEPAGE); /* advice only; kernels without huge pages refuse
					       * it */
	return p;
}

static void host_free(struct mem_alloc *a)
{
	struct host_alloc *h = container_of(a, struct host_alloc, a);

	if (a->owned && a->host)
		(void)munmap(a->host, a->size);
	closep(&h->fd);
	free(h);
}

static void host_freep(struct host_alloc **h)
{
	if (*h)
		host_free(&(*h)->a);
}

static struct host_alloc *host_new(uint64_t size, uint32_t flags)
{
	struct host_alloc *h = calloc(1, sizeof(*h));

	if (!h) {
		(void)err_set(ENOMEM, "no memory to describe an allocation");
		return NULL;
	}
	h->a.ops = &mem_host_ops;
	h->a.size = size;
	h->a.buffer_id = mem_buffer_id();
	h->a.flags = flags;
	h->a.rights = PST_RIGHT_READ | PST_RIGHT_WRITE;
	h->a.owned = true;
	h->fd = -1;
	return h;
}

static int host_map(struct host_alloc *h)
{
	int prot = (h->a.rights & PST_RIGHT_READ ? PROT_READ : 0) |
		   (h->a.rights & PST_RIGHT_WRITE ? PROT_WRITE : 0);
	void *p = map(h->a.size, prot, h->fd);

	if (p == MAP_FAILED) {
		int e = errno;

		return err_set(e == EACCES || e == EPERM ? EACCES : ENOMEM,
			       "cannot map %" PRIu64 " bytes of host memory: %s; see free memory "
			       "and RLIMIT_AS (ulimit -v)",
			       h->a.size, err_name(e));
	}
	h->a.host = p;
	h->a.base.va = (uintptr_t)p;
	return 0;
}

static int host_alloc(unsigned device, uint64_t len, uint32_t flags, struct mem_alloc **ret)
{
	_cleanup_(host_freep) struct host_alloc *h = host_new(len, flags);
	int r;

	(void)device;
	if (!h)
		return -ENOMEM;
	if (flags & PST_MEM_SHARED) {
		h->fd = memfd_new("penstock-host", len);
		if (h->fd < 0)
			return h->fd;
	}
	r = host_map(h);
	if (r < 0)
		return r;
	*ret = &TAKE_PTR(h)->a;
	return 0;
}

static int host_wrap(uint64_t addr, uint64_t len, uint32_t flags, struct mem_alloc **ret)
{
	struct host_alloc *h = host_new(len, flags);

	if (!h)
		return -ENOMEM;
	h->a.owned = false;
	h->a.base.va = addr;
	h->a.host = (void *)(uintptr_t)addr;
	*ret = &h->a;
	return 0;
}

static int host_import(const struct pst_grant *grant, struct mem_alloc **ret)
{
	_cleanup_(host_freep) struct host_alloc *h = NULL;
	int r;

	r = memfd_check(grant->fd, grant->size, grant->rights);
	if (r < 0)
		return r;
	h = host_new(grant->size, PST_MEM_SHARED);
	if (!h)
		return -ENOMEM;
	h->a.rights = grant->rights;
	h->fd = memfd_again(grant->fd, grant->rights);
	if (h->fd < 0)
		return h->fd;
	r = host_map(h);
	if (r < 0)
		return r;
	*ret = &TAKE_PTR(h)->a;
	return 0;
}

static int host_export(const struct mem_alloc *a, uint32_t rights, struct pst_grant *ret)
{
	const struct host_alloc *h = container_of(a, struct host_alloc, a);

	if (h->fd < 0)
		return err_set(EOPNOTSUPP, "only host memory allocated with PST_MEM_SHARED can be "
					   "exported");
	ret->fd = memfd_again(h->fd, rights);
	return MIN(ret->fd, 0);
}

const struct mem_ops mem_host_ops = {
	.name = "host",
	.kind = PST_KIND_HOST,
	.caps = MEM_CAP_CPU | MEM_CAP_EXPORT | MEM_CAP_FD,
	.devices = host_devices,
	.device_info = host_device_info,
	.device_text = host_device_text,
	.owns = host_owns,
	.alloc = host_alloc,
	.wrap = host_wrap,
	.import = host_import,
	.export = host_export,
	.free = host_free,
};
