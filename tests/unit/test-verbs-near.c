/* SPDX-License-Identifier: MIT */
/* Which RDMA device is near memory of this process, on a sysfs of the test. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mem/mem.h"
#include "net/verbs/near.h"
#include "net/verbs/nic.h"
#include "base/err.h"

#define T_ERROR_TEXT() err_text()
#include "scratch.h"
#include "t.h"

static char sys[512];

/* Create a folder below sys with its parents. */
static void folder(const char *path)
{
	char at[1024];

	(void)snprintf(at, sizeof(at), "%s/%s/", sys, path);
	for (char *p = at + strlen(sys) + 1; (p = strchr(p, '/')); *p++ = '/') {
		*p = '\0';
		T_CHECK(mkdir(at, 0700) == 0 || errno == EEXIST);
	}
}

/* Create a PCI device at a path below sys/devices, and a link to it at @link. */
static void device(const char *path, const char *node, const char *link)
{
	char at[1024], to[1024];
	int fd;

	(void)snprintf(at, sizeof(at), "devices/%s", path);
	folder(at);
	(void)snprintf(to, sizeof(to), "%s/devices/%s", sys, path);
	(void)snprintf(at, sizeof(at), "%s/numa_node", to);
	fd = open(at, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	T_CHECK(fd >= 0);
	T_EQ(write(fd, node, strlen(node)), (ssize_t)strlen(node));
	(void)close(fd);
	(void)snprintf(at, sizeof(at), "%s/%s", sys, link);
	T_EQ(symlink(to, at), 0);
}

#define ROOT "pci0000:16/0000:16:01.0/"
#define SWITCH ROOT "0000:17:00.0/"

/* The accelerator and six RDMA devices, the nearest first. */
static void machine(void)
{
	T_OK(scratch_new(NULL, sys, sizeof(sys)));
	folder("bus/pci/devices");
	for (unsigned i = 0; i < 8; i++) {
		char dir[64];

		(void)snprintf(dir, sizeof(dir), "class/infiniband/near%u", i);
		folder(dir);
	}
	device(SWITCH "0000:18:00.0/0000:19:00.0", "0\n", "bus/pci/devices/0000:19:00.0");
	device(SWITCH "0000:18:01.0/0000:1a:00.0", "0\n", "class/infiniband/near0/device");
	device(SWITCH "0000:18:02.0/0000:1b:00.0/0000:1c:00.0/0000:1d:00.0", "0\n",
	       "class/infiniband/near1/device");
	device("pci0000:16/0000:16:02.0/0000:20:00.0", "0\n", "class/infiniband/near2/device");
	device("pci0000:30/0000:30:01.0/0000:31:00.0", "0\n", "class/infiniband/near3/device");
	device("pci0000:40/0000:40:01.0/0000:41:00.0", "1\n", "class/infiniband/near4/device");
	/* The folder's name must not be taken for a host bridge. */
	device("platform/pcie@1/pci0001:00/0001:00:01.0", "-1\n", "class/infiniband/near5/device");
	device("virtual/rxe", "-1\n", "class/infiniband/near6/device");
	near_sysfs = sys;
}

static void nearer_is_less(void)
{
	char name[16];
	unsigned last = 0, d;

	for (unsigned i = 0; i < 5; i++) {
		(void)snprintf(name, sizeof(name), "near%u", i);
		d = near_distance(name, "0000:19:00.0");
		T_CHECK(d > last && d != NEAR_UNKNOWN);
		last = d;
	}
	/* Another NUMA node, and an unknown one, are equally far. */
	T_EQ(near_distance("near5", "0000:19:00.0"), last);
}

static void no_place(void)
{
	T_EQ(near_distance("near6", "0000:19:00.0"), NEAR_UNKNOWN); /* not on a PCI bus */
	T_EQ(near_distance("near7", "0000:19:00.0"), NEAR_UNKNOWN); /* without a device */
	T_EQ(near_distance("nobody", "0000:19:00.0"), NEAR_UNKNOWN);
	T_EQ(near_distance("near0", "0000:99:00.0"), NEAR_UNKNOWN);
}

/* The first device is used while the process has no memory of an accelerator, then the nearest. */
static void nearest_is_opened(void)
{
	char pci[4][sizeof(((struct pst_device *)0)->pci)], link[64];
	const struct mem_ops *ops;
	struct mem_alloc *a = NULL;
	struct nic *n = NULL;
	unsigned idx;

	T_EQ(mem_used_pci(pci, 4), 0);
	T_OK(nic_open(NULL, near_memory, &n));
	T_CHECK(!strcmp(n->name, "stub0"));
	nic_close(n);
	T_OK(mem_find("cuda:1", &ops, &idx));
	T_OK(mem_alloc(ops, idx, 4096, 0, &a));
	T_EQ(mem_used_pci(pci, 4), 1);
	T_EQ(mem_used_pci(pci, 0), 0);
	folder("class/infiniband/stub0");
	folder("class/infiniband/stub1");
	device("pci0000:50/0000:50:01.0/0000:51:00.0", "1\n", "class/infiniband/stub0/device");
	device("pci0000:60/0000:60:01.0/0000:61:00.0", "0\n", "class/infiniband/stub1/device");
	(void)snprintf(link, sizeof(link), "bus/pci/devices/%s", pci[0]);
	device("pci0000:60/0000:60:02.0/dead", "0\n", link);
	T_OK(nic_open(NULL, near_memory, &n));
	T_CHECK(!strcmp(n->name, "stub1"));
	nic_close(n);
	/* A name is stronger. */
	T_OK(nic_open("stub0", near_memory, &n));
	T_CHECK(!strcmp(n->name, "stub0"));
	nic_close(n);
	mem_free(a);
}

int main(void)
{
	machine();
	T_RUN(nearer_is_less);
	T_RUN(no_place);
	T_RUN(nearest_is_opened);
	(void)scratch_remove(sys);
	return t_done();
}
