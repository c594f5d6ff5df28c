/* SPDX-License-Identifier: MIT */
/* The GPU, and the PCI bridges between it and the disks. */
#include <linux/pci_regs.h>

#include "gds_rig.h"

#define PORT "pci0000:16/0000:16:01.0"

/* Make a GPU and a disk behind one switch, with these ACS bits at its ports. */
static void one_switch(unsigned up, unsigned gpu_side, unsigned disk_side)
{
	machine();
	on("xfs", "src", "rw");
	bridge(PORT, 0);
	bridge(SWITCH, up);
	bridge(SWITCH "/0000:18:00.0", gpu_side);
	bridge(SWITCH "/0000:18:01.0", disk_side);
	gpu(SWITCH "/0000:18:00.0/0000:1a:00.0");
	nvme(SWITCH "/0000:18:01.0/0000:1b:00.0", 0, 1);
	T_EQ(ask("0000:1A:00.0"), 10);
}

static void addresses(void)
{
	static const char *const good[] = { "0000:17:00.0", "10000:e1:00.0", "00000000:FF:1f.7" };
	static const char *const bad[] = { "",
					   "0000",
					   "000:17:00.0",
					   "0000:17",
					   "0000:17:00",
					   "0000:17:00.",
					   "17:00.0",
					   "0000:17:00.8",
					   "0000:17:00.0x",
					   "0000:7:00.0",
					   "0000-17:00.0",
					   "000000000:17:00.0",
					   "0000:17:00.0/",
					   "0000:117:00.0" };
	char pci_name[GDS_PCI_MAX];

	for (unsigned i = 0; i < ARRAY_SIZE(good); i++)
		T_CHECK(gds_is_pci(good[i]));
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
		if (gds_is_pci(bad[i]))
			T_FAIL("taken: %s", bad[i]);
	gds_pci_of("/sys/devices/" SWITCH "/nvme/nvme0/nvme0n1", pci_name);
	T_CHECK(!strcmp(pci_name, GPU));
	gds_pci_of("/sys/devices/virtual/block/md0", pci_name);
	T_CHECK(!*pci_name);
}

static void what_a_gpu_may_be(void)
{
	char path[1024];

	machine();
	put_dir("/sys/bus/pci/devices");
	T_EQ(ask(GPU), 10);
	says("gpu", PST_CHECK_MISSING, "there is no PCI device " GPU " (ENOENT",
	     "for those of NVIDIA");
	pci(PORT "/" GPU, "0x8086");
	T_EQ(ask(GPU), 10);
	says("gpu", PST_CHECK_MISSING, "the PCI device " GPU " is of vendor 0x8086, not of NVIDIA;",
	     "-d 10de:");
	pci(PORT "/" GPU, "0x10de");
	T_EQ(ask(GPU), 10);
	says("gpu", PST_CHECK_MISSING, "no driver is bound to GPU " GPU "; modprobe nvidia", "");
	T_EQ(fact("gpu")->err, 0);
	put_dir("/sys/bus/pci/drivers/vfio-pci");
	put_link("/sys/devices/" PORT "/" GPU "/driver", "/sys/bus/pci/drivers/vfio-pci");
	T_EQ(ask(GPU), 10);
	says("gpu", PST_CHECK_MISSING, "GPU " GPU " is bound to the driver vfio-pci; unbind it",
	     "(/sys/bus/pci/drivers/vfio-pci/unbind) and modprobe nvidia");
	gpu(PORT "/" GPU);
	T_EQ(ask(GPU), 10);
	says("gpu", PST_CHECK_OK, GPU ", on the driver nvidia", "nvidia");
	at(path, "/sys/devices/" PORT "/" GPU "/driver");
	T_EQ(unlink(path), 0);
	T_EQ(symlink("/", path), 0); /* leads out of /sys */
	T_EQ(ask(GPU), 10);
	says("gpu", PST_CHECK_MISSING, "no driver is bound to GPU " GPU, "");
	machine_gone();
}

static void group(const char *way, const char *type)
{
	char path[256];

	(void)snprintf(path, sizeof(path), "/sys/devices/%s/iommu_group/type", way);
	put(path, "%s\n", type);
}

static void iommus(void)
{
	one_switch(0, 0, 0);
	says("iommu", PST_CHECK_OK, "no IOMMU is in use (0000:1a:00.0 and what is below", "file)");
	group(SWITCH "/0000:18:00.0/0000:1a:00.0", "identity");
	group(SWITCH "/0000:18:01.0/0000:1b:00.0", "identity");
	T_EQ(ask("0000:1a:00.0"), 10);
	says("iommu", PST_CHECK_OK, "the IOMMU leaves addresses as they are (0000:1a:00.0",
	     "file)");
	group(SWITCH "/0000:18:01.0/0000:1b:00.0", "DMA-FQ");
	T_EQ(ask("0000:1a:00.0"), 10);
	says("iommu", PST_CHECK_MISSING,
	     "the IOMMU translates the addresses of 0000:1b:00.0 (DMA-FQ), and what a disk sends",
	     "boot with iommu=pt, or without (intel_iommu=off, amd_iommu=off)");
	group(SWITCH "/0000:18:00.0/0000:1a:00.0", "DMA");
	T_EQ(ask("0000:1a:00.0"), 10);
	says("iommu", PST_CHECK_MISSING, "the IOMMU translates the addresses of 0000:1a:00.0 (DMA)",
	     "amd_iommu=off)");
	T_EQ(ask(NULL), 7);
	says("iommu", PST_CHECK_MISSING, "the IOMMU translates the addresses of 0000:1b:00.0",
	     "off)");
	forget("/sys/devices/" SWITCH "/0000:18:01.0/0000:1b:00.0/iommu_group/type");
	T_EQ(ask(NULL), 7);
	says("iommu", PST_CHECK_UNKNOWN, "the IOMMU group of 0000:1b:00.0 cannot be read: ENOENT",
	     "");
	machine_gone();
}

static void no_disk_of_pci(void)
{
	machine();
	on("xfs", "src", "rw");
	block("/sys/devices/virtual/block/loop0", 259, 1);
	gpu(SWITCH);
	T_EQ(ask(NULL), 7);
	says("iommu", PST_CHECK_UNKNOWN, "loop0 has no PCI address", "");
	T_EQ(ask(GPU), 10);
	says("acs", PST_CHECK_UNKNOWN, "loop0 has no PCI address", "");
	says("distance", PST_CHECK_UNKNOWN, "loop0 has no PCI address", "");
	forget("/sys/bus/pci/devices");
	forget("/sys/dev/block");
	nvme(SWITCH "/0000:18:01.0/0000:1b:00.0", 0, 1);
	T_EQ(ask(GPU), 10);
	says("acs", PST_CHECK_UNKNOWN, "the place of " GPU " on PCI is not known", "");
	says("distance", PST_CHECK_UNKNOWN, "the place of " GPU " on PCI is not known", "");
	gpu(SWITCH);
	forget("/sys/bus/pci/devices/0000:1b:00.0");
	T_EQ(ask(GPU), 10);
	says("acs", PST_CHECK_UNKNOWN, "the place of nvme0n1 on PCI is not known", "");
	says("distance", PST_CHECK_UNKNOWN, "the place of nvme0n1 on PCI is not known", "");
	machine_gone();
}

static void bridges_that_redirect(void)
{
	one_switch(0, 0, 0);
	says("acs", PST_CHECK_OK, "no bridge between GPU and disk sends requests up to the root",
	     "");
	one_switch(0, PCI_ACS_RR | PCI_ACS_SV, PCI_ACS_CR);
	says("acs", PST_CHECK_MISSING,
	     "ACS sends what passes between GPU and disk up to the root, at 2 bridges; boot with "
	     "pci=disable_acs_redir=0000:18:00.0;0000:18:01.0 (in quotes",
	     "setpci -s ADDRESS ECAP_ACS+6.w=0:2c for each");
	one_switch(PCI_ACS_EC, 0, 0);
	says("acs", PST_CHECK_MISSING,
	     "ACS sends what passes between GPU and disk up to the root, at 1 bridge; boot with "
	     "pci=disable_acs_redir=" GPU " (in",
	     "");
	/* Source validation and upstream forwarding redirect nothing. */
	one_switch(PCI_ACS_SV | PCI_ACS_UF, PCI_ACS_UF | PCI_ACS_TB, PCI_ACS_DT);
	says("acs", PST_CHECK_OK, "no bridge between", "");
	/* Bridges above both devices are not on the path. */
	one_switch(0, 0, 0);
	acs(PORT, PCI_ACS_RR);
	T_EQ(ask("0000:1a:00.0"), 10);
	says("acs", PST_CHECK_OK, "no bridge between", "");
	machine_gone();
}

/* Configuration space as a user without root sees it, then an empty file. */
static void bridges_that_cannot_be_read(void)
{
	uint8_t config[64] = { 0 };

	one_switch(0, 0, 0);
	put_bytes("/sys/devices/" SWITCH "/0000:18:01.0/config", config, sizeof(config));
	T_EQ(ask("0000:1a:00.0"), 10);
	says("acs", PST_CHECK_UNKNOWN,
	     "the configuration of 0000:18:01.0 is for root to read, so ACS", "ask again as root");
	T_EQ(fact("acs")->err, 0);
	forget("/sys/devices/" SWITCH "/0000:18:01.0/config");
	T_EQ(ask("0000:1a:00.0"), 10);
	says("acs", PST_CHECK_UNKNOWN, "the configuration of 0000:18:01.0 cannot be read, so ACS",
	     ")");
	/* A bridge that is known to redirect is still reported. */
	acs(SWITCH "/0000:18:00.0", PCI_ACS_RR);
	T_EQ(ask("0000:1a:00.0"), 10);
	says("acs", PST_CHECK_MISSING, "ACS sends", "each");
	machine_gone();
}

/* More bridges than fit into the text: it names the first ones, and says that there are others. */
static void many_bridges_that_redirect(void)
{
	char way[500] = SWITCH, disk[512];

	machine();
	on("xfs", "src", "rw");
	bridge(SWITCH, 0);
	gpu(SWITCH "/0000:18:00.0");
	for (int i = 0; i < 20; i++) {
		(void)sprintf(way + strlen(way), "/0000:%02x:00.0", 0x20 + i);
		bridge(way, PCI_ACS_RR);
	}
	(void)snprintf(disk, sizeof(disk), "%s/0000:40:00.0", way);
	nvme(disk, 0, 1);
	T_EQ(ask("0000:18:00.0"), 10);
	says("acs", PST_CHECK_MISSING,
	     "ACS sends what passes between GPU and disk up to the root, at 18 ",
	     "0000:31:00.0 (in quotes for the boot loader), or until then setpci -s ADDRESS "
	     "ECAP_ACS+6.w=0:2c for each; then look for more");
	machine_gone();
}

static void set_cap(uint8_t *config, unsigned at_, unsigned id, unsigned next)
{
	config[at_] = (uint8_t)id;
	config[at_ + 1] = (uint8_t)(id >> 8);
	config[at_ + 2] = (uint8_t)(1 | next << 4);
	config[at_ + 3] = (uint8_t)(next >> 4);
}

static void lists_of_capabilities(void)
{
	uint8_t c[4096] = { 0 };

	T_EQ(gds_acs_redirects(c, 0), -EACCES);
	T_EQ(gds_acs_redirects(c, 64), -EACCES);
	T_EQ(gds_acs_redirects(c, 256), 0); /* without extended capabilities */
	T_EQ(gds_acs_redirects(c, 4096), 0);
	set_cap(c, 0x100, PCI_EXT_CAP_ID_ERR, 0x200);
	set_cap(c, 0x200, PCI_EXT_CAP_ID_ACS, 0);
	c[0x206] = PCI_ACS_RR;
	T_EQ(gds_acs_redirects(c, 4096), 1);
	T_EQ(gds_acs_redirects(c, 0x207), 0); /* the file ends inside the capability */
	T_EQ(gds_acs_redirects(c, 0x200), 0);
	set_cap(c, 0x100, PCI_EXT_CAP_ID_ERR, 0x100); /* a capability that links to itself */
	T_EQ(gds_acs_redirects(c, 4096), 0);
	set_cap(c, 0x100, PCI_EXT_CAP_ID_ERR, 0x40); /* a link to before the first capability */
	T_EQ(gds_acs_redirects(c, 4096), 0);
	set_cap(c, 0x100, PCI_EXT_CAP_ID_ERR, 0xffc); /* a capability at the last word */
	set_cap(c, 0xffc, PCI_EXT_CAP_ID_ACS, 0);
	T_EQ(gds_acs_redirects(c, 4096), 0);
	memset(c, 0xff, sizeof(c)); /* a device that has been removed */
	T_EQ(gds_acs_redirects(c, 4096), 0);
}

static void distances(void)
{
	one_switch(0, 0, 0);
	says("distance", PST_CHECK_OK, "GPU and nvme0n1 are both below the bridge " GPU ", 2 and 2",
	     "");
	T_EQ(ask("0000:1b:00.0"), 10); /* the disk is the bridge's own device */
	says("distance", PST_CHECK_OK, "GPU and nvme0n1 are both below the bridge 0000:1b:00.0, 0",
	     "");

	machine();
	on("xfs", "src", "rw");
	gpu("pci0000:16/0000:16:01.0/" GPU);
	nvme("pci0000:16/0000:16:02.0/0000:1b:00.0", 0, 1);
	put("/sys/devices/pci0000:16/0000:16:01.0/" GPU "/numa_node", "0\n");
	put("/sys/devices/pci0000:16/0000:16:02.0/0000:1b:00.0/numa_node", "0\n");
	T_EQ(ask(GPU), 10);
	says("distance", PST_CHECK_UNKNOWN,
	     "GPU and nvme0n1 share no bridge: bytes pass the CPU's root complex (pci0000:16, "
	     "pci0000:16)",
	     "best is a disk behind the GPU's own switch");
	put("/sys/devices/pci0000:16/0000:16:02.0/0000:1b:00.0/numa_node", "1\n");
	T_EQ(ask(GPU), 10);
	says("distance", PST_CHECK_UNKNOWN,
	     "the GPU is on NUMA node 0, nvme0n1 on node 1: bytes cross between CPUs",
	     "use a disk on node 0");
	machine_gone();
}

/* A disk behind another host bridge, such as Intel's VMD: bridges above it are not shared. */
static void a_host_bridge_below_another(void)
{
	machine();
	on("xfs", "src", "rw");
	gpu("pci0000:16/0000:16:01.0/" GPU);
	nvme("pci0000:16/0000:16:01.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0", 0, 1);
	T_EQ(ask(GPU), 10);
	says("disk", PST_CHECK_OK, "nvme0n1 (10000:e1:00.0)", "");
	says("distance", PST_CHECK_UNKNOWN,
	     "GPU and nvme0n1 share no bridge: bytes pass the CPU's root "
	     "complex (pci0000:16, pci10000:e0)",
	     "");
	machine_gone();
}

/* Of several disks, the worst one is reported. */
static void several_disks(void)
{
	one_switch(0, 0, PCI_ACS_RR);
	nvme("pci0000:40/0000:40:01.0/0000:41:00.0", 1, 2);
	put_link("/sys/devices/virtual/block/md0/slaves/nvme0n1",
		 "/sys/devices/" SWITCH "/0000:18:01.0/0000:1b:00.0/nvme/nvme0/nvme0n1");
	put_link("/sys/devices/virtual/block/md0/slaves/nvme1n1",
		 "/sys/devices/pci0000:40/0000:40:01.0/0000:41:00.0/nvme/nvme1/nvme1n1");
	block("/sys/devices/virtual/block/md0", 259, 1);
	T_EQ(ask("0000:1a:00.0"), 10);
	says("acs", PST_CHECK_MISSING, "ACS sends", "each");
	says("distance", PST_CHECK_UNKNOWN, "GPU and nvme1n1 share no bridge", "");
	group("pci0000:40/0000:40:01.0/0000:41:00.0", "DMA");
	T_EQ(ask("0000:1a:00.0"), 10);
	says("iommu", PST_CHECK_MISSING, "the IOMMU translates the addresses of 0000:41:00.0", "");
	machine_gone();
}

int main(void)
{
	T_RUN(addresses);
	T_RUN(what_a_gpu_may_be);
	T_RUN(iommus);
	T_RUN(no_disk_of_pci);
	T_RUN(bridges_that_redirect);
	T_RUN(bridges_that_cannot_be_read);
	T_RUN(many_bridges_that_redirect);
	T_RUN(lists_of_capabilities);
	T_RUN(distances);
	T_RUN(a_host_bridge_below_another);
	T_RUN(several_disks);
	return t_done();
}
