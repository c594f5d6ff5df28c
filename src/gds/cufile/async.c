/* SPDX-License-Identifier: MIT */
/*
 * One transfer in the order of a CUDA stream.  The library reads its arguments and writes its
 * result when the stream has come to it, so they live here until then.  The result is 0 before
 * as well: only the caller knows when it means something.
 */
#include "base/err.h"
#include "base/fork.h"
#include "gds/cufile/internal.h"

struct cufile_async {
	struct cufile_taken taken;
	bool write;
	size_t len;
	off_t file_off, base_off;
	ssize_t res;
};

static int start(struct cufile_async *a, void *stream)
{
	void *base = (void *)(uintptr_t)a->taken.base;
	struct cuf_error e;

	if (a->write)
		e = cuf.cuFileWriteAsync(a->taken.handle, base, &a->len, &a->file_off, &a->base_off,
					 &a->res, stream);
	else
		e = cuf.cuFileReadAsync(a->taken.handle, base, &a->len, &a->file_off, &a->base_off,
					&a->res, stream);
	return e.err ? cufile_err(e, "put a transfer on a stream") : 0;
}

int cufile_async_start(const struct cufile_io *io, void *stream, struct cufile_async **ret)
{
	_cleanup_(freep) struct cufile_async *a = NULL;
	struct cufile_info info;
	int r;

	cufile_info(&info);
	if (info.version && !info.async)
		return err_set(EOPNOTSUPP, "this cuFile knows no order of streams");
	a = calloc(1, sizeof(*a));
	if (!a)
		return err_set(ENOMEM, "out of memory");
	r = cufile_take(io, &a->taken);
	if (r < 0)
		return r;
	a->write = io->flags & CUFILE_IO_WRITE;
	a->len = io->len;
	a->file_off = (off_t)io->file_off;
	a->base_off = (off_t)a->taken.base_off;
	r = start(a, stream);
	if (r < 0) {
		cufile_untake(&a->taken);
		return r;
	}
	*ret = TAKE_PTR(a);
	return 0;
}

int64_t cufile_async_end(struct cufile_async *a)
{
	int64_t r = fork_guard();

	if (r < 0)
		return r;
	r = __atomic_load_n(&a->res, __ATOMIC_ACQUIRE);
	cufile_untake(&a->taken);
	r = cufile_result(r, 0, a->len, a->write);
	free(a);
	return r;
}
