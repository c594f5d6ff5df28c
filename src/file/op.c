/* SPDX-License-Identifier: MIT */
#include "file/op.h"

#include "base/uaccess.h"

int io_op_store(const struct io_op *op, void *to, const void *from, uint64_t len)
{
	if (!op->reg)
		return uaccess_write(to, from, len);
	memcpy(to, from, len);
	return 0;
}

int io_op_load(const struct io_op *op, void *to, const void *from, uint64_t len)
{
	if (!op->reg)
		return uaccess_read(to, from, len);
	memcpy(to, from, len);
	return 0;
}

static bool op_finish(struct io_op *op, int64_t res)
{
	op->res = res;
	return true;
}

/*
 * Handle the remaining bytes: finish the operation and return true if it was cancelled, else return
 * false to continue it later.
 */
static bool go_on(struct io_op *op)
{
	return io_op_canceled(op) ? op_finish(op, -ECANCELED) : false;
}

static bool advance_moved(struct io_op *op, uint64_t moved)
{
	const struct file *f = op->file;

	op->moved += moved;
	if (op->flags & IO_OP_NOWAIT)
		return op_finish(op, (int64_t)op->moved);

	if (op->flags & IO_OP_DIRECT && io_op_off(op) & (f->off_align - 1)) {
		/* The rest of the write is a buffered write, for which the caller needs another
		 * claim. */
		if (op->kind == IO_WRITE)
			return op_finish(op, (int64_t)op->moved);
		/* A direct read stops inside a block only at the end of the file.  Continue without
		 * O_DIRECT, where a read may start at any byte, in case the file has grown. */
		op->flags &= (uint8_t)~IO_OP_DIRECT;
	}
	return go_on(op);
}

bool io_op_advance_part(struct io_op *op, int64_t res)
{
	if (res > 0)
		return advance_moved(op, (uint64_t)res);
	if (res == 0) {
		/* pwrite(2) should never return 0 for a length above 0.  If it does, retrying might
		 * loop for ever. */
		if (op->kind == IO_WRITE)
			return op_finish(op, -EIO);
		return op_finish(op, (int64_t)op->moved);
	}
	if (op->flags & IO_OP_NOWAIT) {
		/* The file system cannot report residency, so treat all bytes as not resident.
		 * Sandboxes forbid preadv2(2) with EPERM or ENOSYS. */
		if (res == -EOPNOTSUPP || res == -EPERM || res == -ENOSYS)
			return op_finish(op, -EAGAIN);
		return res == -EINTR ? go_on(op) : op_finish(op, res);
	}
	if (res == -EINTR || res == -EAGAIN)
		return go_on(op);
	return op_finish(op, res);
}

static enum fault_site site(const struct io_op *op)
{
	switch (op->kind) {
	case IO_READ:
		return FAULT_FILE_READ;
	case IO_WRITE:
		return FAULT_FILE_WRITE;
	default:
		return FAULT_FILE_SYNC;
	}
}

int64_t io_op_ask_fault(const struct io_op *op)
{
	uint64_t left = op->len - op->moved, half = left / 2;
	int err = fault_hit(site(op));

	if (!err)
		return (int64_t)left;
	if (err != FAULT_SHORT)
		return -err;
	if (op->flags & IO_OP_DIRECT)
		half = align_down(half, op->file->off_align);
	return (int64_t)(half ? half : left);
}

bool io_fifo_remove(struct io_fifo *q, struct io_op *op)
{
	if (!io_fifo_has(q, op))
		return false;
	if (op->prev)
		op->prev->next = op->next;
	else
		q->head = op->next;
	if (op->next)
		op->next->prev = op->prev;
	else
		q->tail = op->prev;
	__atomic_store_n(&op->in, NULL, __ATOMIC_RELAXED);
	return true;
}
