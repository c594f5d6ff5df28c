/* SPDX-License-Identifier: MIT */
/*
 * Find disks with one hardware queue, which are best read a few megabytes at a time.
 *
 * A virtual disk with one queue may complete no read before it has done all reads in its queue, so
 * other readers wait for all of them.  Such a disk was also faster when its reads reused the same
 * few megabytes of memory, perhaps because a CPU of the host writes them and they are still cached.
 * So few bytes and few slots are used for its reads.  A disk with many queues is fastest when each
 * queue has work.
 */
#ifndef PST_DISK_H
#define PST_DISK_H

#include <stdbool.h>
#include <sys/types.h>

#define DISKS 16u   /* disk numbers are below this */
#define DISK_NONE 0 /* another disk, or an unknown one */

/**
 * disk_of() - return the number of the disk that a file lies on, if it has one hardware queue
 * @dev: device number of the file's file system, or of a block device
 *
 * The first call for a device reads files of sysfs; later calls use a cache.
 *
 * Return: 1 to DISKS - 1, the same for all partitions and mapped volumes of a disk; DISK_NONE.
 */
unsigned disk_of(dev_t dev);

/* Return true if sysfs below root ("" normally) shows that the disk below dev has one queue.  Store
 * the whole disk.  For disk_of() and tests. */
bool disk_has_one_queue(const char *root, dev_t dev, dev_t *ret_disk);

#endif
