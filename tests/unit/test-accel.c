/* SPDX-License-Identifier: MIT */
/*
 * What a machine offers for accelerator memory, read from trees of files that look like the
 * kernel's.
 */
#include "mem/accel.h"

#include <sys/stat.h>

#include "scratch.h"
#include "t.h"

static char root[200];

/* Make the folders of a file below the root, and the file; text NULL: a folder. */
static void put(const char *name, const char *text)
{
	char path[600];
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s%s", root, name);
	for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')); at++) {
		*at = '\0';
		T_CHECK(mkdir(path, 0700) == 0 || errno == EEXIST);
		*at = '/';
	}
	f = fopen(path, "we");
	T_CHECK(f);
	(void)fputs(text, f);
	(void)fclose(f);
}

static const struct pst_check *find(const struct pst_check *c, const char *name)
{
	for (int i = 0; i < ACCEL_CHECKS; i++)
		if (!strcmp(c[i].name, name))
			return &c[i];
	T_FAIL("there is no check %s", name);
}

static void says(const struct pst_check *c, const char *name, uint32_t state, const char *text)
{
	const struct pst_check *of = find(c, name);

	if (of->state != state || !strstr(of->text, text))
		T_FAIL("%s: %u, \"%s\" and not \"%s\"", name, of->state, of->text, text);
}

static void begin(void)
{
	T_OK(scratch_new(NULL, root, sizeof(root)));
}

static void end(void)
{
	T_EQ(scratch_remove(root), 0);
}

static void nothing_is_there(void)
{
	struct pst_check c[ACCEL_CHECKS];

	begin();
	T_EQ(accel_machine(root, "5.10.0-28-amd64", c), ACCEL_CHECKS);
	says(c, "kernel", PST_CHECK_MISSING, "no dma-bufs for network cards");
	says(c, "p2pdma", PST_CHECK_UNKNOWN, "zgrep CONFIG_PCI_P2PDMA");
	says(c, "exporters", PST_CHECK_UNNEEDED, "no accelerator has a driver");
	says(c, "lenders", PST_CHECK_UNNEEDED, "no PCI device lends");
	says(c, "udmabuf", PST_CHECK_UNNEEDED, "modprobe udmabuf");
	says(c, "dma-heap", PST_CHECK_UNNEEDED, "no /dev/dma_heap");
	says(c, "iommu", PST_CHECK_OK, "no IOMMU");
	end();
}

static void all_is_there(void)
{
	struct pst_check c[ACCEL_CHECKS];
	char link[300];

	begin();
	put("/boot/config-6.12.1", "CONFIG_PCI=y\nCONFIG_PCI_P2PDMA=y\n");
	put("/dev/udmabuf", "");
	put("/dev/dma_heap/system", "");
	put("/dev/dma_heap/cma", "");
	put("/sys/class/drm/renderD128/device/vendor", "0x1002\n");
	(void)snprintf(link, sizeof(link), "%s/sys/class/drm/renderD128/device/driver", root);
	T_EQ(symlink("../../bus/pci/drivers/amdgpu", link), 0);
	put("/sys/class/accel/accel0/device/vendor", "0x1da3\n");
	put("/sys/bus/pci/devices/0000:05:00.0/p2pmem/allocate", "");
	put("/sys/bus/pci/devices/0000:05:00.0/p2pmem/size", "67108864\n");
	put("/sys/kernel/iommu_groups/0/type", "identity\n");
	put("/sys/kernel/iommu_groups/1/type", "DMA-FQ\n");
	T_EQ(accel_machine(root, "6.12.1", c), ACCEL_CHECKS);
	says(c, "kernel", PST_CHECK_OK, "Linux 6.12.1");
	says(c, "p2pdma", PST_CHECK_OK, "CONFIG_PCI_P2PDMA=y");
	says(c, "exporters", PST_CHECK_OK, "renderD128 (amdgpu), accel0 (no driver)");
	says(c, "lenders", PST_CHECK_OK, "0000:05:00.0 (67108864 bytes)");
	says(c, "udmabuf", PST_CHECK_OK, "becomes a dma-buf");
	says(c, "dma-heap", PST_CHECK_OK, "cma, system");
	says(c, "iommu", PST_CHECK_UNKNOWN, "1 of 2 groups");
	end();
}

static void some_is_missing(void)
{
	struct pst_check c[ACCEL_CHECKS];

	begin();
	put("/lib/modules/6.1.0/config", "# CONFIG_PCI_P2PDMA is not set\nCONFIG_PCI_P2PDMA=yes\n");
	for (int i = 0; i < 9; i++) {
		char name[40];

		(void)snprintf(name, sizeof(name), "/dev/dma_heap/heap%d", i);
		put(name, "");
	}
	T_EQ(accel_machine(root, "6.1.0", c), ACCEL_CHECKS);
	says(c, "kernel", PST_CHECK_MISSING, "boot 6.2 or newer");
	says(c, "p2pdma", PST_CHECK_MISSING, "is not set");
	says(c, "dma-heap", PST_CHECK_OK, "heap5 and more");
	end();
}

static void devices(void)
{
	struct pst_check c;

	T_EQ(accel_device("host", &c), 1);
	T_EQ(c.state, PST_CHECK_UNNEEDED);
	T_EQ(accel_device("dmabuf", &c), 1);
	T_EQ(c.state, PST_CHECK_OK);
	/* As the kernel has /dev/udmabuf, or not. */
	T_EQ(accel_device("soft:0", &c), 1);
	T_EQ(c.state, access("/dev/udmabuf", R_OK | W_OK) == 0 ? PST_CHECK_OK : PST_CHECK_MISSING);
	T_CHECK(c.text[0]);
	T_EQ(accel_device("soft:99", &c), -ENODEV);
}

int main(void)
{
	T_RUN(nothing_is_there);
	T_RUN(all_is_there);
	T_RUN(some_is_missing);
	T_RUN(devices);
	return t_done();
}
