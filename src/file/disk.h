/* SPDX-License-Identifier: MIT */
/*
 * Disks with one hardware queue, which are best read a few megabytes at a time.
 *
 * A virtual disk with one queue may report no read before it has done all that it was given, so
 * other readers wait for all of that.  Such a disk was also faster if its reads reuse the same few
 * megabytes of memory, as if a CPU of the host wrote them and they were still cached.  So it gets
 * few bytes to read, and they use few slots.  A disk with many queues is fastest when each queue
 * has work.
 */
#ifndef PST_DISK_H
#define PST_DISK_H

#include <stdbool.h>
#include <sys/types.h>

#define DISKS 16u   /* disk numbers are below this */
#define DISK_NONE 0 /* another disk, or an unknown one */

/**
 * disk_of() - the number of the disk with one hardware queue that a file lies on
 * @dev: of the file's file system, or of a block device
 *
 * The first question about a device reads files of sysfs.
 *
 * Return: 1 to DISKS - 1, the same for all partitions and mapped volumes of a disk; DISK_NONE.
 */
unsigned disk_of(dev_t dev);

/* Return true, and the whole disk, if sysfs below root ("") says that the disk has one queue.  For
 * disk_of(). */
bool disk_has_one_queue(const char *root, dev_t dev, dev_t *ret_disk);

#endif
