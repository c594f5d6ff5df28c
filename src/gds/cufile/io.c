/* SPDX-License-Identifier: MIT */
/* One transfer, on the calling thread. */
#include "base/err.h"
#include "base/fork.h"
#include "gds/cufile/internal.h"

static int io_check(const struct cufile_io *io)
{
	if (io->flags & ~(CUFILE_IO_WRITE | CUFILE_IO_SHARE))
		return err_set(EINVAL, "unknown flags %#x for a transfer by cuFile", io->flags);
	if ((io->file_off | io->len) & (CUFILE_ALIGN - 1) || io->file_off > INT64_MAX)
		return err_set(EINVAL,
			       "%llu bytes at %llu are no whole pages, and cuFile would copy them",
			       (unsigned long long)io->len, (unsigned long long)io->file_off);
	if (!io->len || io->len > cufile_mem_room(io->mem, io->mem_off))
		return err_set(EINVAL,
			       "%llu bytes at %llu of the allocation are not in one registration",
			       (unsigned long long)io->len, (unsigned long long)io->mem_off);
	return 0;
}

/* Check the arguments and hold file and slice; errors as of cufile_io(). */
static int io_take(const struct cufile_io *io, struct cufile_taken *ret)
{
	struct cufile_taken t = { .file = io->file, .mem = io->mem };
	int r = fork_guard();

	if (r == 0)
		r = io_check(io);
	if (r == 0)
		r = cufile_file_take(io->file, io->flags & CUFILE_IO_WRITE, &t.handle);
	if (r < 0)
		return r;
	r = cufile_mem_take(io->mem, io->mem_off, io->flags & CUFILE_IO_SHARE, &t);
	if (r < 0) {
		cufile_file_untake(io->file);
		return r;
	}
	*ret = t;
	return 0;
}

static void untake(const struct cufile_taken *t)
{
	cufile_mem_untake(t->mem, t->slice);
	cufile_file_untake(t->file);
}

int64_t cufile_io(const struct cufile_io *io)
{
	bool write = io->flags & CUFILE_IO_WRITE;
	uint64_t len = io->len;
	struct cufile_taken t;
	ssize_t n;
	int err, r = io_take(io, &t);

	if (r < 0)
		return r;
	errno = 0;
	if (write)
		n = cuf.cuFileWrite(t.handle, (void *)(uintptr_t)t.base, len, (off_t)io->file_off,
				    (off_t)t.base_off);
	else
		n = cuf.cuFileRead(t.handle, (void *)(uintptr_t)t.base, len, (off_t)io->file_off,
				   (off_t)t.base_off);
	err = errno;
	untake(&t);
	return cufile_result(n, err, len, write);
}
