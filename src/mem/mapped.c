/* SPDX-License-Identifier: MIT */
/*
 * What a driver keeps of its addresses when device memory is freed is a mapping without access, so
 * it is not enough that something is mapped.
 */
#include "mem/mapped.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "base/err.h"

/* PROCMAP_QUERY of <linux/fs.h>, which older headers lack. */
struct query {
	uint64_t size, flags, addr;
	uint64_t start, end, vma_flags;
	uint64_t page_size, offset, inode;
	uint32_t dev_major, dev_minor, name_size, build_id_size;
	uint64_t name, build_id;
};

#define QUERY _IOWR('f', 17, struct query)
#define VMA_READABLE 1u
#define VMA_WRITABLE 2u

static void closefp(FILE **f)
{
	if (*f)
		(void)fclose(*f);
}

static int refuse(uint64_t addr, uint64_t len, uint64_t at)
{
	return err_set(EFAULT,
		       "%" PRIu64 " bytes at %#" PRIx64 " are no memory that the CPU may use, and "
		       "no device knows them: nothing is accessible at %#" PRIx64 "; were they "
		       "freed?",
		       len, addr, at);
}

/* -ENOTTY: the kernel does not know the call. */
static int by_query(int fd, uint64_t addr, uint64_t len)
{
	uint64_t at = addr;

	while (at < addr + len) {
		struct query q = { .size = sizeof(q), .addr = at };

		if (ioctl(fd, QUERY, &q) < 0)
			return errno == ENOENT ? refuse(addr, len, at) : -ENOTTY;
		if (!(q.vma_flags & (VMA_READABLE | VMA_WRITABLE)))
			return refuse(addr, len, at);
		at = q.end;
	}
	return 0;
}

static int by_text(FILE *f, uint64_t addr, uint64_t len)
{
	uint64_t at = addr, start, end;
	char line[4352], prot[8]; /* a path and what stands before it */

	while (at < addr + len && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s", &start, &end, prot) != 3 ||
		    end <= at)
			continue;
		if (start > at || (prot[0] != 'r' && prot[1] != 'w'))
			return refuse(addr, len, at);
		at = end;
	}
	return at < addr + len ? refuse(addr, len, at) : 0;
}

int mapped_check(uint64_t addr, uint64_t len)
{
	_cleanup_(closefp) FILE *f = NULL;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), start = align_down(addr, page);
	int saved = errno, r = 0;

	/* Without a file to write MS_ASYNC does nothing but look for holes. */
	if (msync((void *)(uintptr_t)start, addr + len - start, MS_ASYNC) < 0 && errno == ENOMEM)
		r = refuse(addr, len, addr);
	if (r == 0)
		f = fopen("/proc/self/maps", "re");
	if (f) {
		r = by_query(fileno(f), addr, len);
		if (r == -ENOTTY)
			r = by_text(f, addr, len);
	}
	errno = saved;
	return r;
}
