/* SPDX-License-Identifier: MIT */
#include "file/op.h"

void store_op_begin(struct store_op *op)
{
	op->res = 0;
	op->moved = 0;
	op->pin_err = 0;
	op->pinned = false;
	op->canceled = false;
	op->doubted = false;
	op->next = op->prev = NULL;
	op->in = NULL;
}

static bool finish(struct store_op *op, int64_t res)
{
	op->res = res;
	return true;
}

/* The rest cannot be asked for now; go on unless somebody asked for the end. */
static bool go_on(struct store_op *op)
{
	return store_op_canceled(op) ? finish(op, -ECANCELED) : false;
}

static bool advance_moved(struct store_op *op, uint64_t moved)
{
	const struct store_file *f = op->file;

	op->moved += moved;
	if (op->moved >= op->len || op->flags & STORE_OP_NOWAIT)
		return finish(op, (int64_t)op->moved);

	/* O_DIRECT stops inside a block only at the end of the file.  Whether it is still
	 * there only a buffered call can find out: it may start at any byte. */
	if (op->flags & STORE_OP_DIRECT && store_op_off(op) & (f->off_align - 1))
		op->flags &= (uint8_t)~STORE_OP_DIRECT;
	return go_on(op);
}

bool store_op_advance(struct store_op *op, int64_t res)
{
	if (likely(res > 0))
		return advance_moved(op, (uint64_t)res);
	if (res == 0) {
		/* pwrite(2) gives 0 for a length above 0 on no file we take; if one does,
		 * asking again for ever is the one wrong answer. */
		if (op->kind == STORE_WRITE)
			return finish(op, -EIO);
		return finish(op, (int64_t)op->moved);
	}
	if (op->flags & STORE_OP_NOWAIT) {
		/* The file system cannot say what is resident, so nothing is. */
		if (res == -EOPNOTSUPP)
			return finish(op, -EAGAIN);
		return res == -EINTR ? go_on(op) : finish(op, res);
	}
	if (res == -EINTR || res == -EAGAIN)
		return go_on(op);
	return finish(op, res);
}

static enum fault_site site(const struct store_op *op)
{
	switch (op->kind) {
	case STORE_READ:
		return FAULT_STORE_READ;
	case STORE_WRITE:
		return FAULT_STORE_WRITE;
	default:
		return FAULT_STORE_SYNC;
	}
}

int64_t store_op_ask_fault(const struct store_op *op)
{
	uint64_t left = op->len - op->moved, half = left / 2;
	int err = fault_hit(site(op));

	if (!err)
		return (int64_t)left;
	if (err != FAULT_SHORT)
		return -err;
	if (op->flags & STORE_OP_DIRECT)
		half = align_down(half, op->file->off_align);
	return (int64_t)(half ? half : left);
}

bool store_fifo_remove(struct store_fifo *q, struct store_op *op)
{
	if (!store_fifo_has(q, op))
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
