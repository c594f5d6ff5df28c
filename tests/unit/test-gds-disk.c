/* SPDX-License-Identifier: MIT */
/* The disks below a device number, and udev's record of them. */
#include "gds_rig.h"

#define WAY0 "pci0000:40/0000:40:01.0/0000:41:00.0"
#define WAY1 "pci0000:40/0000:40:02.0/0000:42:00.0"
#define DISK0 "/sys/devices/" WAY0 "/nvme/nvme0/nvme0n1"
#define DISK1 "/sys/devices/" WAY1 "/nvme/nvme1/nvme1n1"
#define VIRTUAL "/sys/devices/virtual/block/"

static void disk(int state, const char *begin, const char *end)
{
	T_CHECK(ask(NULL) == 7);
	says("disk", state, begin, end);
}

/* Put the file on a device that consists of one or two others. */
static void made_of(const char *name, const char *a, const char *b)
{
	char folder[128], link[256];

	(void)snprintf(folder, sizeof(folder), VIRTUAL "%s", name);
	block(folder, major(rig.dev), minor(rig.dev));
	for (int i = 0; i < 2; i++) {
		const char *to = i ? b : a;

		if (!to)
			continue;
		(void)snprintf(link, sizeof(link), "%s/slaves%s", folder, strrchr(to, '/'));
		put_link(link, to);
	}
}

static void two_disks(void)
{
	nvme(WAY0, 0, 0);
	nvme(WAY1, 1, 1);
	put(DISK1 "/nvme1n1p2/partition", "2\n");
}

static void raid_of_two(void)
{
	machine();
	on("xfs", "/dev/md0", "rw");
	rig.dev = makedev(9, 0);
	two_disks();
	made_of("md0", DISK0, DISK1 "/nvme1n1p2");
	put(VIRTUAL "md0/md/level", "raid0\n");
	disk(PST_CHECK_UNKNOWN,
	     "md0 is md raid0 of nvme0n1 (0000:41:00.0), nvme1n1 (0000:42:00.0), which not every",
	     "tells");
	nvidia_fs();
	disk(PST_CHECK_OK, "md0, md raid0 of nvme0n1 (0000:41:00.0), nvme1n1 (0000:42:00.0)", "");
	put(VIRTUAL "md0/md/level", "raid5\n");
	disk(PST_CHECK_UNKNOWN, "md0 is md raid5 of nvme0n1", "tells");
	/* One of the two is not an NVMe disk. */
	put_dir(VIRTUAL "sda");
	made_of("md0", VIRTUAL "sda", NULL);
	disk(PST_CHECK_MISSING, "sda is a SCSI or SATA disk, and cuFile", "NVMe disk");
	machine_gone();
}

static void device_mapper(void)
{
	machine();
	on("xfs", "/dev/dm-0", "rw");
	rig.dev = makedev(253, 0);
	two_disks();
	made_of("dm-0", DISK0, NULL);
	put(VIRTUAL "dm-0/dm/uuid", "LVM-abcdef\n");
	disk(PST_CHECK_MISSING, "dm-0 is LVM over nvme0n1 (0000:41:00.0), through which cuFile",
	     "put the file system on a disk or partition itself");
	put(VIRTUAL "dm-0/dm/uuid", "CRYPT-LUKS2-abcdef-very-long-names-that-are-cut-somewhere\n");
	disk(PST_CHECK_MISSING, "dm-0 is dm-crypt over nvme0n1", "itself");
	put(VIRTUAL "dm-0/dm/uuid", "mpath-36\n");
	disk(PST_CHECK_MISSING, "dm-0 is dm-multipath over nvme0n1", "itself");
	put(VIRTUAL "dm-0/dm/uuid", "\n");
	disk(PST_CHECK_MISSING, "dm-0 is the device mapper over nvme0n1", "itself");
	forget(VIRTUAL "dm-0/dm/uuid");
	disk(PST_CHECK_MISSING, "dm-0 is a device made of others over nvme0n1", "itself");
	machine_gone();
}

static void kinds_of_disks(void)
{
	static const struct {
		const char *name, *said, *end;
	} t[] = {
		{ "vda", "vda is a virtio disk", "passthrough of the drive" },
		{ "xvdb", "xvdb is a Xen disk", "passthrough of the drive" },
		{ "sdb", "sdb is a SCSI or SATA disk", "put the file on an NVMe disk" },
		{ "loop3", "loop3 is a file that is mounted as a disk", "of an NVMe disk" },
		{ "nbd0", "nbd0 is a network disk", "put the file on an NVMe disk" },
		{ "zram1", "zram1 is memory", "put the file on an NVMe disk" },
		{ "mmcblk0", "mmcblk0 is a memory card", "put the file on an NVMe disk" },
		{ "ublkb0", "ublkb0 is no NVMe disk", "put the file on an NVMe disk" },
	};
	char folder[128];

	for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
		machine();
		on("ext4", "src", "rw");
		(void)snprintf(folder, sizeof(folder), VIRTUAL "%s", t[i].name);
		block(folder, 259, 1);
		disk(PST_CHECK_MISSING, t[i].said, t[i].end);
		T_EQ(fact("disk")->err, 0);
	}
	machine_gone();
}

static void nvme_of_other_kinds(void)
{
	machine();
	on("ext4", "src", "rw");
	nvme(WAY0, 0, 1);
	put(DISK0 "/integrity/format", "T10-DIF-TYPE1-CRC\n");
	disk(PST_CHECK_MISSING,
	     "nvme0n1 is formatted with protection information (T10-DIF-TYPE1-CRC); nvme format",
	     "--pi=0 /dev/nvme0n1, which erases it");
	put(DISK0 "/integrity/format", "nop\n");
	disk(PST_CHECK_OK, "nvme0n1 (0000:41:00.0)", "");
	put("/sys/devices/" WAY0 "/nvme/nvme0/transport", "tcp\n");
	disk(PST_CHECK_MISSING, "nvme0n1 is reached by tcp, which goes through the CPU;",
	     "put the file on an NVMe disk of this machine");
	put("/sys/devices/" WAY0 "/nvme/nvme0/transport", "rdma\n");
	disk(PST_CHECK_MISSING, "nvme0n1 is reached by RDMA, which needs nvidia-fs; load that",
	     "of this machine");
	nvidia_fs();
	disk(PST_CHECK_OK, "nvme0n1", "");
	machine_gone();
}

/* An NVMe multipath head has no PCI device above it, but one of its controllers has. */
static void a_multipath_head(void)
{
	static const char head[] = "/sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1";

	machine();
	on("ext4", "src", "rw");
	nvme(WAY0, 0, 0);
	block(head, 259, 1);
	put_link("/sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0",
		 "/sys/devices/" WAY0 "/nvme/nvme0");
	disk(PST_CHECK_OK, "nvme0n1 (0000:41:00.0)", "");
	p2pdma();
	T_EQ(ask(NULL), 7);
	says("p2pdma", PST_CHECK_MISSING, "nvme0n1 is a multipath head; boot with",
	     "nvme_core.multipath=N");
	forget("/sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0");
	disk(PST_CHECK_OK, "nvme0n1", "nvme0n1");
	put_link("/sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme7", "/sys/nowhere");
	disk(PST_CHECK_OK, "nvme0n1", "nvme0n1");
	machine_gone();
}

static void no_disk_is_below(void)
{
	machine();
	rig.dev = makedev(0, 44);
	on("nfs4", "server:/x", "rw,proto=rdma");
	disk(PST_CHECK_UNNEEDED, "the disks of nfs4 are those of its servers", "");
	on("tmpfs", "none", "rw");
	disk(PST_CHECK_UNKNOWN, "tmpfs does not say which disk is below it", "");
	machine_gone();
}

/* A device that contains itself, and more devices than the search allows. */
static void devices_in_circles(void)
{
	char folder[128], link[256];

	machine();
	on("xfs", "src", "rw");
	rig.dev = makedev(9, 0);
	made_of("md0", VIRTUAL "md0", NULL);
	disk(PST_CHECK_UNKNOWN, "/sys/dev/block/9:0 does not lead to a disk", "");
	made_of("md0", VIRTUAL "md0", VIRTUAL "md1");
	put_link(VIRTUAL "md1/slaves/md0", VIRTUAL "md0");
	put_link(VIRTUAL "md1/slaves/md1", VIRTUAL "md1");
	disk(PST_CHECK_UNKNOWN, "/sys/dev/block/9:0 does not lead to a disk", "");

	forget(VIRTUAL "md0/slaves");
	for (int i = 0; i < 100; i++) {
		(void)snprintf(folder, sizeof(folder), VIRTUAL "nvme%dn1", i);
		put_dir(folder);
		(void)snprintf(link, sizeof(link), VIRTUAL "md0/slaves/nvme%dn1", i);
		put_link(link, folder);
	}
	put(VIRTUAL "md0/md/level", "raid0\n");
	nvidia_fs();
	disk(PST_CHECK_OK, "md0, md raid0 of nvme", "and more");
	machine_gone();
}

static void record(const char *lines, int state, const char *begin, const char *end)
{
	put("/run/udev/data/b259:1", "%s", lines);
	T_CHECK(ask(NULL) == 7);
	says("udev", state, begin, end);
}

static void records_of_udev(void)
{
	machine();
	on("ext4", "src", "rw");
	nvme(WAY0, 0, 1);
	put_dir("/run/udev/data");
	T_EQ(ask(NULL), 7);
	says("udev", PST_CHECK_MISSING,
	     "udev has no record of the file system's device, /run/udev/data/b259:1; run udevadm",
	     "--subsystem-match=block");
	T_EQ(fact("udev")->err, ENOENT);
	record("I:1\n", PST_CHECK_MISSING,
	       "/run/udev/data/b259:1 has no line E:ID_FS_USAGE=filesystem; run udevadm trigger",
	       "--name-match=nvme0n1, or add the line");
	record("E:ID_FS_USAGE=raid\nE:ID_FS_TYPE=ext4\n", PST_CHECK_MISSING,
	       "/run/udev/data/b259:1 has no line E:ID_FS_USAGE=filesystem;", "");
	record("E:ID_FS_USAGE=filesystem\n", PST_CHECK_MISSING,
	       "/run/udev/data/b259:1 says E:ID_FS_TYPE=, not ext4; run udevadm",
	       "--name-match=nvme0n1, or put the line right");
	record("E:ID_FS_USAGE=filesystem\nE:ID_FS_TYPE=xfs\n", PST_CHECK_MISSING,
	       "/run/udev/data/b259:1 says E:ID_FS_TYPE=xfs, not ext4;", "");
	record("E:ID_FS_USAGE=filesystem\nE:ID_FS_TYPE=ext4", PST_CHECK_OK,
	       "/run/udev/data/b259:1 names ext4", "");
	record("E:ID_FS_TYPE=ext4\n\nE:ID_FS_USAGE=filesystem\n", PST_CHECK_OK, "/run/udev", "");
	machine_gone();
}

int main(void)
{
	T_RUN(raid_of_two);
	T_RUN(device_mapper);
	T_RUN(kinds_of_disks);
	T_RUN(nvme_of_other_kinds);
	T_RUN(a_multipath_head);
	T_RUN(no_disk_is_below);
	T_RUN(devices_in_circles);
	T_RUN(records_of_udev);
	return t_done();
}
