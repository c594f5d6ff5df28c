/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <stdio.h>

#include "usrbio/server/hole.h"

/* Open the file again for lseek(2): the file position is shared with the caller's descriptor. */
static int seek_fd(struct server_file *f)
{
	int fd = atomic_load(&f->seek_fd), none = -1;
	char path[32];

	if (fd >= 0)
		return fd;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", f->fd);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return -errno;
	if (atomic_compare_exchange_strong(&f->seek_fd, &none, fd))
		return fd;
	(void)close(fd);
	return none;
}

int64_t hole_cut(struct server_file *f, uint64_t off, uint64_t len)
{
	int fd = f->named ? -EOPNOTSUPP : seek_fd(f);
	off_t hole, data;

	if (fd < 0)
		return fd;
	hole = lseek(fd, (off_t)off, SEEK_HOLE);
	if (hole < 0)
		/* The offset is beyond the end of the file: let the read report it. */
		return errno == ENXIO ? (int64_t)len : -errno;
	if ((uint64_t)hole - off >= len)
		return (int64_t)len;
	data = lseek(fd, hole, SEEK_DATA);
	if (data < 0 && errno != ENXIO)
		return -errno;
	if (data >= 0 && (uint64_t)data - off < len)
		return -ENODATA;
	return (int64_t)((uint64_t)hole - off);
}
