/* SPDX-License-Identifier: MIT */
/*
 * Execute a batch by pread and pwrite.
 *
 * A chunk of a file exists up to the last byte written to it, or does not exist.  Here the extents
 * of the backing file stand in for that: a chunk ends where its last extent ends.  Zeros that
 * nobody wrote are a hole if the read continues after them, and the end of the file otherwise,
 * whatever the file's size.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "foreign_daemon.h"

struct vfs *exec_vfs;

static atomic_uint_fast64_t nr_ios; /* executed requests */

/* Map an error to those that clients know; EIO for any other. */
static int64_t client_error(int err)
{
	static const int known[] = { EINVAL, EBADF,  EPERM, EROFS,  ENOSPC, ENOENT, ENODATA,
				     EACCES, EMFILE, EINTR, ENOMEM, EFBIG,  ENOSYS };

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (err == known[i])
			return -err;
	return -EIO;
}

/* Return where the data of the chunk [start, end) ends, or start if it has none. */
static uint64_t data_end(int fd, uint64_t start, uint64_t end)
{
	uint64_t last = start;

	while (last < end) {
		off_t data = lseek(fd, (off_t)last, SEEK_DATA);
		off_t hole;

		if (data < 0 || (uint64_t)data >= end)
			break;
		hole = lseek(fd, data, SEEK_HOLE);
		if (hole < 0)
			break;
		last = (uint64_t)hole;
	}
	return last < end ? last : end;
}

static int64_t read_within_chunk(int fd, uint8_t *buf, uint64_t off, uint64_t len)
{
	uint64_t start = off - off % options.chunk, done = 0;
	uint64_t end = data_end(fd, start, start + options.chunk);

	if (off >= end)
		return 0;
	if (len > end - off)
		len = end - off;
	while (done < len) {
		ssize_t n = pread(fd, buf + done, len - done, (off_t)(off + done));

		if (n < 0)
			return client_error(errno);
		if (!n)
			break; /* the file was truncated in parallel */
		done += (uint64_t)n;
	}
	return (int64_t)done;
}

static int64_t read_all(int fd, uint8_t *buf, uint64_t off, uint64_t len, uint64_t flags)
{
	uint64_t done = 0; /* bytes that the result counts */

	for (uint64_t at = 0, n; at < len; at += n) {
		uint64_t left = options.chunk - (off + at) % options.chunk;
		int64_t got;

		n = left < len - at ? left : len - at;
		got = read_within_chunk(fd, buf + at, off + at, n);
		if (got < 0)
			return got;
		if (!got)
			continue;
		/* More data follows, so missing bytes before it are a hole. */
		if (done < at && flags & WIRE_FORBID_HOLES)
			return -ENODATA;
		memset(buf + done, 0, at - done);
		done = at + (uint64_t)got;
	}
	return (int64_t)done;
}

static int64_t write_all(int fd, const uint8_t *buf, uint64_t off, uint64_t len)
{
	uint64_t done = 0;

	while (done < len) {
		ssize_t n = pwrite(fd, buf + done, len - done, (off_t)(off + done));

		if (n < 0)
			return done ? (int64_t)done : client_error(errno);
		done += (uint64_t)n;
	}
	return (int64_t)done;
}

static bool is_within_block(const struct iov *buf, const struct wire_args *a)
{
	uint64_t block = buf->key.block_size ? buf->key.block_size : buf->size;

	if (a->len > buf->size || a->buf_off > buf->size - a->len)
		return false;
	return !a->len || a->buf_off / block == (a->buf_off + a->len - 1) / block;
}

/* Find file and memory of a request.  Return 0 if it can be executed. */
static int64_t prepare(const struct key *ring, struct io *io)
{
	const struct wire_args *a = &io->args;
	struct stat st;

	if (io->result < 0)
		return io->result;
	if (options.readonly && !ring->for_read)
		return -EROFS;
	io->fd = vfs_reopen(exec_vfs, a->file_ino,
			    (ring->for_read ? O_RDONLY : O_WRONLY) | O_NONBLOCK);
	if (io->fd < 0)
		return io->fd == -ENOENT ? -EBADF : client_error(-io->fd);
	if (fstat(io->fd, &st) < 0 || !S_ISREG(st.st_mode))
		return -EINVAL;
	io->buf = iov_find_buffer(a->buf_id);
	if (!io->buf || !is_within_block(io->buf, a))
		return -EINVAL;
	if (a->file_off > INT64_MAX || a->len > INT64_MAX - a->file_off)
		return -EINVAL;
	return 0;
}

/* If any destinations of a batch of reads overlap, fail all of its requests that have no error
 * yet. */
static void refuse_overlaps(struct batch *b)
{
	bool overlap = false;

	for (int32_t i = 0; i < b->n; i++) {
		for (int32_t k = 0; k < i && b->io[i].result == 0; k++) {
			const struct io *x = &b->io[i], *y = &b->io[k];

			if (y->result < 0)
				continue;
			if (x->buf->base + x->args.buf_off <
				    y->buf->base + y->args.buf_off + y->args.len &&
			    y->buf->base + y->args.buf_off <
				    x->buf->base + x->args.buf_off + x->args.len)
				overlap = true;
		}
	}
	for (int32_t i = 0; overlap && i < b->n; i++)
		if (b->io[i].result == 0)
			b->io[i].result = -EIO;
}

/* Apply the options --slow and --die-after. */
static void misbehave(void)
{
	const struct timespec ts = { .tv_sec = (time_t)(options.slow_ms / 1000),
				     .tv_nsec = (long)(options.slow_ms % 1000) * 1000000 };

	if (options.slow_ms)
		(void)nanosleep(&ts, NULL);
	if (options.die_after && atomic_fetch_add(&nr_ios, 1) >= options.die_after) {
		/* Clients get no message.  Remove the semaphores' names, which nobody else
		 * would. */
		executors_unlink();
		_exit(0);
	}
}

static int64_t execute(const struct key *ring, const struct io *io)
{
	const struct wire_args *a = &io->args;
	uint8_t *base = io->buf->base + a->buf_off;

	misbehave();
	if (ring->for_read)
		return read_all(io->fd, base, a->file_off, a->len, ring->flags);
	return write_all(io->fd, base, a->file_off, a->len);
}

void exec_batch(struct batch *b)
{
	const struct key *ring = &b->iov->key;

	for (int32_t i = 0; i < b->n; i++)
		b->io[i].result = prepare(ring, &b->io[i]);
	if (ring->for_read)
		refuse_overlaps(b);
	for (int32_t i = 0; i < b->n; i++) {
		struct io *io = &b->io[i];

		if (io->result == 0)
			io->result = execute(ring, io);
		if (io->fd >= 0)
			(void)close(io->fd);
		iov_unref(io->buf);
	}
}
