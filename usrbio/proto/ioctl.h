/* SPDX-License-Identifier: MIT */
/*
 * The calls of a usrbio file system by ioctl(2).  Sizes are part of the numbers.
 */
#ifndef PST_USRBIO_IOCTL_H
#define PST_USRBIO_IOCTL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

#define USRBIO_MAGIC 0x8f3f5fffu
#define USRBIO_IOCTL_VERSION 1u
#define USRBIO_FSTYPE "fuse.hf3fs" /* in mountinfo */

#define USRBIO_LINK_NAME_MAX 255 /* hard link: bytes of the name with its terminating 0 */
#define USRBIO_PUNCH_RANGES 1000

struct usrbio_hardlink {
	uint64_t parent; /* inode number of the directory that gets the name */
	char name[USRBIO_LINK_NAME_MAX];
};

struct usrbio_punch {
	int32_t n;
	uint64_t flags;
	uint64_t start[USRBIO_PUNCH_RANGES];
	uint64_t end[USRBIO_PUNCH_RANGES];
};

#define USRBIO_IOC_MOUNT_NAME _IOR('h', 0, char[32])
#define USRBIO_IOC_PATH_OFFSET _IOR('h', 1, uint32_t)
#define USRBIO_IOC_MAGIC _IOR('h', 2, uint32_t)
#define USRBIO_IOC_VERSION _IOR('h', 3, uint32_t)
#define USRBIO_IOC_FSYNC _IOR('h', 11, uint32_t)
#define USRBIO_IOC_HARDLINK _IOW('h', 12, struct usrbio_hardlink)
#define USRBIO_IOC_PUNCH _IOW('h', 13, struct usrbio_punch)

_Static_assert(USRBIO_IOC_MOUNT_NAME == 0x80206800u, "usrbio: ioctl");
_Static_assert(USRBIO_IOC_MAGIC == 0x80046802u, "usrbio: ioctl");
_Static_assert(USRBIO_IOC_FSYNC == 0x8004680bu, "usrbio: ioctl");
_Static_assert(USRBIO_IOC_HARDLINK == 0x4108680cu, "usrbio: ioctl");
_Static_assert(USRBIO_IOC_PUNCH == 0x7e90680du, "usrbio: ioctl");

#endif
