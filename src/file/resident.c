/* SPDX-License-Identifier: MIT */
/*
 * Find out which bytes of a local file the page cache holds.
 *
 * cachestat(2), since Linux 6.5, tells without reading.  An RWF_NOWAIT read would also tell, but a
 * miss starts read-ahead, so the disk would read the same bytes twice.
 */
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "file/local.h"

#ifndef __NR_cachestat
#define __NR_cachestat 451
#endif

#define PAGE UINT64_C(4096)

struct cachestat_range {
	uint64_t off, len;
};

struct cachestat {
	uint64_t nr_cache, nr_dirty, nr_writeback, nr_evicted, nr_recently_evicted;
};

/*
 * Return true if the file certainly ends at off or before.  If a server may know another size, the
 * local size proves nothing.  The layers below an overlay do not change by themselves.
 */
bool local_file_ends_at(const struct file *f, uint64_t off)
{
	struct file_stamp now;

	if (f->caps & FILE_MAY_HANG && local_of(f)->fs_magic != OVERLAYFS_SUPER_MAGIC)
		return false;
	return file_stamp(f, &now) == 0 && off >= now.size;
}

/*
 * An overlay file's pages belong to the file below.  cachestat(2) does not look there, but
 * mincore() of a mapping does.  The mapping is never accessed.
 */
static int resident_below(const struct file *f, uint64_t off, uint64_t len)
{
	uint64_t start = align_down(off, PAGE), end = align_up(off + len, PAGE);
	unsigned char vec[1024];

	for (uint64_t n; start < end; start += n) {
		void *p;
		int r;

		n = MIN(end - start, sizeof(vec) * PAGE);
		p = mmap(NULL, n, PROT_READ, MAP_SHARED, local_of(f)->fd, (off_t)start);
		if (p == MAP_FAILED)
			return -1;
		r = mincore(p, n, vec);
		(void)munmap(p, n);
		if (r < 0)
			return -1;
		for (uint64_t i = 0; i < n / PAGE; i++)
			if (!(vec[i] & 1))
				return local_file_ends_at(f, start + i * PAGE);
	}
	return 1;
}

int local_file_resident(const struct file *f, uint64_t off, uint64_t len)
{
	const struct local_file *lf = local_of(f);
	struct cachestat_range range = { off, len };
	struct cachestat cs;
	uint64_t first = off / PAGE, end = align_up(off + len, PAGE) / PAGE;

	if (lf->fs_magic == OVERLAYFS_SUPER_MAGIC)
		return resident_below(f, off, len);
	if (syscall(__NR_cachestat, lf->fd, &range, &cs, 0) < 0)
		return -1;
	return cs.nr_cache >= end - first ||
	       (cs.nr_cache && local_file_ends_at(f, (first + cs.nr_cache) * PAGE));
}
