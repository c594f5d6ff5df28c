/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/crc32c.h"

#include "kv/warm.h"

/* Bytes that are read and then checked at a time: a quarter of a second-level cache of 1 MiB, and
 * enough to make the cost of a system call small. */
#define WARM_PIECE KIB(256)
#define WARM_IOVS 64u
/* Not in <linux/magic.h>. */
#define MAGIC_XFS 0x58465342

enum warm_fs warm_fs_of(int dir)
{
	struct statfs st;

	if (fstatfs(dir, &st) < 0)
		return WARM_NO;
	switch ((unsigned)st.f_type) {
	case TMPFS_MAGIC:
		return WARM_MEMORY;
	case EXT4_SUPER_MAGIC:
	case BTRFS_SUPER_MAGIC:
	case MAGIC_XFS:
		return WARM_NOWAIT;
	default:
		return WARM_NO;
	}
}

int warm_open(int dir, const char *path)
{
	/* O_NOATIME: updating the time of access may wait for the file system's journal. */
	struct open_how how = {
		.flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOATIME,
		.resolve = RESOLVE_CACHED,
	};
	long fd = syscall(SYS_openat2, dir, path, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

static ssize_t warm_preadv(int fd, enum warm_fs fs, const struct iovec *iov, unsigned nr,
			   uint64_t at)
{
	ssize_t n = preadv2(fd, iov, (int)nr, (off_t)at, fs == WARM_MEMORY ? 0 : RWF_NOWAIT);

	return n < 0 ? -errno : n;
}

ssize_t warm_pread(int fd, enum warm_fs fs, void *buf, size_t len, uint64_t at)
{
	return warm_preadv(fd, fs, &(struct iovec){ buf, len }, 1, at);
}

/* A position in the pieces of a block. */
struct warm_at {
	const struct pst_seg *seg;
	uint64_t k, in; /* k: index of the piece in seg; in: bytes of that piece that are done */
	char *base;
};

/* List the memory of the next bytes, up to most, and advance.  Return how many bytes. */
static uint64_t warm_next(struct warm_at *w, uint64_t most, struct iovec *iov, unsigned *ret_nr)
{
	uint64_t sum = 0;
	unsigned n = 0;

	for (; sum < most && n < WARM_IOVS; n++) {
		const struct pst_seg *s = w->seg;
		uint64_t len = MIN(s->len - w->in, most - sum);

		iov[n] = (struct iovec){ w->base + s->mem_off + w->k * s->mem_stride + w->in, len };
		sum += len;
		w->in += len;
		if (w->in < s->len)
			continue;
		w->in = 0;
		if (++w->k >= s->count) {
			w->k = 0;
			w->seg++;
		}
	}
	*ret_nr = n;
	return sum;
}

static uint32_t warm_crc(uint32_t crc, const struct iovec *iov, uint64_t len)
{
	for (; len; iov++) {
		uint64_t n = MIN((uint64_t)iov->iov_len, len);

		crc = crc32c(crc, iov->iov_base, n);
		len -= n;
	}
	return crc;
}

uint64_t warm_read(int fd, enum warm_fs fs, char *base, const struct pst_seg *segs,
		   uint64_t nr_segs, uint64_t len, uint32_t *crc)
{
	const struct pst_seg whole = { .len = len, .count = 1 };
	struct warm_at w = { .seg = nr_segs ? segs : &whole, .base = base };
	struct iovec iov[WARM_IOVS];
	uint64_t at = 0;

	while (at < len) {
		unsigned nr;
		uint64_t want = warm_next(&w, MIN(len - at, WARM_PIECE), iov, &nr);
		ssize_t n = warm_preadv(fd, fs, iov, nr, at);

		if (n <= 0)
			break;
		*crc = warm_crc(*crc, iov, (uint64_t)n);
		at += (uint64_t)n;
		if ((uint64_t)n < want)
			break;
	}
	return at;
}
