/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "base/err.h"
#define T_ERROR_TEXT() err_text()
#include "t.h"

#include "base/fault.h"
#include "file/local.h"
#include "file/op.h"

static struct local_file file = {
	.file = { .ops = &local_file_ops, .mem_align = 512, .off_align = 4096 },
	.fd = 3,
	.fd_direct = 4,
};

/* A result of a system call, and what the operation must do next. */
static const struct row {
	const char *name;
	uint8_t kind, flags;
	bool canceled;
	uint64_t off, len, moved; /* state before the call */
	int64_t res;              /* result of the system call */
	bool finished;
	int64_t want; /* op.res, if finished */
	uint64_t moved_then;
	uint8_t flags_then;
} rows[] = {
	{ "whole read", IO_READ, 0, 0, 0, 100, 0, 100, 1, 100, 100, 0 },
	{ "whole write", IO_WRITE, 0, 0, 0, 100, 0, 100, 1, 100, 100, 0 },
	{ "short read", IO_READ, 0, 0, 0, 100, 0, 60, 0, 0, 60, 0 },
	{ "short write", IO_WRITE, 0, 0, 0, 100, 0, 60, 0, 0, 60, 0 },
	{ "rest of it", IO_READ, 0, 0, 0, 100, 60, 40, 1, 100, 100, 0 },
	{ "end of file", IO_READ, 0, 0, 0, 100, 0, 0, 1, 0, 0, 0 },
	{ "end after some", IO_READ, 0, 0, 0, 100, 60, 0, 1, 60, 60, 0 },
	{ "write of nothing", IO_WRITE, 0, 0, 0, 100, 60, 0, 1, -EIO, 60, 0 },
	{ "error", IO_READ, 0, 0, 0, 100, 0, -EIO, 1, -EIO, 0, 0 },
	{ "error after some", IO_WRITE, 0, 0, 0, 100, 60, -ENOSPC, 1, -ENOSPC, 60, 0 },
	{ "EINTR", IO_READ, 0, 0, 0, 100, 60, -EINTR, 0, 0, 60, 0 },
	{ "EAGAIN", IO_READ, 0, 0, 0, 100, 60, -EAGAIN, 0, 0, 60, 0 },
	{ "fsync", IO_FSYNC, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0 },
	{ "fsync fails", IO_FSYNC, 0, 0, 0, 0, 0, -EIO, 1, -EIO, 0, 0 },
	{ "fsync EINTR", IO_FDATASYNC, 0, 0, 0, 0, 0, -EINTR, 0, 0, 0, 0 },
	{ "nowait short", IO_READ, IO_OP_NOWAIT, 0, 0, 100, 0, 60, 1, 60, 60, IO_OP_NOWAIT },
	{ "nowait cold", IO_READ, IO_OP_NOWAIT, 0, 0, 100, 0, -EAGAIN, 1, -EAGAIN, 0,
	  IO_OP_NOWAIT },
	{ "nowait unknown", IO_READ, IO_OP_NOWAIT, 0, 0, 100, 0, -EOPNOTSUPP, 1, -EAGAIN, 0,
	  IO_OP_NOWAIT },
	{ "nowait EINTR", IO_READ, IO_OP_NOWAIT, 0, 0, 100, 0, -EINTR, 0, 0, 0, IO_OP_NOWAIT },
	{ "nowait end", IO_READ, IO_OP_NOWAIT, 0, 0, 100, 0, 0, 1, 0, 0, IO_OP_NOWAIT },
	{ "EOPNOTSUPP", IO_READ, 0, 0, 0, 100, 0, -EOPNOTSUPP, 1, -EOPNOTSUPP, 0, 0 },
	{ "direct whole", IO_READ, IO_OP_DIRECT, 0, 4096, 8192, 0, 8192, 1, 8192, 8192,
	  IO_OP_DIRECT },
	{ "direct short", IO_READ, IO_OP_DIRECT, 0, 4096, 8192, 0, 4096, 0, 0, 4096, IO_OP_DIRECT },
	{ "direct at the end", IO_READ, IO_OP_DIRECT, 0, 4096, 8192, 0, 5000, 0, 0, 5000, 0 },
	{ "direct write, short", IO_WRITE, IO_OP_DIRECT, 0, 4096, 8192, 0, 4096, 0, 0, 4096,
	  IO_OP_DIRECT },
	{ "direct write in a block", IO_WRITE, IO_OP_DIRECT, 0, 4096, 8192, 0, 5000, 1, 5000, 5000,
	  IO_OP_DIRECT },
	{ "direct refused", IO_READ, IO_OP_DIRECT, 0, 4096, 8192, 0, -EINVAL, 1, -EINVAL, 0,
	  IO_OP_DIRECT },
	{ "canceled, done", IO_READ, 0, 1, 0, 100, 0, 100, 1, 100, 100, 0 },
	{ "canceled, short", IO_READ, 0, 1, 0, 100, 0, 60, 1, -ECANCELED, 60, 0 },
	{ "canceled, EINTR", IO_READ, 0, 1, 0, 100, 60, -EINTR, 1, -ECANCELED, 60, 0 },
	{ "canceled", IO_READ, 0, 1, 0, 100, 0, -ECANCELED, 1, -ECANCELED, 0, 0 },
};

static void advancing(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct row *r = &rows[i];
		struct io_op op = { .file = &file.file,
				    .kind = r->kind,
				    .flags = r->flags,
				    .off = r->off,
				    .len = r->len };

		io_op_begin(&op);
		op.moved = r->moved;
		op.canceled = r->canceled;
		if (io_op_advance(&op, r->res) != r->finished)
			T_FAIL("%s: finished is not %d", r->name, r->finished);
		if (r->finished && op.res != r->want)
			T_FAIL("%s: res is %lld", r->name, (long long)op.res);
		if (op.moved != r->moved_then)
			T_FAIL("%s: moved is %llu", r->name, (unsigned long long)op.moved);
		if (op.flags != r->flags_then)
			T_FAIL("%s: flags are %x", r->name, op.flags);
	}
}

static void beginning(void)
{
	struct io_op op;

	memset(&op, 0xff, sizeof(op));
	io_op_begin(&op);
	T_CHECK(!op.res && !op.moved && !op.pin_err && !op.pinned && !op.canceled);
}

static void where_the_next_call_goes(void)
{
	char buf[100];
	struct io_op op = { .file = &file.file, .buf = buf, .off = 1000, .len = 100 };

	io_op_begin(&op);
	T_EQ(io_op_ask(&op), 100);
	T_EQ(io_op_fd(&op), 3);
	op.moved = 30;
	T_EQ(io_op_ask(&op), 70);
	T_EQ(io_op_off(&op), 1030);
	T_CHECK(io_op_buf(&op) == buf + 30);
	op.flags = IO_OP_DIRECT;
	T_EQ(io_op_fd(&op), 4);
}

static void faults(void)
{
	struct io_op op = { .file = &file.file, .len = 3 * 4096 };

	io_op_begin(&op);
	T_OK(fault_set("file.read:1:EIO,file.read:2:short,file.read:3:short,file.write:1:ENOSPC,"
		       "file.sync:1:EROFS"));
	T_EQ(io_op_ask(&op), -EIO);
	T_EQ(io_op_ask(&op), 3 * 2048);
	op.flags = IO_OP_DIRECT;
	/* a short result: half of the bytes, rounded down to whole blocks */
	T_EQ(io_op_ask(&op), 4096);
	T_EQ(io_op_ask(&op), 3 * 4096);
	op.kind = IO_WRITE;
	T_EQ(io_op_ask(&op), -ENOSPC);
	op.kind = IO_FDATASYNC;
	T_EQ(io_op_ask(&op), -EROFS);
	T_OK(fault_set("file.read:0:short"));
	op.kind = IO_READ;
	op.len = 4096;
	T_EQ(io_op_ask(&op), 4096); /* a short result has at least one block */
	T_OK(fault_set(NULL));
}

static void first_in_first_out(void)
{
	struct io_op op[4];
	struct io_fifo q = { 0 };

	T_CHECK(!io_fifo_pop(&q));
	for (int i = 0; i < 4; i++)
		io_fifo_push(&q, &op[i]);
	T_CHECK(io_fifo_remove(&q, &op[3])); /* removes the last operation */
	T_CHECK(!io_fifo_remove(&q, &op[3]));
	T_CHECK(io_fifo_remove(&q, &op[1]));
	io_fifo_push(&q, &op[1]);
	T_CHECK(io_fifo_pop(&q) == &op[0]);
	T_CHECK(io_fifo_pop(&q) == &op[2]);
	T_CHECK(io_fifo_remove(&q, &op[1]));
	T_CHECK(!io_fifo_pop(&q));
	io_fifo_push(&q, &op[2]);
	T_CHECK(io_fifo_pop(&q) == &op[2]);
}

int main(void)
{
	T_RUN(beginning);
	T_RUN(advancing);
	T_RUN(where_the_next_call_goes);
	T_RUN(faults);
	T_RUN(first_in_first_out);
	return t_done();
}
