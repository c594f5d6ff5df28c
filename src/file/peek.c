/* SPDX-License-Identifier: MIT */
/*
 * Read without changing the page cache.  Otherwise the next request would find the bytes cached,
 * and could not measure which path from the disk is better.
 *
 * Read-ahead state belongs to the open file description, so open a new one.  The file's own
 * description may also be shared with the program.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/uio.h>

#include "file/local.h"

static int64_t read_all(int fd, char *buf, uint64_t off, uint64_t len)
{
	uint64_t at = 0;
	ssize_t n = 1;

	while (at < len && n != 0) {
		n = pread(fd, buf + at, len - at, (off_t)(off + at));
		if (n < 0 && errno != EINTR)
			return -errno;
		at += n > 0 ? (uint64_t)n : 0;
	}
	return (int64_t)at;
}

int64_t local_file_peek(const struct file *f, void *buf, uint64_t off, uint64_t len)
{
	const int plain = local_of(f)->fd;
	const struct iovec v = { buf, len };
	_cleanup_(closep) int own = -1;
	char path[32];
	int64_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", plain);
	own = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	fd = own >= 0 ? own : plain;
	if (own >= 0)
		(void)posix_fadvise(own, 0, 0, POSIX_FADV_RANDOM);
	/* Resident bytes are read without waiting, and stay resident. */
	if (preadv2(fd, &v, 1, (off_t)off, RWF_NOWAIT) == (ssize_t)len)
		return (int64_t)len;
	n = read_all(fd, buf, off, len);
	(void)posix_fadvise(fd, (off_t)off, (off_t)len, POSIX_FADV_DONTNEED);
	return n;
}
