/* SPDX-License-Identifier: MIT */
/*
 * Peer-to-peer memory of PCI devices: pages in the BAR of a device that the kernel lends to
 * programs, such as an NVMe controller's memory buffer (CMB).
 *
 * The pages are mapped into the process, so the CPU uses them as any memory, though each access
 * crosses the bus.  Another device, such as a disk during O_DIRECT, moves bytes to them without
 * using host memory: the path P2P.
 *
 * See Documentation/driver-api/pci/p2pdma.rst and Documentation/ABI/testing/sysfs-bus-pci in the
 * kernel.  Every mmap() of the file "allocate" is a new allocation, so the memory cannot be shared
 * with another process.
 */
#include "mem/p2pmem.h"

#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"
#include "base/log.h"
#include "base/sysfs.h"
#include "mem/facts.h"
#include "mem/mem.h"

const char *p2pmem_root = "/sys/bus/pci/devices";

static struct {
	char pci[24]; /* such as "0000:00:03.0"; a domain has up to eight digits */
	uint8_t uuid[16];
} pools[P2PMEM_DEVICES_MAX];
static unsigned nr_pools;

/* ------------------------------------------------------------------ devices */

/* Make the UUID from the numbers of the PCI address. */
static void pool_uuid(const char *pci, uint8_t ret[static 16])
{
	static const uint8_t tag[] = { 'p', '2', 'p', ':' };
	unsigned domain = 0, bus = 0, slot = 0, fn = 0;

	(void)sscanf(pci, "%x:%x:%x.%x", &domain, &bus, &slot, &fn);
	memset(ret, 0, 16);
	memcpy(ret, tag, sizeof(tag));
	memcpy(ret + 4, &domain, sizeof(domain));
	ret[8] = (uint8_t)bus;
	ret[9] = (uint8_t)slot;
	ret[10] = (uint8_t)fn;
}

static void pool_add(const char *path)
{
	const char *pci = path + strlen(p2pmem_root) + 1;
	int len = (int)strcspn(pci, "/");

	if (nr_pools == P2PMEM_DEVICES_MAX) {
		log_warn("more than %u PCI devices lend memory, ignoring that of %.*s",
			 P2PMEM_DEVICES_MAX, len, pci);
		return;
	}
	(void)snprintf(pools[nr_pools].pci, sizeof(pools[0].pci), "%.*s", len, pci);
	pool_uuid(pools[nr_pools].pci, pools[nr_pools].uuid);
	nr_pools++;
}

static int p2pmem_load(void)
{
	char pattern[256];
	glob_t found;

	(void)snprintf(pattern, sizeof(pattern), "%s/*/p2pmem/allocate", p2pmem_root);
	if (glob(pattern, 0, NULL, &found) == 0) {
		for (size_t i = 0; i < found.gl_pathc; i++)
			pool_add(found.gl_pathv[i]);
		globfree(&found);
	}
	return nr_pools
		       ? 0
		       : err_set(ENODEV,
				 "no PCI device lends peer-to-peer memory: none has p2pmem/allocate"
				 " in %s; it takes Linux 6.2 with CONFIG_PCI_P2PDMA, and a device "
				 "such as an NVMe controller with a memory buffer (CMB)",
				 p2pmem_root);
}

/* Read a number of bytes from sysfs; 0 if that fails. */
static uint64_t pool_bytes(unsigned idx, const char *name)
{
	char path[256], line[32] = "";
	uint64_t n = 0;

	(void)snprintf(path, sizeof(path), "%s/%s/p2pmem/%s", p2pmem_root, pools[idx].pci, name);
	if (sysfs_line(path, line, sizeof(line)) < 0 || sscanf(line, "%" SCNu64, &n) != 1)
		return 0;
	return n;
}

static unsigned p2pmem_devices(void)
{
	return nr_pools;
}

static void p2pmem_device_info(unsigned idx, struct pst_device *ret)
{
	ret->kind = PST_KIND_P2PMEM;
	ret->numa_node = sysfs_numa_node(pools[idx].pci);
	ret->total = pool_bytes(idx, "size");
	memcpy(ret->uuid, pools[idx].uuid, sizeof(ret->uuid));
	(void)snprintf(ret->pci, sizeof(ret->pci), "%s", pools[idx].pci);
	(void)snprintf(ret->name, sizeof(ret->name), "p2pmem:%u", idx);
	(void)snprintf(ret->model, sizeof(ret->model), "peer-to-peer memory of a PCI device");
}

static void p2pmem_device_text(unsigned idx, struct facts *f)
{
	facts_add(f, "available", "%" PRIu64, pool_bytes(idx, "available"));
}

static bool p2pmem_owns(uint64_t addr, uint64_t len)
{
	(void)addr;
	(void)len;
	return false; /* memory that the program mapped itself counts as host memory */
}

/* -------------------------------------------------------------- allocations */

static int p2pmem_no_memory(unsigned idx, uint64_t len, int err)
{
	if (err != ENOMEM)
		return err_set(err, "%" PRIu64 " bytes of p2pmem:%u cannot be mapped: %s", len, idx,
			       err_name(err));
	return err_set(ENOMEM,
		       "p2pmem:%u has no %" PRIu64 " bytes in one piece; %" PRIu64 " of %" PRIu64
		       " are available",
		       idx, len, pool_bytes(idx, "available"), pool_bytes(idx, "size"));
}

static int pool_map(unsigned idx, uint64_t len, void **ret)
{
	char path[256];
	int fd, e;

	(void)snprintf(path, sizeof(path), "%s/%s/p2pmem/allocate", p2pmem_root, pools[idx].pci);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return err_set(errno,
			       "%s cannot be opened: %s; be root, or give this user the "
			       "file",
			       path, err_name(errno));
	*ret = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	e = errno;
	(void)close(fd);
	if (*ret == MAP_FAILED)
		return p2pmem_no_memory(idx, len, e);
	(void)madvise(*ret, len, MADV_DONTFORK);
	return 0;
}

static int p2pmem_alloc(unsigned device, uint64_t len, uint32_t flags, struct mem_alloc **ret)
{
	struct mem_alloc *a;
	void *p;
	int r;

	if (flags & PST_MEM_SHARED)
		return err_set(EOPNOTSUPP, "peer-to-peer memory cannot be shared with other "
					   "processes; leave PST_MEM_SHARED out");
	len = align_up(len, (uint64_t)sysconf(_SC_PAGESIZE));
	a = calloc(1, sizeof(*a));
	if (!a)
		return err_set(ENOMEM, "no memory to describe an allocation");
	r = pool_map(device, len, &p);
	if (r < 0) {
		free(a);
		return r;
	}
	*a = (struct mem_alloc){
		.ops = &mem_p2pmem_ops,
		.device = device,
		.base.va = (uintptr_t)p,
		.size = len,
		.buffer_id = mem_buffer_id(),
		.host = p,
		.rights = PST_RIGHT_READ | PST_RIGHT_WRITE,
		.owned = true,
	};
	*ret = a;
	return 0;
}

static void p2pmem_free(struct mem_alloc *a)
{
	(void)munmap(a->host, a->size);
	free(a);
}

const struct mem_ops mem_p2pmem_ops = {
	.name = "p2pmem",
	.kind = PST_KIND_P2PMEM,
	.caps = MEM_CAP_CPU | MEM_CAP_PEER,
	.load = p2pmem_load,
	.devices = p2pmem_devices,
	.device_info = p2pmem_device_info,
	.device_text = p2pmem_device_text,
	.owns = p2pmem_owns,
	.alloc = p2pmem_alloc,
	.free = p2pmem_free,
};
