/* SPDX-License-Identifier: MIT */
/*
 * The ioctl(2) calls of a usrbio file system.  The number of a call contains the size of its
 * argument.
 */
#ifndef PST_USRBIO_IOCTL_H
#define PST_USRBIO_IOCTL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

#define USRBIO_MAGIC 0x8f3f5fffu
#define USRBIO_IOCTL_VERSION 1u
#define USRBIO_FSTYPE "fuse.hf3fs" /* the file system type in mountinfo */

#define USRBIO_LINK_NAME_MAX 255 /* bytes of a hard link's name, with its terminating 0 */
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

/* bytes of a name to move or remove, with its terminating 0 */
#define USRBIO_ENTRY_NAME_MAX 256

struct usrbio_move {
	uint64_t from; /* inode number of the directory that has the name */
	char name[USRBIO_ENTRY_NAME_MAX];
	uint64_t to; /* inode number of the directory that gets the name */
	char to_name[USRBIO_ENTRY_NAME_MAX];
	uint8_t to_trash; /* 0 or 1; not a bool, because other processes may send any value */
};

struct usrbio_remove {
	uint64_t parent;
	char name[USRBIO_ENTRY_NAME_MAX];
	uint8_t recursive;
};

#define USRBIO_IOC_MOUNT_NAME _IOR('h', 0, char[32])
#define USRBIO_IOC_PATH_OFFSET _IOR('h', 1, uint32_t)
#define USRBIO_IOC_MAGIC _IOR('h', 2, uint32_t)
#define USRBIO_IOC_VERSION _IOR('h', 3, uint32_t)
#define USRBIO_IOC_REMOVE_TREE _IOR('h', 10, uint32_t) /* removes the open directory itself */
#define USRBIO_IOC_FSYNC _IOR('h', 11, uint32_t)
#define USRBIO_IOC_HARDLINK _IOW('h', 12, struct usrbio_hardlink)
#define USRBIO_IOC_PUNCH _IOW('h', 13, struct usrbio_punch)
#define USRBIO_IOC_MOVE _IOW('h', 14, struct usrbio_move)
#define USRBIO_IOC_REMOVE _IOW('h', 15, struct usrbio_remove)

_Static_assert(USRBIO_IOC_MOUNT_NAME == 0x80206800u, "usrbio: ioctl");
_Static_assert(USRBIO_IOC_MAGIC == 0x80046802u, "usrbio: ioctl");
_Static_assert(USRBIO_IOC_REMOVE_TREE == 0x8004680au, "usrbio: ioctl");
_Static_assert(USRBIO_IOC_FSYNC == 0x8004680bu, "usrbio: ioctl");
_Static_assert(USRBIO_IOC_HARDLINK == 0x4108680cu, "usrbio: ioctl");
_Static_assert(USRBIO_IOC_PUNCH == 0x7e90680du, "usrbio: ioctl");
_Static_assert(USRBIO_IOC_MOVE == 0x4218680eu, "usrbio: ioctl");
_Static_assert(USRBIO_IOC_REMOVE == 0x4110680fu, "usrbio: ioctl");

#endif
