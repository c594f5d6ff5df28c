/* SPDX-License-Identifier: MIT */
/*
 * Tell if a dma-buf that the libhl-thunk stub exported is still open in any process.  An
 * exported memfd has a flock(), which all descriptors of the same open file share.  The same
 * kind of lock reserves a device against other processes.
 */
#ifndef PST_STUB_GAUDI_EXPORT_H
#define PST_STUB_GAUDI_EXPORT_H

#include <fcntl.h>
#include <errno.h>
#include <linux/udmabuf.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/list.h"

#define FDS 4096 /* highest number of descriptors checked */

/* An exported dma-buf. */
struct export
{
	struct list link;
	int memfd; /* its lock tells if the dma-buf is open; -1: check dev and inode */
	dev_t dev; /* device and inode of a dma-buf from /dev/udmabuf */
	ino_t inode;
};

/* Return true if this process has the inode open or mapped.  Other processes are not checked. */
static inline bool inode_open(dev_t dev, ino_t inode)
{
	unsigned long long of;
	unsigned major, minor;
	char line[600];
	struct stat st;
	bool is = false;
	FILE *f;

	for (int fd = 0; fd < FDS; fd++)
		if (fstat(fd, &st) == 0 && st.st_dev == dev && st.st_ino == inode)
			return true;
	f = fopen("/proc/self/maps", "re");
	while (f && !is && fgets(line, sizeof(line), f))
		is = sscanf(line, "%*s %*s %*s %x:%x %llu", &major, &minor, &of) == 3 &&
		     makedev(major, minor) == dev && of == inode;
	if (f)
		(void)fclose(f);
	return is;
}

/* Open a memfd again: flock() conflicts only between different open files. */
static inline int open_again(int memfd)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", memfd);
	return open(path, O_RDWR | O_CLOEXEC);
}

static inline bool memfd_locked(int memfd)
{
	int fd = open_again(memfd);
	bool is;

	if (fd < 0)
		abort();
	is = flock(fd, LOCK_EX | LOCK_NB) < 0;
	(void)close(fd);
	return is;
}

static inline bool export_is_open(const struct export *x)
{
	return x->memfd >= 0 ? memfd_locked(x->memfd) : inode_open(x->dev, x->inode);
}

/* Make a dma-buf of a part of a memfd by /dev/udmabuf; -1: the kernel has no such device. */
static inline int export_udmabuf(int memfd, uint64_t off, uint64_t len, struct export *x)
{
	struct udmabuf_create c = {
		.memfd = (uint32_t)memfd,
		.flags = UDMABUF_FLAGS_CLOEXEC,
		.offset = off,
		.size = len,
	};
	int dev = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), fd;
	struct stat st;

	if (dev < 0)
		return -1;
	fd = ioctl(dev, UDMABUF_CREATE, &c);
	(void)close(dev);
	if (fd >= 0 && fstat(fd, &st) == 0) {
		x->memfd = -1;
		x->dev = st.st_dev;
		x->inode = st.st_ino;
	}
	return fd;
}

/* Lock a device against other processes.  Return the descriptor with the lock, -1 without
 * STUB_GAUDI_DIR, or -EBUSY. */
static inline int lock_device(int dev)
{
	const char *dir = getenv("STUB_GAUDI_DIR");
	char path[300];
	int fd;

	if (!dir || !*dir)
		return -1;
	(void)snprintf(path, sizeof(path), "%.200s/stub-gaudi-%d", dir, dev);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		abort();
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return fd;
	(void)close(fd);
	return -EBUSY;
}

#endif
