/* SPDX-License-Identifier: MIT */
#include "tier/yield.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/sysmacros.h>

static int open_count(const char *sys, dev_t dev)
{
	char path[256];

	if (snprintf(path, sizeof(path), "%s/%u:%u/inflight", sys, major(dev), minor(dev)) >=
	    (int)sizeof(path))
		return -1;
	return open(path, O_RDONLY | O_CLOEXEC);
}

void yield_begin(struct yield *y, const char *sys, dev_t a, dev_t b)
{
	y->busy_ns = 0;
	y->fd[0] = open_count(sys, a);
	y->fd[1] = b == a ? -1 : open_count(sys, b);
}

void yield_end(struct yield *y)
{
	closep(&y->fd[0]);
	closep(&y->fd[1]);
}

/* The file contains "READS WRITES", both in flight. */
static bool disk_busy(int fd)
{
	char text[64];
	unsigned reads, writes;
	ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);

	if (n <= 0)
		return false;
	text[n] = '\0';
	return sscanf(text, "%u %u", &reads, &writes) == 2 && (reads || writes);
}

bool yield_busy(struct yield *y)
{
	if (!disk_busy(y->fd[0]) && !disk_busy(y->fd[1]))
		return false;
	y->busy_ns = now_ns();
	return true;
}

size_t yield_chunk(const struct yield *y)
{
	bool busy = y->busy_ns && now_ns() - y->busy_ns < YIELD_BUSY_NS;

	return busy ? YIELD_CHUNK_BUSY : YIELD_CHUNK;
}
