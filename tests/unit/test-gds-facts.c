/* SPDX-License-Identifier: MIT */
/* All facts of whole machines. */
#include "gds_rig.h"

static const char *const names[] = { "gpu",  "nvidia-fs", "p2pdma", "filesystem", "disk",
				     "udev", "direct-io", "iommu",  "acs",        "distance" };

static void bare_metal_with_nvidia_fs(void)
{
	machine();
	bridge(SWITCH, 0);
	gpu(SWITCH "/0000:18:00.0/0000:1a:00.0");
	bridge(SWITCH "/0000:18:00.0", 0);
	bridge(SWITCH "/0000:18:01.0", 0);
	nvme(SWITCH "/0000:18:01.0/0000:1b:00.0", 0, 0);
	put("/sys/devices/" SWITCH "/0000:18:01.0/0000:1b:00.0/nvme/nvme0/nvme0n1/nvme0n1p1/"
	    "partition",
	    "1\n");
	block("/sys/devices/" SWITCH "/0000:18:01.0/0000:1b:00.0/nvme/nvme0/nvme0n1/nvme0n1p1", 259,
	      1);
	on("ext4", "/dev/nvme0n1p1", "rw,data=ordered");
	udev("ext4");
	nvidia_fs();
	put("/proc/kallsyms", SYMBOLS "0000000000000000 T nvme_v1_register_nvfs_dma_ops\t[nvme]\n");
	put("/proc/sys/kernel/osrelease", "6.1.0\n");
	T_EQ(ask("0000:1a:00.0"), 10);
	for (int i = 0; i < 10; i++)
		T_CHECK(!strcmp(rig.list[i].name, names[i]));
	says("gpu", PST_CHECK_OK, "0000:1a:00.0, on the driver nvidia", "");
	says("nvidia-fs", PST_CHECK_OK, "nvidia-fs is loaded, version: 2.28, devices: 16", "");
	says("p2pdma", PST_CHECK_UNNEEDED, "kernel 6.1.0 has no CONFIG_PCI_P2PDMA",
	     ", but nvidia-fs stands in for it");
	says("filesystem", PST_CHECK_OK, "ext4 at /data", "");
	says("disk", PST_CHECK_OK, "nvme0n1p1 on nvme0n1 (0000:1b:00.0)", "");
	says("udev", PST_CHECK_OK, "/run/udev/data/b259:1 names ext4", "");
	says("direct-io", PST_CHECK_OK,
	     "O_DIRECT, with memory aligned to 512 and offsets to 512 bytes", "");
	says("iommu", PST_CHECK_OK, "no IOMMU is in use (0000:1a:00.0 and what is below the file)",
	     "");
	says("acs", PST_CHECK_OK, "no bridge between GPU and disk sends", "");
	says("distance", PST_CHECK_OK,
	     "GPU and nvme0n1 are both below the bridge 0000:17:00.0, 2 and 2 steps", "");
	machine_gone();
}

static void bare_metal_with_p2pdma(void)
{
	machine();
	gpu("pci0000:16/0000:16:01.0/" GPU);
	nvme("pci0000:40/0000:40:01.0/0000:41:00.0", 3, 1);
	on("xfs", "/dev/nvme3n1", "rw,noquota");
	udev("xfs");
	p2pdma();
	T_EQ(ask(GPU), 10);
	says("nvidia-fs", PST_CHECK_UNNEEDED, "nvidia-fs is not loaded",
	     ", but P2PDMA stands in for it");
	says("p2pdma", PST_CHECK_OK,
	     "kernel 6.8.0-71-generic has P2PDMA, and the GPU's driver was told", " to use it");
	says("filesystem", PST_CHECK_OK, "xfs at /data", "");
	says("disk", PST_CHECK_OK, "nvme3n1 (0000:41:00.0)", "");
	says("acs", PST_CHECK_OK, "no bridge is above both", "");
	says("distance", PST_CHECK_UNKNOWN,
	     "GPU and nvme3n1 share no bridge: bytes pass the CPU's root complex (pci0000:16, "
	     "pci0000:40)",
	     "switch");
	machine_gone();
}

/* A guest without udev, on a virtio disk. */
static void virtual_machine(void)
{
	machine();
	rig.dev = makedev(254, 0);
	gpu("pci0000:00/0000:00:07.0");
	pci("pci0000:00/0000:00:03.0", "0x1af4");
	block("/sys/devices/pci0000:00/0000:00:03.0/virtio1/block/vda", 254, 0);
	on("ext4", "/dev/vda", "rw,discard");
	put("/proc/sys/kernel/osrelease", "6.18.44\n");
	put("/proc/kallsyms", SYMBOLS);
	put("/proc/driver/nvidia/version",
	    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n");
	put("/proc/driver/nvidia/params", "RegistryDwords: \"\"\n");
	T_EQ(ask("0000:00:07.0"), 10);
	says("nvidia-fs", PST_CHECK_MISSING,
	     "nvidia-fs is not loaded; install the package nvidia-gds ",
	     "run modprobe nvidia-fs, or set up P2PDMA");
	says("p2pdma", PST_CHECK_MISSING,
	     "kernel 6.18.44 has no CONFIG_PCI_P2PDMA, the GPU driver was not told "
	     "RMForceStaticBar1=1; boot a kernel with CONFIG_PCI_P2PDMA=y, options nvidia ",
	     "\"RMForceStaticBar1=1;RmForceDisableIomapWC=1\" in /etc/modprobe.d/ (and in the "
	     "initramfs)");
	says("filesystem", PST_CHECK_OK, "ext4 at /data; nvidia-fs would need it", "data=ordered");
	says("disk", PST_CHECK_MISSING,
	     "vda is a virtio disk, and cuFile has a direct way to NVMe alone; put the file",
	     "by PCI passthrough of the drive");
	says("udev", PST_CHECK_MISSING,
	     "no udev runs here, and cuFile takes no file without its record;",
	     "write the lines E:ID_FS_USAGE=filesystem and E:ID_FS_TYPE=ext4 into "
	     "/run/udev/data/b254:0");
	says("acs", PST_CHECK_OK, "no bridge is above both", "");
	says("distance", PST_CHECK_UNKNOWN, "GPU and vda share no bridge", "switch");
	machine_gone();
}

static void container_on_overlay(void)
{
	machine();
	rig.dev = makedev(0, 53);
	gpu(SWITCH "/0000:18:00.0");
	on("overlay", "overlay", "rw,lowerdir=/a:/b,upperdir=/c,workdir=/d");
	put("/proc/driver/nvidia-fs/version", "version: 2.28\n");
	T_EQ(ask("0000:18:00.0"), 10);
	says("nvidia-fs", PST_CHECK_MISSING,
	     "nvidia-fs is loaded, but /dev/nvidia-fs0 cannot be used: ENOENT",
	     "all of /dev/nvidia-fs*, and the user the right to read and write them");
	T_EQ(fact("nvidia-fs")->err, ENOENT);
	says("filesystem", PST_CHECK_MISSING,
	     "overlay at /data is the layers of a container, and cuFile",
	     "(as a volume or a bind mount) and put the file there");
	says("disk", PST_CHECK_UNKNOWN, "overlay does not say which disk is below it", "");
	says("udev", PST_CHECK_UNKNOWN, "overlay has no block device", "");
	says("iommu", PST_CHECK_OK, "no IOMMU is in use (0000:18:00.0)", "");
	says("acs", PST_CHECK_UNKNOWN, "the disk is not known", "");
	says("distance", PST_CHECK_UNKNOWN, "the disk is not known", "");
	machine_gone();
}

static void no_gpu_is_named(void)
{
	machine();
	nvme("pci0000:40/0000:40:01.0/0000:41:00.0", 3, 1);
	on("xfs", "/dev/nvme3n1", "rw");
	T_EQ(ask(NULL), 7);
	for (int i = 0; i < rig.nr; i++)
		T_CHECK(strcmp(rig.list[i].name, "gpu") && strcmp(rig.list[i].name, "acs") &&
			strcmp(rig.list[i].name, "distance"));
	says("iommu", PST_CHECK_OK, "no IOMMU is in use (0000:41:00.0)", "");
	T_EQ(ask(""), 7);
	machine_gone();
}

/* With nothing mounted on /proc and /sys, every fact is unknown or missing. */
static void nothing_is_there(void)
{
	machine();
	T_EQ(ask(GPU), 10);
	says("gpu", PST_CHECK_UNKNOWN, "/sys/bus/pci is not there", "mount sysfs on /sys");
	says("nvidia-fs", PST_CHECK_MISSING, "nvidia-fs is not loaded", "P2PDMA");
	says("p2pdma", PST_CHECK_MISSING, "the NVIDIA driver is not loaded; ", "modprobe nvidia");
	says("filesystem", PST_CHECK_UNKNOWN, "the mount of the file is not in", "not known");
	says("disk", PST_CHECK_UNKNOWN, "/sys/dev/block/259:1 does not lead to a disk",
	     "not mounted");
	says("udev", PST_CHECK_MISSING, "no udev runs here", "b259:1");
	says("iommu", PST_CHECK_UNKNOWN, "the IOMMU group of " GPU " cannot be read: ENOENT", "");
	says("acs", PST_CHECK_UNKNOWN, "the disk is not known", "");
	says("distance", PST_CHECK_UNKNOWN, "the disk is not known", "");
	machine_gone();
}

static void what_cannot_be_looked_at(void)
{
	machine();
	T_EQ(ask("17:00.0"), -EINVAL);
	T_EQ(ask("../../../etc"), -EINVAL);
	T_EQ(ask("0000:17:00.0/.."), -EINVAL);
	T_EQ(ask("0000:17:00.8"), -EINVAL);
	T_CHECK(strstr(err_text(), "is no PCI address"));
	rig.mode = S_IFIFO | 0600;
	T_EQ(ask(GPU), -EINVAL);
	T_CHECK(!strcmp(err_text(), "neither a file nor a directory nor a block device"));
	rig.fstat_err = EBADF;
	T_EQ(ask(GPU), -EBADF);
	T_CHECK(strstr(err_text(), "the file cannot be looked at: EBADF"));
	machine_gone();
}

/* Names with control characters, long lines and files, links in circles and out of /sys. */
static void forged_files(void)
{
	static char huge[MIB(1)];
	char path[1024];

	machine();
	on("ext4\033[2J\007", "/dev/x", "rw");
	pci(SWITCH "/0000:18:00.0", "0x10de\001\002");
	T_EQ(ask("0000:18:00.0"), 10);
	says("filesystem", PST_CHECK_UNKNOWN, "what cuFile does with ext4?[2J? at /data is",
	     "tells");
	says("gpu", PST_CHECK_MISSING, "the PCI device 0000:18:00.0 is of vendor 0x10de??, not",
	     "10de:");

	memset(huge, 'x', sizeof(huge));
	put_bytes("/proc/self/mountinfo", huge, sizeof(huge));
	put_bytes("/proc/kallsyms", huge, sizeof(huge));
	put_bytes("/proc/driver/nvidia/version", huge, sizeof(huge));
	put_bytes("/proc/driver/nvidia/params", huge, sizeof(huge));
	put_bytes("/proc/sys/kernel/osrelease", huge, sizeof(huge));
	put_bytes("/proc/driver/nvidia-fs/version", huge, sizeof(huge));
	put_bytes("/proc/driver/nvidia-fs/devcount", huge, sizeof(huge));
	put("/dev/nvidia-fs0", "x");
	put_bytes("/run/udev/data/b259:1", huge, sizeof(huge));
	put_bytes("/sys/devices/" SWITCH "/0000:18:00.0/vendor", huge, sizeof(huge));
	put_bytes("/sys/devices/" SWITCH "/0000:18:00.0/resource", huge, sizeof(huge));
	T_EQ(ask("0000:18:00.0"), 10);
	says("filesystem", PST_CHECK_UNKNOWN, "the mount of the file is not in", "");
	says("nvidia-fs", PST_CHECK_OK, "nvidia-fs is loaded, xxxx", "xxxx");
	says("p2pdma", PST_CHECK_UNNEEDED, "GPU driver 0 is not the open one, the GPU driver was",
	     "");
	says("udev", PST_CHECK_MISSING, "/run/udev/data/b259:1 has no line", "add the line");
	says("gpu", PST_CHECK_MISSING, "the PCI device 0000:18:00.0 is of vendor xxxx", "");

	at(path, "/sys/dev/block/259:1");
	T_EQ(symlink("259:1", path), 0);
	T_EQ(ask("0000:18:00.0"), 10);
	says("disk", PST_CHECK_UNKNOWN, "/sys/dev/block/259:1 does not lead", "");
	T_EQ(unlink(path), 0);
	T_EQ(symlink("/etc", path), 0);
	T_EQ(ask("0000:18:00.0"), 10);
	says("disk", PST_CHECK_UNKNOWN, "/sys/dev/block/259:1 does not lead", "");
	(void)snprintf(path, sizeof(path), "/sys/devices/%0250d/%0250d/sda", 1, 2);
	block(path, 259, 1);
	T_EQ(ask("0000:18:00.0"), 10);
	says("disk", PST_CHECK_UNKNOWN, "/sys/dev/block/259:1 does not lead", "");
	machine_gone();
}

/* A FIFO without a writer does not block, and a folder is not read as a file. */
static void what_is_no_file_is_not_read(void)
{
	char path[1024];

	machine();
	at(path, "/proc/self/mountinfo");
	T_EQ(mkfifo(path, 0600), 0);
	put_dir("/proc/driver/nvidia/version");
	at(path, "/run/udev/data/b259:1");
	T_EQ(mkfifo(path, 0600), 0);
	T_EQ(ask(NULL), 7);
	says("filesystem", PST_CHECK_UNKNOWN, "the mount of the file is not in", "");
	says("udev", PST_CHECK_UNKNOWN, "/run/udev/data/b259:1 cannot be read: EINVAL", "");
	says("p2pdma", PST_CHECK_MISSING, "the NVIDIA driver is not loaded", "");
	machine_gone();
}

static void a_root_that_is_too_long(void)
{
	char root[1024];

	machine();
	memset(root, 'r', sizeof(root) - 1);
	root[0] = '/';
	root[sizeof(root) - 1] = '\0';
	T_EQ(gds_facts(root, rig.fd, GPU, rig.list), 10);
	T_CHECK(!gds_kernel_may(root));
	machine_gone();
}

/* On any real machine there are ten facts. */
static void this_machine(void)
{
	machine();
	T_EQ(gds_facts("", rig.fd, GPU, rig.list), 10);
	for (int i = 0; i < 10; i++)
		T_CHECK(rig.list[i].text[0]);
	machine_gone();
}

int main(void)
{
	T_RUN(bare_metal_with_nvidia_fs);
	T_RUN(bare_metal_with_p2pdma);
	T_RUN(virtual_machine);
	T_RUN(container_on_overlay);
	T_RUN(no_gpu_is_named);
	T_RUN(nothing_is_there);
	T_RUN(what_cannot_be_looked_at);
	T_RUN(forged_files);
	T_RUN(what_is_no_file_is_not_read);
	T_RUN(a_root_that_is_too_long);
	T_RUN(this_machine);
	return t_done();
}
