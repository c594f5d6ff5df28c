/* SPDX-License-Identifier: MIT */
/*
 * Disks that are read best a few bytes at a time: those with one hardware queue.
 *
 * A virtual disk with one queue may tell of no read before it has done all that it has got.  Then
 * whoever else reads from it waits for all of that.  And it was found to be faster where its reads
 * go to the same few megabytes again and again, as if a CPU of the host wrote them and they were
 * still in a cache.  So such a disk gets few bytes to read, and they have few slots.  A disk with
 * many queues is as fast as its hardware when each of them has something to do.
 */
#ifndef PST_DISK_H
#define PST_DISK_H

#include <stdbool.h>
#include <sys/types.h>

#define DISKS 16u   /* numbers of disks are lower than this */
#define DISK_NONE 0 /* another disk, or nobody knows */

/**
 * disk_of() - the number of the disk with one hardware queue that a file lies on
 * @dev: of the file's file system, or of a block device
 *
 * The first question about a device reads files of sysfs.
 *
 * Return: 1 to DISKS - 1, the same for all partitions and mapped volumes of a disk; DISK_NONE.
 */
unsigned disk_of(dev_t dev);

/* For disk_of(): what sysfs below root ("") says.  True, and the whole disk, if that has one
 * queue. */
bool disk_has_one_queue(const char *root, dev_t dev, dev_t *ret_disk);

#endif
