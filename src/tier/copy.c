/* SPDX-License-Identifier: MIT */
#include "tier/copy.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/xattr.h>

#include "base/crc32c.h"
#include "base/err.h"

#define XATTR_NAMES_MAX 65536u /* bytes; the kernel's XATTR_LIST_MAX */
#define XATTR_VALUE_MAX 65536u /* bytes; the kernel's XATTR_SIZE_MAX */

ssize_t copy_read(int fd, void *buf, size_t len, uint64_t off)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(fd, (char *)buf + done, len - done, (off_t)(off + done));

		if (n == 0)
			break;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

static int write_full(int fd, const void *buf, size_t len, uint64_t off)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pwrite(fd, (const char *)buf + done, len - done, (off_t)(off + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EIO;
		done += (size_t)n;
	}
	return 0;
}

/*
 * Find the next data at or after off: *ret_from to *ret_to, or size for both if there is none.  A
 * file system without holes reports everything as data.
 */
static int next_data(int fd, uint64_t off, uint64_t size, uint64_t *ret_from, uint64_t *ret_to)
{
	off_t from = lseek(fd, (off_t)off, SEEK_DATA), to;

	*ret_from = *ret_to = size;
	if (from < 0 && errno == ENXIO)
		return 0;
	if (from < 0 && errno == EINVAL) {
		*ret_from = off;
		return 0;
	}
	if (from < 0)
		return -errno;
	to = lseek(fd, from, SEEK_HOLE);
	if (to < 0)
		return -errno;
	*ret_from = MIN((uint64_t)from, size);
	*ret_to = MIN((uint64_t)to, size);
	return 0;
}

/* Append len zero bytes to the CRC. */
static uint32_t crc_zeros(uint32_t crc, uint64_t len)
{
	static const char zeros[4096];

	/* Compute the CRC of the appended bytes by doubling. */
	uint32_t unit = crc32c(0, zeros, sizeof(zeros)), sum = 0;
	uint64_t pages = len / sizeof(zeros), unit_len = sizeof(zeros), sum_len = 0;

	if (!len)
		return crc;
	for (; pages; pages >>= 1) {
		if (pages & 1) {
			sum = crc32c_combine(sum, unit, unit_len);
			sum_len += unit_len;
		}
		unit = crc32c_combine(unit, unit, unit_len);
		unit_len *= 2;
	}
	crc = crc32c_combine(crc, sum, sum_len);
	return crc32c(crc, zeros, len % sizeof(zeros));
}

void copy_pace(uint64_t rate, uint64_t bytes, uint64_t *due)
{
	uint64_t now;
	struct timespec ts;

	if (!rate)
		return;
	*due += (uint64_t)((double)bytes / (double)rate * 1e9);
	now = now_ns();
	if (*due <= now) {
		*due = now;
		return;
	}
	ts = (struct timespec){ .tv_sec = (time_t)((*due - now) / NSEC_PER_SEC),
				.tv_nsec = (long)((*due - now) % NSEC_PER_SEC) };
	(void)nanosleep(&ts, NULL);
}

/* Reserve disk space for all data, so that a full disk is noticed before copying. */
static int copy_reserve(int src, int dst, uint64_t size)
{
	uint64_t from, to;
	int r;

	for (uint64_t off = 0; off < size; off = to) {
		r = next_data(src, off, size, &from, &to);
		if (r < 0)
			return err_set(r, "cannot find the file's data: %s", strerror(-r));
		if (from >= size)
			break;
		if (fallocate(dst, 0, (off_t)from, (off_t)(to - from)) == 0)
			continue;
		if (errno == EOPNOTSUPP)
			return 0;
		return err_set(errno, "no room for the copy: %s", strerror(errno));
	}
	return 0;
}

/*
 * Write a chunk to the disk now: bytes that accumulate in the page cache would be written in one
 * burst, which ignores the rate and delays every program's reads.
 */
static int write_back(int fd, uint64_t off, size_t len)
{
	if (sync_file_range(fd, (off_t)off, (off_t)len,
			    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
				    SYNC_FILE_RANGE_WAIT_AFTER) == 0)
		return 0;
	/* Not all file systems and sandboxes allow the call; copy_sync() writes the rest. */
	if (errno == ENOSYS || errno == EINVAL || errno == EOPNOTSUPP || errno == EPERM)
		return 0;
	/* Report the error here: the kernel reports it once per descriptor, so fsync() would
	 * not. */
	return err_set(errno, "cannot write the copy at %llu: %s", (unsigned long long)off,
		       strerror(errno));
}

int copy_store(struct copy_job *job, const void *buf, size_t len, uint64_t off)
{
	uint64_t began = now_ns();
	int r = write_full(job->dst, buf, len, off);

	if (r < 0)
		return err_set(r, "cannot write the copy at %llu: %s", (unsigned long long)off,
			       strerror(-r));
	r = write_back(job->dst, off, len);
	if (r < 0)
		return r;
	job->dst_measured.write_bytes += len;
	job->dst_measured.write_ns += now_ns() - began;
	return 0;
}

static int copy_chunk(struct copy_job *job, char *buf, uint64_t off, size_t len)
{
	uint64_t t0 = now_ns(), t1;
	ssize_t n = copy_read(job->src, buf, len, off);

	if (n < 0)
		return err_set((int)n, "cannot read the file at %llu: %s", (unsigned long long)off,
			       strerror((int)-n));
	if ((size_t)n < len)
		return err_set(EAGAIN, "the file became shorter while it was copied");
	t1 = now_ns();
	job->src_measured.read_bytes += len;
	job->src_measured.read_ns += t1 - t0;
	job->crc = crc32c(job->crc, buf, len);
	return copy_store(job, buf, len, off);
}

static size_t chunk_of(const struct copy_job *job)
{
	return job->chunk ? MIN(job->chunk, (size_t)COPY_CHUNK_MAX) : COPY_CHUNK_MAX;
}

int copy_data(struct copy_job *job)
{
	_cleanup_(freep) char *buf = aligned_alloc(4096, COPY_CHUNK_MAX);
	uint64_t off = 0, from, to, due = now_ns();
	int r;

	if (!buf)
		return err_set(ENOMEM, "out of memory");
	r = copy_reserve(job->src, job->dst, job->size);
	if (r < 0)
		return r;
	job->crc = 0;
	while (off < job->size) {
		r = next_data(job->src, off, job->size, &from, &to);
		if (r < 0)
			return err_set(r, "cannot find the file's data: %s", strerror(-r));
		job->crc = crc_zeros(job->crc, from - off);
		for (off = from; off < to;) {
			size_t len;

			r = job->go_on ? job->go_on(job->arg) : 0;
			if (r < 0)
				return r;
			len = (size_t)MIN(chunk_of(job), to - off);
			r = copy_chunk(job, buf, off, len);
			if (r < 0)
				return r;
			off += len;
			copy_pace(job->rate, len, &due);
		}
	}
	/* Set the size, which a hole at the end or an excess reservation leaves wrong. */
	if (ftruncate(job->dst, (off_t)job->size) < 0)
		return err_set(errno, "cannot set the copy's size: %s", strerror(errno));
	return 0;
}

int copy_sync(struct copy_job *job)
{
	uint64_t began = now_ns();

	if (fsync(job->dst) < 0)
		return err_set(errno, "cannot sync the copy: %s", strerror(errno));
	job->dst_measured.write_ns += now_ns() - began;
	return 0;
}

static int copy_xattr(int src, int dst, const char *name, char *value)
{
	ssize_t n = fgetxattr(src, name, value, XATTR_VALUE_MAX);

	if (n < 0 && errno == ENODATA)
		return 0;
	if (n < 0)
		return err_set(errno, "cannot read the file's attribute %s: %s", name,
			       strerror(errno));
	if (fsetxattr(dst, name, value, (size_t)n, 0) < 0)
		return err_set(errno, "the tier's file system does not take the attribute %s: %s",
			       name, strerror(errno));
	return 0;
}

static int copy_xattrs(int src, int dst)
{
	_cleanup_(freep) char *names = malloc(XATTR_NAMES_MAX), *value = malloc(XATTR_VALUE_MAX);
	ssize_t len;
	int r = 0;

	if (!names || !value)
		return err_set(ENOMEM, "out of memory");
	len = flistxattr(src, names, XATTR_NAMES_MAX);
	if (len < 0 && errno == EOPNOTSUPP)
		return 0;
	if (len < 0)
		return err_set(errno, "cannot list the file's attributes: %s", strerror(errno));
	for (char *at = names; at < names + len && r == 0; at += strlen(at) + 1)
		r = copy_xattr(src, dst, at, value);
	return r;
}

int copy_attrs(int src, int dst, const struct stat *st)
{
	const struct timespec times[2] = { st->st_atim, st->st_mtim };
	int r;

	if (fchown(dst, st->st_uid, st->st_gid) < 0)
		return err_set(errno, "cannot give the copy the file's owner: %s", strerror(errno));
	if (fchmod(dst, st->st_mode & 07777) < 0)
		return err_set(errno, "cannot give the copy the file's mode: %s", strerror(errno));
	r = copy_xattrs(src, dst);
	if (r < 0)
		return r;
	if (futimens(dst, times) < 0)
		return err_set(errno, "cannot give the copy the file's times: %s", strerror(errno));
	return 0;
}

int copy_read_back(const struct copy_job *job, uint32_t *ret)
{
	_cleanup_(freep) char *buf = aligned_alloc(4096, COPY_CHUNK_MAX);
	uint64_t off = 0, from, to, due = now_ns();
	uint32_t crc = 0;
	int r;

	if (!buf)
		return err_set(ENOMEM, "out of memory");
	while (off < job->size) {
		r = next_data(job->dst, off, job->size, &from, &to);
		if (r < 0)
			return err_set(r, "cannot find the file's data: %s", strerror(-r));
		crc = crc_zeros(crc, from - off);
		for (off = from; off < to;) {
			size_t len;
			ssize_t n;

			r = job->go_on ? job->go_on(job->arg) : 0;
			if (r < 0)
				return r;
			len = (size_t)MIN(chunk_of(job), to - off);
			n = copy_read(job->dst, buf, len, off);
			if (n < 0)
				return err_set((int)n, "cannot read the file at %llu: %s",
					       (unsigned long long)off, strerror((int)-n));
			if ((size_t)n < len)
				return err_set(EAGAIN, "the file became shorter meanwhile");
			crc = crc32c(crc, buf, len);
			off += len;
			copy_pace(job->rate, len, &due);
		}
	}
	*ret = crc;
	return 0;
}

int copy_crc(int fd, uint64_t size, uint32_t *ret)
{
	const struct copy_job job = { .src = -1, .dst = fd, .size = size };

	return copy_read_back(&job, ret);
}

int copy_equal(int a, int b)
{
	_cleanup_(freep) char *buf = malloc(2 * COPY_CHUNK_MAX);
	struct stat sa, sb;

	if (!buf)
		return err_set(ENOMEM, "out of memory");
	if (fstat(a, &sa) < 0 || fstat(b, &sb) < 0)
		return err_set(errno, "cannot ask for a file's size: %s", strerror(errno));
	if (sa.st_size != sb.st_size)
		return 0;
	for (uint64_t off = 0;;) {
		ssize_t n = copy_read(a, buf, COPY_CHUNK_MAX, off), m;

		m = n < 0 ? n : copy_read(b, buf + COPY_CHUNK_MAX, COPY_CHUNK_MAX, off);
		if (n < 0 || m < 0)
			return err_set(n < 0 ? (int)n : (int)m, "cannot compare two copies: %s",
				       strerror(n < 0 ? (int)-n : (int)-m));
		if (n != m || memcmp(buf, buf + COPY_CHUNK_MAX, (size_t)n) != 0)
			return 0;
		if ((size_t)n < COPY_CHUNK_MAX)
			return 1;
		off += (uint64_t)n;
	}
}

void copy_uncache(int fd)
{
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}
