/* SPDX-License-Identifier: MIT */
/* Lines of mountinfo, facts about file systems, and O_DIRECT. */
#include "gds_rig.h"

static bool parse(const char *line, struct gds_mount *m)
{
	char text[512];

	(void)snprintf(text, sizeof(text), "%s", line);
	return gds_mount_parse(text, m);
}

static void lines_of_mountinfo(void)
{
	static const char *const bad[] = {
		"",
		" - ",
		"36 35 8:1 / /data rw",
		"36 35 8:1 / /data rw - ext4",
		"36 35 8:1 / /data rw - ext4 /dev/sda1",
		"x 35 8:1 / /data rw - ext4 /dev/sda1 rw",
		"-1 35 8:1 / /data rw - ext4 /dev/sda1 rw",
		"36x 35 8:1 / /data rw - ext4 /dev/sda1 rw",
		"99999999999999999999 35 8:1 / /data rw - ext4 /dev/sda1 rw",
		"36 35 8 / /data rw - ext4 /dev/sda1 rw",
		"36 35 8:1:2 / /data rw - ext4 /dev/sda1 rw",
		"36 35 a:1 / /data rw - ext4 /dev/sda1 rw",
		"36 35 8:1 / - ext4 /dev/sda1 rw",
		"36 35 8:1",
	};
	struct gds_mount m = { 0 };

	T_CHECK(parse("36 35 8:17 / /data\\040and\\011more rw,noatime shared:1 master:2 - ext4 "
		      "/dev/x\\134y rw,data=ordered",
		      &m));
	T_EQ(m.id, 36);
	T_EQ(m.dev, makedev(8, 17));
	T_CHECK(!strcmp(m.where, "/data and\tmore"));
	T_CHECK(!strcmp(m.type, "ext4"));
	T_CHECK(!strcmp(m.source, "/dev/x\\y"));
	T_CHECK(!strcmp(m.options, "rw,data=ordered"));
	/* Invalid escapes stay as they are, and an escaped NUL is not decoded. */
	T_CHECK(parse("36 35 8:17 / /a\\04\\9\\000\\ rw - xfs none rw", &m));
	T_CHECK(!strcmp(m.where, "/a\\04\\9\\000\\"));
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
		if (parse(bad[i], &m))
			T_FAIL("taken: %s", bad[i]);
}

static void options_are_whole_words(void)
{
	struct gds_mount m = { .options = "rw,data=ordered,proto=rdma" };

	T_CHECK(gds_mount_has(&m, "data=ordered"));
	T_CHECK(gds_mount_has(&m, "rw"));
	T_CHECK(gds_mount_has(&m, "proto=rdma"));
	T_CHECK(!gds_mount_has(&m, "data=order"));
	T_CHECK(!gds_mount_has(&m, "ordered"));
	T_CHECK(!gds_mount_has(&m, "proto=rdma6"));
}

static void expect(const char *type, const char *options, int state, const char *begin,
		   const char *end)
{
	on(type, "src", options);
	T_CHECK(ask(NULL) == 7);
	says("filesystem", state, begin, end);
}

static void file_systems_of_a_machine_without_a_way(void)
{
	machine();
	expect("ext4", "rw", PST_CHECK_OK, "ext4 at /data; nvidia-fs would need it",
	       "data=ordered");
	expect("ext4", "rw,data=ordered", PST_CHECK_OK, "ext4 at /data", "/data");
	expect("ext4", "rw,data=journal", PST_CHECK_MISSING,
	       "ext4 at /data was not mounted with data=ordered", "and mount it again");
	expect("xfs", "rw", PST_CHECK_OK, "xfs at /data", "/data");
	expect("nfs4", "rw,proto=tcp", PST_CHECK_MISSING,
	       "nfs4 at /data does not use RDMA; mount it", "from a server that has it");
	expect("nfs", "rw,vers=3,proto=rdma", PST_CHECK_OK, "nfs by RDMA at /data", "serves");
	expect("lustre", "rw", PST_CHECK_OK, "lustre at /data, which nvidia-fs alone serves", "");
	expect("wekafs", "rw", PST_CHECK_OK, "wekafs at /data", "");
	expect("gpfs", "rw", PST_CHECK_OK, "gpfs at /data", "");
	expect("beegfs", "rw", PST_CHECK_OK, "beegfs at /data", "");
	expect("virtiofs", "rw", PST_CHECK_OK, "virtiofs at /data", "");
	expect("tmpfs", "rw", PST_CHECK_MISSING, "tmpfs at /data keeps its bytes in memory, and",
	       "way to it; put the file on ext4 or XFS on an NVMe disk");
	expect("overlay", "rw", PST_CHECK_MISSING, "overlay at /data is the layers of a container",
	       "and put the file there");
	expect("squashfs", "ro", PST_CHECK_MISSING, "squashfs at /data unpacks what it reads",
	       "disk");
	expect("fuse.sshfs", "rw", PST_CHECK_MISSING, "fuse.sshfs at /data is served by a program",
	       "disk");
	expect("fuseblk", "rw", PST_CHECK_MISSING, "fuseblk at /data is served by a program",
	       "disk");
	expect("btrfs", "rw", PST_CHECK_MISSING,
	       "btrfs at /data is read by copies through host memory", "disk");
	expect("zfs", "rw", PST_CHECK_MISSING, "zfs at /data is read by copies", "disk");
	expect("9p", "rw", PST_CHECK_MISSING, "9p at /data comes through the host's CPU",
	       "give the guest an NVMe disk with ext4 or XFS");
	expect("fusectl", "rw", PST_CHECK_UNKNOWN, "what cuFile does with fusectl at /data",
	       "tells");
	machine_gone();
}

static void ext4_beside_nvidia_fs(void)
{
	machine();
	nvidia_fs();
	expect("ext4", "rw", PST_CHECK_MISSING, "ext4 at /data was not mounted with data=ordered",
	       "unmount it and mount it again");
	expect("ext4", "rw,data=ordered", PST_CHECK_OK, "ext4 at /data", "/data");
	p2pdma();
	expect("ext4", "rw", PST_CHECK_OK, "ext4 at /data", "/data");
	machine_gone();
}

/* The mount is found by its id, even if a later line has the same device. */
static void the_mount_is_found_by_its_number(void)
{
	char path[64];

	machine();
	on("xfs", "src", "rw");
	put("/proc/self/mountinfo", "35 22 259:1 / /first rw - xfs a rw\n"
				    "36 22 259:1 /b /second\\040one rw - xfs a rw\n"
				    "37 22 259:1 / /third rw - xfs a rw\n");
	T_EQ(ask(NULL), 7);
	says("filesystem", PST_CHECK_OK, "xfs at /second one", "one");
	(void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", rig.fd);
	put(path, "pos: 0\n");
	T_EQ(ask(NULL), 7);
	says("filesystem", PST_CHECK_OK, "xfs at /third", "third");
	put("/proc/self/mountinfo", "35 22 259:2 / /first rw - xfs a rw\n");
	T_EQ(ask(NULL), 7);
	says("filesystem", PST_CHECK_UNKNOWN, "the mount of the file is not in", "known");
	machine_gone();
}

/* A line longer than the buffer is skipped as a whole. */
static void lines_that_are_too_long(void)
{
	static char text[20000];
	int n;

	machine();
	on("xfs", "src", "rw");
	n = snprintf(text, sizeof(text), "36 22 259:1 / /long rw - overlay o ");
	memset(text + n, 'l', 16384);
	(void)snprintf(text + n + 16384, 512,
		       "36 22 259:1 / /tail rw - zfs a rw\n"
		       "36 22 259:1 / /good rw - xfs a rw");
	put_bytes("/proc/self/mountinfo", text, strlen(text));
	T_EQ(ask(NULL), 7);
	says("filesystem", PST_CHECK_OK, "xfs at /good", "good"); /* the last line has no newline */
	machine_gone();
}

static void block_devices(void)
{
	machine();
	rig.mode = S_IFBLK | 0600;
	rig.dev = makedev(0, 6);
	rig.rdev = makedev(259, 1);
	nvme("pci0000:40/0000:40:01.0/0000:41:00.0", 3, 1);
	put("/run/udev/data/b259:1", "S:x\n");
	rig.dio = -1;
	T_EQ(ask(NULL), 7);
	says("filesystem", PST_CHECK_OK, "a block device, without a file system between", "");
	says("disk", PST_CHECK_OK, "nvme3n1 (0000:41:00.0)", "");
	says("udev", PST_CHECK_OK, "/run/udev/data/b259:1 names the device", "");
	says("direct-io", PST_CHECK_OK, "O_DIRECT, as block devices have it", "");
	machine_gone();
}

static void direct_io(void)
{
	machine();
	on("ext3", "src", "rw");
	rig.dio = 1;
	T_EQ(ask(NULL), 7);
	says("direct-io", PST_CHECK_MISSING, "this file has no O_DIRECT, as where", "that is off");
	T_EQ(fact("direct-io")->err, 0);
	rig.dio = -1;
	T_EQ(ask(NULL), 7);
	says("direct-io", PST_CHECK_UNKNOWN, "O_DIRECT was accepted, but", "goes to the disk");
	rig.open_err = EINVAL;
	T_EQ(ask(NULL), 7);
	says("direct-io", PST_CHECK_MISSING, "ext3 has no O_DIRECT; put the file", "disk");
	T_EQ(fact("direct-io")->err, EINVAL);
	rig.open_err = EACCES;
	T_EQ(ask(NULL), 7);
	says("direct-io", PST_CHECK_UNKNOWN, "the file cannot be opened again", "denied)");
	T_EQ(fact("direct-io")->err, EACCES);
	rig.mode = S_IFDIR | 0700;
	T_EQ(ask(NULL), 7);
	says("direct-io", PST_CHECK_UNKNOWN, "a directory does not tell", "ask with a file");
	rig.dio = 0;
	T_EQ(ask(NULL), 7);
	says("direct-io", PST_CHECK_OK, "O_DIRECT, with memory aligned to 512", "bytes");
	machine_gone();
}

int main(void)
{
	T_RUN(lines_of_mountinfo);
	T_RUN(options_are_whole_words);
	T_RUN(file_systems_of_a_machine_without_a_way);
	T_RUN(ext4_beside_nvidia_fs);
	T_RUN(the_mount_is_found_by_its_number);
	T_RUN(lines_that_are_too_long);
	T_RUN(block_devices);
	T_RUN(direct_io);
	return t_done();
}
