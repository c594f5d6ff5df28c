/* SPDX-License-Identifier: MIT */
/*
 * Check whether memory is mapped with access.  When device memory is freed, a driver keeps its
 * addresses as a mapping without access, so a mapping alone does not suffice.
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

static int refuse(const struct mapped *m, uint64_t at)
{
	return err_set(EFAULT,
		       "%" PRIu64 " bytes at %#" PRIx64 " are no memory that the CPU may use, and "
		       "no device knows them: nothing is accessible at %#" PRIx64 "; were they "
		       "freed?",
		       m->len, m->addr, at);
}

/* Check one range by PROCMAP_QUERY.  Return -ENOTTY if the kernel does not support it. */
static int by_query(int fd, const struct mapped *m)
{
	uint64_t at = m->addr;

	while (at < m->addr + m->len) {
		struct query q = { .size = sizeof(q), .addr = at };

		if (ioctl(fd, QUERY, &q) < 0)
			return errno == ENOENT ? refuse(m, at) : -ENOTTY;
		if (!(q.vma_flags & (VMA_READABLE | VMA_WRITABLE)))
			return refuse(m, at);
		at = q.end;
	}
	return 0;
}

/* A range of adjacent mappings that the CPU may use. */
struct stretch {
	uint64_t start, end;
	uint64_t next, next_end; /* the first mapping after the range */
};

static bool next_mapping(FILE *f, struct stretch *s)
{
	char line[4352], prot[8]; /* line: room for a path and the fields before it */

	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s", &s->next, &s->next_end, prot) ==
			    3 &&
		    (prot[0] == 'r' || prot[1] == 'w'))
			return true;
	s->next = s->next_end = UINT64_MAX;
	return false;
}

static void next_stretch(FILE *f, struct stretch *s)
{
	s->start = s->next;
	s->end = s->next_end;
	while (next_mapping(f, s) && s->next == s->end)
		s->end = s->next_end;
}

/* Check all ranges against the text of /proc/self/maps.  Both lists are sorted by address. */
static int by_text(FILE *f, const struct mapped *list, unsigned nr)
{
	struct stretch s = { 0 };

	for (unsigned i = 0; i < nr; i++) {
		const struct mapped *m = &list[i];

		while (s.end <= m->addr)
			next_stretch(f, &s);
		if (m->addr < s.start)
			return refuse(m, m->addr);
		if (m->addr + m->len > s.end)
			return refuse(m, s.end);
	}
	return 0;
}

/* Check one range by msync(MS_ASYNC), which only looks for holes if there is no file to write. */
static int by_msync(const struct mapped *m)
{
	uint64_t start = align_down(m->addr, (uint64_t)sysconf(_SC_PAGESIZE));

	if (msync((void *)(uintptr_t)start, m->addr + m->len - start, MS_ASYNC) < 0 &&
	    errno == ENOMEM)
		return refuse(m, m->addr);
	return 0;
}

int mapped_check(const struct mapped *list, unsigned nr)
{
	_cleanup_(closefp) FILE *f = NULL;
	int saved = errno, r = 0;

	for (unsigned i = 0; r == 0 && i < nr; i++)
		r = by_msync(&list[i]);
	if (r == 0)
		f = fopen("/proc/self/maps", "re");
	for (unsigned i = 0; f && r == 0 && i < nr; i++)
		r = by_query(fileno(f), &list[i]);
	if (r == -ENOTTY)
		r = by_text(f, list, nr);
	errno = saved;
	return r;
}
