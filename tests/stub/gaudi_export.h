/* SPDX-License-Identifier: MIT */
/*
 * Dma-bufs that the double of libhl-thunk gave out: is one still open, in any process?  One that is
 * a memfd is asked by a lock, which belongs to an open file and all its duplicates.  Devices are
 * locked against other processes in the same way.
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

#define FDS 4096 /* descriptors that are looked at */

/* A dma-buf that was given out. */
struct export
{
	struct list link;
	int memfd; /* a lock on it tells whether the dma-buf is open; -1: dev and inode tell */
	dev_t dev; /* of a dma-buf that /dev/udmabuf made */
	ino_t inode;
};

/* Does this process have the file behind a dma-buf open or mapped?  Others are not asked. */
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

/* Another open file of a memfd; a lock belongs to an open file and all its duplicates. */
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

/* A dma-buf of a part of a memfd, by /dev/udmabuf; -1: the kernel has none. */
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

/* A descriptor whose lock other processes see, or -1; -EBUSY. */
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
