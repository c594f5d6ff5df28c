/* SPDX-License-Identifier: MIT */
/* Which disks have a single hardware queue, read from a fake sysfs. */
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "file/disk.h"
#include "scratch.h"
#include "t.h"

static char root[256];

static void make_dir(const char *path)
{
	char all[512], *p = all + snprintf(all, sizeof(all), "%s", root);

	(void)snprintf(p, sizeof(all) - (size_t)(p - all), "%s/", path);
	for (p++; (p = strchr(p, '/')) != NULL; p++) {
		*p = '\0';
		T_CHECK(mkdir(all, 0755) == 0 || errno == EEXIST);
		*p = '/';
	}
}

static void make_file(const char *path, const char *text)
{
	char all[512];
	FILE *f;

	(void)snprintf(all, sizeof(all), "%s%s", root, path);
	f = fopen(all, "we");
	T_CHECK(f && fputs(text, f) >= 0);
	T_EQ(fclose(f), 0);
}

static void make_link(const char *path, const char *to)
{
	char all[512];

	(void)snprintf(all, sizeof(all), "%s%s", root, path);
	T_EQ(symlink(to, all), 0);
}

/* Make a disk vda with one queue and a partition, sdb with two queues, nvme0n1 with unknown
 * queues, and volumes on them. */
static void make_sysfs(void)
{
	make_dir("/sys/dev/block");
	make_dir("/sys/block/vda/mq/0");
	make_file("/sys/block/vda/dev", "254:0\n");
	make_dir("/sys/block/vda/vda1");
	make_file("/sys/block/vda/vda1/partition", "1\n");
	make_file("/sys/block/vda/vda1/dev", "254:1\n");
	make_dir("/sys/block/sdb/mq/0");
	make_dir("/sys/block/sdb/mq/1");
	make_file("/sys/block/sdb/dev", "8:16\n");
	make_dir("/sys/block/nvme0n1");
	make_file("/sys/block/nvme0n1/dev", "259:0\n");
	/* dm-0 on the partition, dm-1 on dm-0, others on two disks or on themselves. */
	make_dir("/sys/block/dm-0/slaves");
	make_link("/sys/block/dm-0/slaves/vda1", "../../vda/vda1");
	make_file("/sys/block/dm-0/dev", "253:0\n");
	make_dir("/sys/block/dm-1/slaves");
	make_link("/sys/block/dm-1/slaves/dm-0", "../../dm-0");
	make_dir("/sys/block/md0/slaves");
	make_link("/sys/block/md0/slaves/vda1", "../../vda/vda1");
	make_link("/sys/block/md0/slaves/sdb", "../../sdb");
	make_dir("/sys/block/dm-2/slaves");
	make_link("/sys/block/dm-2/slaves/dm-2", "../../dm-2");
	make_file("/sys/block/dm-2/dev", "253:2\n");
	make_link("/sys/dev/block/254:0", "../../block/vda");
	make_link("/sys/dev/block/254:1", "../../block/vda/vda1");
	make_link("/sys/dev/block/8:16", "../../block/sdb");
	make_link("/sys/dev/block/259:0", "../../block/nvme0n1");
	make_link("/sys/dev/block/253:0", "../../block/dm-0");
	make_link("/sys/dev/block/253:1", "../../block/dm-1");
	make_link("/sys/dev/block/253:2", "../../block/dm-2");
	make_link("/sys/dev/block/9:0", "../../block/md0");
}

static void queues_are_counted(void)
{
	dev_t disk = 0, vda = makedev(254, 0);

	T_CHECK(disk_has_one_queue(root, vda, &disk));
	T_EQ(disk, vda);
	T_CHECK(!disk_has_one_queue(root, makedev(8, 16), &disk));
	T_CHECK(!disk_has_one_queue(root, makedev(259, 0), &disk));
	T_CHECK(!disk_has_one_queue(root, makedev(1, 1), &disk));
}

static void partitions_and_volumes_lead_to_the_disk(void)
{
	dev_t disk, vda = makedev(254, 0);

	for (unsigned i = 0; i < 2; i++) {
		disk = 0;
		T_CHECK(disk_has_one_queue(root, makedev(253, i), &disk));
		T_EQ(disk, vda);
	}
	disk = 0;
	T_CHECK(disk_has_one_queue(root, makedev(254, 1), &disk));
	T_EQ(disk, vda);
	T_CHECK(!disk_has_one_queue(root, makedev(9, 0), &disk));
	T_CHECK(!disk_has_one_queue(root, makedev(253, 2), &disk));
}

/* A disk keeps its number.  File systems without a disk have none. */
static void numbers(void)
{
	T_EQ(disk_of(makedev(0, 30)), DISK_NONE);
	for (unsigned i = 0; i < 300; i++) {
		unsigned number = disk_of(makedev(1 + i % 150, i));

		T_CHECK(number < DISKS);
		T_EQ(disk_of(makedev(1 + i % 150, i)), number);
	}
}

int main(void)
{
	T_EQ(scratch_new(NULL, root, sizeof(root)), 0);
	make_sysfs();
	T_RUN(queues_are_counted);
	T_RUN(partitions_and_volumes_lead_to_the_disk);
	T_RUN(numbers);
	(void)scratch_remove(root);
	return t_done();
}
