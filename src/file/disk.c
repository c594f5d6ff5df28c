/* SPDX-License-Identifier: MIT */
/*
 * Find the whole disk below a device and count its hardware queues in sysfs: the folders mq/0, mq/1
 * and so on (the kernel's Documentation/ABI/stable/sysfs-block).  A partition's folder lies in that
 * of its disk.  A mapped volume (LVM, dm-crypt) and an MD array have no queues; slaves/ lists the
 * devices below them.
 */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/sysfs.h"
#include "file/disk.h"

#define KNOWN 64u /* devices in the cache */
#define LAYERS 8u /* maximum layers of volumes above a disk */
#define PATH_LEN 512u

static struct {
	pthread_mutex_t lock;
	struct {
		dev_t dev;
		unsigned disk;
	} known[KNOWN];
	unsigned nr_known;
	dev_t disks[DISKS]; /* whole disks, by number; entry 0 is unused */
	unsigned nr_disks;  /* entries in use, entry 0 (DISK_NONE) included */
} table = { .lock = PTHREAD_MUTEX_INITIALIZER, .nr_disks = 1 };

static bool disk_exists(const char *at, const char *name)
{
	char path[PATH_LEN];

	return snprintf(path, sizeof(path), "%s/%s", at, name) < (int)sizeof(path) &&
	       access(path, F_OK) == 0;
}

/* Parse a device number, such as "254:16". */
static bool read_dev(const char *at, const char *name, dev_t *ret)
{
	char path[PATH_LEN], line[32];
	unsigned major, minor;

	if (snprintf(path, sizeof(path), "%s/%s", at, name) >= (int)sizeof(path) ||
	    sysfs_line(path, line, sizeof(line)) < 0 || sscanf(line, "%u:%u", &major, &minor) != 2)
		return false;
	*ret = makedev(major, minor);
	return true;
}

/* Find the device below a volume. Return false if there is none, or more than one. */
static bool only_slave(const char *at, dev_t *ret)
{
	char path[PATH_LEN], name[300];
	struct dirent *e;
	unsigned nr = 0;
	DIR *dir;

	if (snprintf(path, sizeof(path), "%s/slaves", at) >= (int)sizeof(path))
		return false;
	dir = opendir(path);
	if (!dir)
		return false;
	while ((e = readdir(dir)) != NULL)
		if (e->d_name[0] != '.' && nr++ == 0)
			(void)snprintf(name, sizeof(name), "slaves/%s/dev", e->d_name);
	(void)closedir(dir);
	return nr == 1 && read_dev(at, name, ret);
}

bool disk_has_one_queue(const char *root, dev_t dev, dev_t *ret_disk)
{
	char at[PATH_LEN];

	for (unsigned i = 0; i < LAYERS; i++) {
		if (snprintf(at, sizeof(at), "%s/sys/dev/block/%u:%u", root, major(dev),
			     minor(dev)) >= (int)sizeof(at))
			return false;
		if (disk_exists(at, "mq/0")) {
			*ret_disk = dev;
			return !disk_exists(at, "mq/1");
		}
		if (!(disk_exists(at, "partition") ? read_dev(at, "../dev", &dev)
						   : only_slave(at, &dev)))
			return false;
	}
	return false;
}

/* Return the disk's number, assigning one if needed.  The lock is held. */
static unsigned number_of(dev_t disk)
{
	unsigned i = 1;

	while (i < table.nr_disks && table.disks[i] != disk)
		i++;
	if (i == DISKS)
		return DISK_NONE;
	if (i == table.nr_disks)
		table.disks[table.nr_disks++] = disk;
	return i;
}

/* Return the number of the disk below dev, from the cache or sysfs.  The lock is held. */
static unsigned look_up(dev_t dev)
{
	unsigned number = DISK_NONE;
	dev_t disk;

	for (unsigned i = 0; i < table.nr_known; i++)
		if (table.known[i].dev == dev)
			return table.known[i].disk;
	if (table.nr_known == KNOWN)
		return DISK_NONE;
	if (disk_has_one_queue("", dev, &disk))
		number = number_of(disk);
	table.known[table.nr_known].dev = dev;
	table.known[table.nr_known++].disk = number;
	return number;
}

unsigned disk_of(dev_t dev)
{
	unsigned number;

	/* Major 0: the file system has no disk. */
	if (!major(dev))
		return DISK_NONE;
	(void)pthread_mutex_lock(&table.lock);
	number = look_up(dev);
	(void)pthread_mutex_unlock(&table.lock);
	return number;
}
