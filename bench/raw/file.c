/* SPDX-License-Identifier: MIT */
#include "raw.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "tools/common/numbers.h"

int fd = -1, fd_direct = -1;

static uint64_t nr_blocks, walk_stride, walk_start;

double raw_file_resident(void)
{
	_cleanup_(freep) unsigned char *vec = NULL;
	uint64_t pages, there = 0;
	struct stat st;
	void *p;
	int r;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < PAGE)
		return -1;
	pages = (uint64_t)st.st_size / PAGE;
	if (pages > 1u << 18)
		pages = 1u << 18;
	vec = malloc(pages);
	p = mmap(NULL, pages * PAGE, PROT_NONE, MAP_SHARED, fd, 0);
	if (!vec || p == MAP_FAILED)
		return -1;
	r = mincore(p, pages * PAGE, vec);
	(void)munmap(p, pages * PAGE);
	for (uint64_t i = 0; r == 0 && i < pages; i++)
		there += vec[i] & 1;
	return r < 0 ? -1 : (double)there / (double)pages;
}

void file_make_cold(void)
{
	(void)fdatasync(fd);
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

void file_make_warm(void)
{
	static char buf[1 << 20];
	off_t off = 0;
	ssize_t n;

	while ((n = pread(fd, buf, sizeof(buf), off)) > 0)
		off += n;
}

/* Visit every block once in a random-looking order, by a step that is coprime to their number. */
static void plan_walk(uint64_t len)
{
	if (set.bytes && set.bytes < len)
		len = set.bytes;
	nr_blocks = len / set.size * (set.size / set.block);
	if (!nr_blocks)
		die(1, "%s is smaller than a piece", set.path);
	walk_stride = 1;
	if (!set.random || nr_blocks < 3)
		return;
	walk_stride = (uint64_t)((double)nr_blocks * 0.618) | 1;
	while (gcd(walk_stride, nr_blocks) != 1)
		walk_stride++;
	walk_start = nr_blocks / 3;
}

int raw_file_again(bool direct)
{
	return open(set.path,
		    (set.write ? O_RDWR : O_RDONLY) | (direct ? O_DIRECT : 0) | O_CLOEXEC);
}

void raw_file_open(void)
{
	struct stat st;

	fd = raw_file_again(false);
	if (fd < 0 || fstat(fd, &st) < 0)
		die(1, "%s: %s", set.path, strerror(errno));
	if (set.direct) {
		fd_direct = raw_file_again(true);
		if (fd_direct < 0)
			die(REFUSED, "%s takes no O_DIRECT: %s", set.path, strerror(errno));
		if (set.block % PAGE)
			die(2, "O_DIRECT wants pieces of whole pages");
	}
	plan_walk((uint64_t)st.st_size);
}

bool file_has(uint64_t idx)
{
	return set.seconds > 0 || idx < nr_blocks / (set.size / set.block);
}

uint64_t raw_file_place(uint64_t idx, uint64_t block)
{
	uint64_t i = (idx * (set.size / set.block) + block) % nr_blocks;

	return (walk_start + i * walk_stride) % nr_blocks * set.block;
}
