/* SPDX-License-Identifier: MIT */
/* nvidia-fs and P2PDMA: what each needs, and that one of them is enough. */
#include "gds_rig.h"

#define VERSION "NVRM version: NVIDIA UNIX "
#define OPEN_DRIVER VERSION "Open Kernel Module for x86_64  580.159.04  Release Build  (x)\n"
#define SET_REGISTRY                                                                              \
	"options nvidia NVreg_RegistryDwords=\"RMForceStaticBar1=1;RmForceDisableIomapWC=1\" in " \
	"/etc/modprobe.d/ (and in the initramfs)"

static void lacks(const char *begin, const char *end)
{
	T_CHECK(ask(GPU) == 10);
	says("p2pdma", PST_CHECK_MISSING, begin, end);
}

static void has(const char *begin, const char *end)
{
	T_CHECK(ask(GPU) == 10);
	says("p2pdma", PST_CHECK_OK, begin, end);
}

static void whole(void)
{
	machine();
	on("xfs", "src", "rw");
	gpu("pci0000:16/0000:16:01.0/" GPU);
	nvme("pci0000:40/0000:40:01.0/0000:41:00.0", 0, 1);
	p2pdma();
}

static void each_thing_that_p2pdma_wants(void)
{
	whole();
	has("kernel 6.8.0-71-generic has P2PDMA, and the GPU's driver", "told to use it");
	put("/proc/kallsyms", SYMBOLS "0000000000000000 T dma_pci_p2pdma_supported\n");
	lacks("kernel 6.8.0-71-generic has no CONFIG_PCI_P2PDMA; boot a kernel with", "P2PDMA=y");
	whole();
	put("/proc/sys/kernel/osrelease", "5.15.0-100-generic\n");
	lacks("kernel 5.15.0-100-generic is older than 6.2; boot a newer one", "");
	put("/proc/sys/kernel/osrelease", "5.14.0-427.el9.x86_64\n");
	has("kernel 5.14.0-427.el9.x86_64 has P2PDMA", "");
	put("/proc/sys/kernel/osrelease", "6.1.0\n");
	lacks("kernel 6.1.0 is older than 6.2", "");
	whole();
	put("/proc/driver/nvidia/version", VERSION "x86_64 Kernel Module  580.82.07  Thu\n");
	lacks("GPU driver 580 is not the open one; install the open kernel modules, 565", "newer");
	put("/proc/driver/nvidia/version", VERSION "Open Kernel Module for x86_64  550.54.14  R\n");
	lacks("GPU driver 550 is older than 565; install a newer one", "");
	whole();
	put("/proc/driver/nvidia/params", "RegistryDwords: \"RmForceDisableIomapWC=1\"\n");
	lacks("the GPU driver was not told RMForceStaticBar1=1; " SET_REGISTRY, "");
	put("/proc/driver/nvidia/params", "RegistryDwords: \"rmforcestaticbar1=2\"\n");
	lacks("the GPU driver was not told RmForceDisableIomapWC=1; " SET_REGISTRY, "");
	put("/proc/driver/nvidia/params",
	    "RegistryDwordsPerDevice: \"RMForceStaticBar1=2;RmForceDisableIomapWC=1\"\n");
	has("kernel", "");
	put("/sys/devices/pci0000:16/0000:16:01.0/" GPU "/resource",
	    "0x00000000f0000000 0x00000000f0ffffff 0x0000000000040200\n"
	    "0x0000380000000000 0x000038000fffffff 0x000000000014220c\n");
	lacks("the GPU shows 256 MiB of its memory (BAR1); turn on Resizable BAR in the",
	      "firmware");
	put("/sys/devices/pci0000:16/0000:16:01.0/" GPU "/resource",
	    "0x0 0x0 0x0\n0x0000380000000000 0x0000383fffffffff 0x000000000014220c\n");
	has("kernel", "");
	/* Lines after the sixth are BARs of virtual functions.  Malformed lines are ignored. */
	put("/sys/devices/pci0000:16/0000:16:01.0/" GPU "/resource",
	    "x\n0x10 0x1 0x0\n0x1 0xfffff 0x0\n\n\n\n0x10 0xffffffffffff 0x0\n");
	lacks("the GPU shows 0 MiB of its memory", "");
	machine_gone();
}

static void all_that_p2pdma_wants(void)
{
	whole();
	put("/proc/kallsyms", SYMBOLS);
	put("/proc/driver/nvidia/version", VERSION "x86_64 Kernel Module  535.104.05  Thu\n");
	put("/proc/driver/nvidia/params", "RegistryDwords: \"\"\n");
	lacks("kernel 6.8.0-71-generic has no CONFIG_PCI_P2PDMA, GPU driver 535 is not the open "
	      "one, the GPU driver was not told RMForceStaticBar1=1; "
	      "boot a kernel with CONFIG_PCI_P2PDMA=y, install the open kernel modules, 565 or "
	      "newer",
	      SET_REGISTRY);
	/* Missing things that do not fit into the text are left out, with their cures. */
	put("/sys/devices/pci0000:16/0000:16:01.0/" GPU "/resource", "0x1000 0x1fff 0x0\n");
	put("/proc/sys/kernel/osrelease", "6.8.0-%060d\n", 1);
	block("/sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1", 259, 1);
	lacks("kernel 6.8.0-0000000000",
	      "(and in the initramfs), turn on Resizable BAR in the firmware");
	T_CHECK(strstr(fact("p2pdma")->text, " of its memory (BAR1); boot a kernel with"));
	T_CHECK(!strstr(fact("p2pdma")->text, "multipath"));
	machine_gone();
}

/* Without kernel symbols, the configuration file is read. */
static void configurations_of_kernels(void)
{
	static const char *const files[] = { "/boot/config-6.8.0-71-generic",
					     "/lib/modules/6.8.0-71-generic/config",
					     "/lib/modules/6.8.0-71-generic/build/.config" };

	for (unsigned i = 0; i < ARRAY_SIZE(files); i++) {
		whole();
		forget("/proc/kallsyms");
		T_EQ(ask(GPU), 10);
		says("p2pdma", PST_CHECK_UNKNOWN,
		     "whether kernel 6.8.0-71-generic has CONFIG_PCI_P2PDMA cannot be read here;",
		     "zgrep P2PDMA /proc/config.gz");
		says("nvidia-fs", PST_CHECK_UNKNOWN, "nvidia-fs is not loaded; install",
		     ", unless P2PDMA works, which is not known");
		put(files[i], "CONFIG_PCI=y\n# CONFIG_PCI_P2PDMA is not set\n");
		lacks("kernel 6.8.0-71-generic has no CONFIG_PCI_P2PDMA", "");
		put(files[i], "CONFIG_PCI=y\nCONFIG_PCI_P2PDMA=y\n");
		has("kernel", "");
	}
	put("/proc/kallsyms", "nosymbol\n\n");
	has("kernel", "");
	/* A release with a slash must not lead to another folder. */
	put("/proc/sys/kernel/osrelease", "x/../config-6.8.0\n");
	put("/boot/config-6.8.0", "# nothing\n");
	put_dir("/boot/config-x");
	T_EQ(ask(GPU), 10);
	says("p2pdma", PST_CHECK_UNKNOWN, "whether kernel x/../config-6.8.0 has", "");
	machine_gone();
}

/* A pool that the driver gave to P2PDMA is better proof than its parameters. */
static void a_pool_is_proof(void)
{
	machine();
	on("xfs", "src", "rw");
	gpu("pci0000:16/0000:16:01.0/" GPU);
	put("/sys/devices/pci0000:16/0000:16:01.0/" GPU "/p2pmem/size", "85899345920\n");
	has("the GPU's driver gave 81920 MiB to P2PDMA (p2pmem)", "(p2pmem)");
	put("/sys/module/nvme_core/parameters/multipath", "Y\n");
	has("the GPU's driver gave", "nvme_core.multipath is Y where NVIDIA asks for N");
	put("/sys/devices/pci0000:16/0000:16:01.0/" GPU "/p2pmem/size", "0\n");
	lacks("the NVIDIA driver is not loaded", "");
	p2pdma();
	T_EQ(ask(GPU), 10);
	says("p2pdma", PST_CHECK_UNKNOWN,
	     "kernel and driver are set up for P2PDMA, but the pool of GPU " GPU
	     " (p2pmem) is empty",
	     "Resizable BAR is on");
	forget("/sys/devices/pci0000:16/0000:16:01.0/" GPU "/p2pmem");
	has("kernel", "nvme_core.multipath is Y where NVIDIA asks for N");
	machine_gone();
}

/* P2PDMA does not reach remote files. */
static void remote_files(void)
{
	machine();
	on("nfs4", "server:/x", "rw,proto=rdma");
	p2pdma();
	lacks("P2PDMA reaches NVMe disks of this machine alone, not nfs4; set up nvidia-fs", "");
	says("nvidia-fs", PST_CHECK_MISSING, "nvidia-fs is not loaded; install", "");
	nvidia_fs();
	T_EQ(ask(GPU), 10);
	says("p2pdma", PST_CHECK_UNNEEDED,
	     "P2PDMA reaches NVMe disks of this machine alone, not nfs4,",
	     "but nvidia-fs stands in for it");
	machine_gone();
}

static void nvidia_fs_and_its_driver_of_nvme(void)
{
	whole();
	nvidia_fs();
	put("/proc/driver/nvidia/params", "\n");
	T_EQ(ask(GPU), 10);
	says("nvidia-fs", PST_CHECK_MISSING,
	     "nvidia-fs is loaded, but the driver of NVMe cannot call it",
	     "(mlnx-nvme-dkms), or set up P2PDMA");
	put("/proc/kallsyms", SYMBOLS "0 T nvme_v2_register_nvfs_dma_ops\t[nvme]\n");
	T_EQ(ask(GPU), 10);
	says("nvidia-fs", PST_CHECK_OK, "nvidia-fs is loaded, version: 2.28, devices: 16", "");
	forget("/proc/kallsyms");
	T_EQ(ask(GPU), 10);
	says("nvidia-fs", PST_CHECK_OK, "nvidia-fs is loaded", "");
	forget("/proc/driver/nvidia-fs");
	T_EQ(ask(GPU), 10);
	says("nvidia-fs", PST_CHECK_OK, "nvidia-fs is loaded", "loaded");
	forget("/dev/nvidia-fs0");
	put("/sys/module/nvidia_fs/version", "2.28\n");
	T_EQ(ask(GPU), 10);
	says("nvidia-fs", PST_CHECK_MISSING,
	     "nvidia-fs is loaded, but /dev/nvidia-fs0 cannot be used", "");
	machine_gone();
}

static void one_is_enough(void)
{
	static const struct {
		int a, b, want_a, want_b;
	} t[] = {
		{ PST_CHECK_OK, PST_CHECK_MISSING, PST_CHECK_OK, PST_CHECK_UNNEEDED },
		{ PST_CHECK_MISSING, PST_CHECK_OK, PST_CHECK_UNNEEDED, PST_CHECK_OK },
		{ PST_CHECK_OK, PST_CHECK_OK, PST_CHECK_OK, PST_CHECK_OK },
		{ PST_CHECK_MISSING, PST_CHECK_MISSING, PST_CHECK_MISSING, PST_CHECK_MISSING },
		{ PST_CHECK_MISSING, PST_CHECK_UNKNOWN, PST_CHECK_UNKNOWN, PST_CHECK_UNKNOWN },
		{ PST_CHECK_OK, PST_CHECK_UNKNOWN, PST_CHECK_OK, PST_CHECK_UNKNOWN },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
		struct gds_fact a = { .state = t[i].a, .text = "a; b" };
		struct gds_fact b = { .state = t[i].b, .text = "c; d" };

		gds_stand_in(&a, &b, false);
		T_EQ(a.state, t[i].want_a);
		T_EQ(b.state, t[i].want_b);
	}
}

static void shared_memory_needs_neither(void)
{
	struct gds_fact a = { .state = PST_CHECK_MISSING }, b = { .state = PST_CHECK_MISSING };

	memset(a.text, 'a', sizeof(a.text) - 1); /* the text then fills its buffer */
	gds_copy(b.text, sizeof(b.text), "there is none; get one");
	gds_stand_in(&a, &b, true);
	T_EQ(a.state, PST_CHECK_UNKNOWN);
	T_EQ(strlen(a.text), sizeof(a.text) - 1);
	T_EQ(b.state, PST_CHECK_UNKNOWN);
	T_CHECK(!strcmp(b.text,
			"not needed where CPU and GPU share memory, which is not known; else: "
			"there is none; get one"));
}

static void the_gate(void)
{
	machine();
#ifdef __aarch64__
	T_CHECK(gds_kernel_may(rig.root));
	machine_gone();
	T_SKIP("on this CPU the gate is always open");
#endif
	T_CHECK(!gds_kernel_may(rig.root));
	put("/proc/driver/nvidia/params", "RegistryDwords: \"\"\n");
	T_CHECK(!gds_kernel_may(rig.root));
	put("/proc/driver/nvidia/params", "RegistryDwords: \"ForceP2P=0;rmforcestaticbar1=1\"\n");
	T_CHECK(gds_kernel_may(rig.root));
	put("/proc/driver/nvidia/params", "RegistryDwords: \"RMForceStaticBar1=2\"\n");
	T_CHECK(gds_kernel_may(rig.root));
	put("/proc/driver/nvidia/params", "RegistryDwords: \"RMForceStaticBar1=0\"\n");
	T_CHECK(!gds_kernel_may(rig.root));
	put_dir("/proc/driver/nvidia-fs");
	T_CHECK(gds_kernel_may(rig.root));
	machine();
	put("/dev/nvidia-fs0", "x");
	T_CHECK(gds_kernel_may(rig.root));
	machine_gone();
}

int main(void)
{
	T_RUN(each_thing_that_p2pdma_wants);
	T_RUN(all_that_p2pdma_wants);
	T_RUN(configurations_of_kernels);
	T_RUN(a_pool_is_proof);
	T_RUN(remote_files);
	T_RUN(nvidia_fs_and_its_driver_of_nvme);
	T_RUN(one_is_enough);
	T_RUN(shared_memory_needs_neither);
	T_RUN(the_gate);
	return t_done();
}
