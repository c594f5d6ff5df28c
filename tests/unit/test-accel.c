/* SPDX-License-Identifier: MIT */
/* What a machine offers for accelerator memory, read from fake folders of the kernel. */
#include "mem/accel.h"

#include <linux/pci_regs.h>
#include <sys/stat.h>

#include "scratch.h"
#include "t.h"

static char root[200];

/* Make a file below the root, with its folders.  With text NULL, make a folder. */
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
	says(c, "route", PST_CHECK_UNNEEDED, "no accelerator");
	says(c, "acs", PST_CHECK_UNNEEDED, "no accelerator");
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
	says(c, "iommu", PST_CHECK_OK, "1 of 2 groups translate addresses, and no");
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
	put("/sys/kernel/iommu_groups/1/type", "DMA-FQ\n");
	T_EQ(accel_machine(root, "6.1.0", c), ACCEL_CHECKS);
	says(c, "iommu", PST_CHECK_UNKNOWN, "1 of 1 groups translate addresses: transfers");
	says(c, "kernel", PST_CHECK_MISSING, "boot 6.2 or newer");
	says(c, "p2pdma", PST_CHECK_MISSING, "is not set");
	says(c, "dma-heap", PST_CHECK_OK, "heap5 and more");
	end();
}

/* ------------------------------------------------------------------- PCI */

enum acs { NO_ACS, IDLE_ACS, REDIRECTS, CUT, UNREADABLE };

/* Add a device at the end of a path of bridges, in /sys/devices and /sys/bus/pci/devices. */
static void pci(const char *way, enum acs acs)
{
	const char *address = strrchr(way, '/') + 1;
	char name[300], target[400], link[600];
	unsigned char config[512] = { 0 };
	size_t len = acs == CUT ? 64 : sizeof(config);
	FILE *f;

	config[0x100] = PCI_EXT_CAP_ID_DSN; /* put another capability before ACS */
	config[0x102] = 1;
	config[0x103] = 0x14;
	config[0x140] = acs == NO_ACS ? PCI_EXT_CAP_ID_DSN : PCI_EXT_CAP_ID_ACS;
	config[0x140 + PCI_ACS_CTRL] = acs == REDIRECTS ? PCI_ACS_RR | PCI_ACS_CR : PCI_ACS_UF;
	(void)snprintf(name, sizeof(name), "/sys/devices/%s/vendor", way);
	put(name, "0x1da3\n");
	(void)snprintf(link, sizeof(link), "%s/sys/devices/%s/config", root, way);
	if (acs != UNREADABLE) {
		f = fopen(link, "we");
		T_CHECK(f);
		T_EQ(fwrite(config, 1, len, f), len);
		(void)fclose(f);
	}
	put("/sys/bus/pci/devices/none", "");
	(void)snprintf(target, sizeof(target), "../../../devices/%s", way);
	(void)snprintf(link, sizeof(link), "%s/sys/bus/pci/devices/%s", root, address);
	T_EQ(symlink(target, link), 0);
}

/* Add a device node of a class, for the device at the end of a path. */
static void node(const char *class, const char *name, const char *way)
{
	char text[300], target[400], link[600];

	(void)snprintf(text, sizeof(text), "/sys/class/%s/%s/dev", class, name);
	put(text, "");
	(void)snprintf(target, sizeof(target), "../../../devices/%s", way);
	(void)snprintf(link, sizeof(link), "%s/sys/class/%s/%s/device", root, class, name);
	T_EQ(symlink(target, link), 0);
}

#define ROOT_PORT "pci0000:00/0000:00:01.0"
#define UP ROOT_PORT "/0000:01:00.0"
#define ACCEL UP "/0000:02:00.0/0000:03:00.0"
#define NIC UP "/0000:02:01.0/0000:04:00.0"

/* An accelerator and a network card, each behind one downstream port of a switch. */
static void a_switch(enum acs left, enum acs right)
{
	begin();
	pci(ROOT_PORT, REDIRECTS); /* redirects above the switch, so not between the two devices */
	pci(UP, NO_ACS);
	pci(UP "/0000:02:00.0", left);
	pci(UP "/0000:02:01.0", right);
	pci(ACCEL, NO_ACS);
	pci(NIC, NO_ACS);
	node("accel", "accel0", ACCEL);
	node("infiniband", "mlx5_0", NIC);
}

static void bridges_redirect(void)
{
	struct pst_check c[ACCEL_CHECKS];

	a_switch(IDLE_ACS, NO_ACS);
	T_EQ(accel_machine(root, "6.12.1", c), ACCEL_CHECKS);
	says(c, "route", PST_CHECK_OK, "accel0 and mlx5_0 behind 0000:01:00.0");
	says(c, "acs", PST_CHECK_OK, "no bridge between them");
	end();
	a_switch(REDIRECTS, REDIRECTS);
	pci(UP "/0000:02:02.0", NO_ACS);
	pci(UP "/0000:02:02.0/0000:05:00.0", NO_ACS);
	node("nvme", "nvme0",
	     UP "/0000:02:02.0/0000:05:00.0"); /* the left bridge is also on this path */
	T_EQ(accel_machine(root, "6.12.1", c), ACCEL_CHECKS);
	says(c, "acs", PST_CHECK_MISSING, "ACS at 2 bridges");
	says(c, "acs", PST_CHECK_MISSING, "disable_acs_redir=0000:02:00.0;0000:02:01.0 (in quotes");
	end();
	a_switch(NO_ACS, REDIRECTS);
	T_EQ(accel_machine(root, "6.12.1", c), ACCEL_CHECKS);
	says(c, "acs", PST_CHECK_MISSING, "ACS at 1 bridge sends");
	says(c, "acs", PST_CHECK_MISSING, "disable_acs_redir=0000:02:01.0 (in quotes");
	end();
}

static void configurations_are_roots(void)
{
	struct pst_check c[ACCEL_CHECKS];

	a_switch(CUT, NO_ACS);
	T_EQ(accel_machine(root, "6.12.1", c), ACCEL_CHECKS);
	says(c, "acs", PST_CHECK_UNKNOWN, "the configuration of 0000:02:00.0 is for root");
	T_EQ(find(c, "acs")->err, EACCES);
	end();
	a_switch(NO_ACS, UNREADABLE);
	T_EQ(accel_machine(root, "6.12.1", c), ACCEL_CHECKS);
	says(c, "acs", PST_CHECK_UNKNOWN, "0000:02:01.0 cannot be read");
	T_EQ(find(c, "acs")->err, ENOENT);
	end();
	/* A bridge that redirects is reported even if another cannot be read. */
	a_switch(CUT, REDIRECTS);
	T_EQ(accel_machine(root, "6.12.1", c), ACCEL_CHECKS);
	says(c, "acs", PST_CHECK_MISSING, "disable_acs_redir=0000:02:01.0");
	end();
}

static void root_ports_are_apart(void)
{
	struct pst_check c[ACCEL_CHECKS];

	begin();
	pci("pci0000:00/0000:00:01.0", REDIRECTS);
	pci("pci0000:00/0000:00:02.0", REDIRECTS);
	pci("pci0000:00/0000:00:01.0/0000:01:00.0", NO_ACS);
	pci("pci0000:00/0000:00:02.0/0000:02:00.0", NO_ACS);
	node("drm", "renderD128", "pci0000:00/0000:00:01.0/0000:01:00.0");
	node("nvme", "nvme0", "pci0000:00/0000:00:02.0/0000:02:00.0");
	T_EQ(accel_machine(root, "6.12.1", c), ACCEL_CHECKS);
	says(c, "route", PST_CHECK_UNKNOWN,
	     "1 of 1 pairs share no bridge, such as renderD128 (0000:01:00.0) and nvme0");
	says(c, "acs", PST_CHECK_OK, "no bridge is above both");
	end();
	/* One host bridge below another, such as Intel's VMD: a bridge above both is no common
	 * path. */
	begin();
	pci("pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:01.0/10000:e1:00.0", NO_ACS);
	pci("pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:02.0/10000:e2:00.0", NO_ACS);
	node("accel", "accel0", "pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:01.0/10000:e1:00.0");
	node("nvme", "nvme0", "pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:02.0/10000:e2:00.0");
	T_EQ(accel_machine(root, "6.12.1", c), ACCEL_CHECKS);
	says(c, "route", PST_CHECK_UNKNOWN, "accel0 (10000:e1:00.0) and nvme0 (10000:e2:00.0)");
	end();
}

static void one_device_is_no_pair(void)
{
	struct pst_check c[ACCEL_CHECKS];

	begin();
	pci("pci0000:00/0000:00:01.0", NO_ACS);
	put("/sys/devices/pci0000:00/0000:00:01.0/p2pmem/allocate", "");
	T_EQ(accel_machine(root, "6.12.1", c), ACCEL_CHECKS);
	says(c, "route", PST_CHECK_UNNEEDED, "no network card");
	says(c, "acs", PST_CHECK_UNNEEDED, "no network card");
	node("nvme", "nvme0", "pci0000:00/0000:00:01.0");
	T_EQ(accel_machine(root, "6.12.1", c), ACCEL_CHECKS);
	says(c, "route", PST_CHECK_UNNEEDED, "one device");
	end();
	begin();
	pci("pci0000:00/0000:00:01.0", NO_ACS);
	node("nvme", "nvme0", "pci0000:00/0000:00:01.0");
	T_EQ(accel_machine(root, "6.12.1", c), ACCEL_CHECKS);
	says(c, "route", PST_CHECK_UNNEEDED, "no accelerator");
	end();
}

static void the_iommu_is_of_devices(void)
{
	struct pst_check c[ACCEL_CHECKS];

	a_switch(NO_ACS, NO_ACS);
	put("/sys/kernel/iommu_groups/7/type", "DMA\n");
	put("/sys/devices/" ACCEL "/iommu_group/type", "identity\n");
	T_EQ(accel_machine(root, "6.12.1", c), ACCEL_CHECKS);
	says(c, "iommu", PST_CHECK_OK, "1 of 1 groups translate addresses, and no accelerator");
	put("/sys/devices/" NIC "/iommu_group/type", "DMA-FQ\n");
	T_EQ(accel_machine(root, "6.12.1", c), ACCEL_CHECKS);
	says(c, "iommu", PST_CHECK_UNKNOWN, "those of mlx5_0: transfers");
	says(c, "iommu", PST_CHECK_UNKNOWN, "iommu=pt");
	put("/sys/devices/" ACCEL "/iommu_group/type", "DMA\n");
	T_EQ(accel_machine(root, "6.12.1", c), ACCEL_CHECKS);
	says(c, "iommu", PST_CHECK_UNKNOWN, "those of accel0 and others");
	end();
}

static void devices(void)
{
	struct pst_check c;

	T_EQ(accel_device("host", &c), 1);
	T_EQ(c.state, PST_CHECK_UNNEEDED);
	T_EQ(accel_device("dmabuf", &c), 1);
	T_EQ(c.state, PST_CHECK_OK);
	/* The state depends on whether the machine has /dev/udmabuf. */
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
	T_RUN(bridges_redirect);
	T_RUN(configurations_are_roots);
	T_RUN(root_ports_are_apart);
	T_RUN(one_device_is_no_pair);
	T_RUN(the_iommu_is_of_devices);
	T_RUN(devices);
	return t_done();
}
