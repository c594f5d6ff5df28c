/* SPDX-License-Identifier: MIT */
/* Arguments of an operation's next system call; for back ends only. */
#ifndef PST_FILE_OP_H
#define PST_FILE_OP_H

#include "base/fault.h"
#include "file/io.h"

int64_t io_op_ask_fault(const struct io_op *op);

/*
 * Return the bytes to ask for (0 for a sync), or an injected -errno: pass that to io_op_advance()
 * instead of a system call's result.
 */
static inline int64_t io_op_ask(const struct io_op *op)
{
	if (unlikely(fault_active))
		return io_op_ask_fault(op);
	return (int64_t)(op->len - op->moved);
}

static inline void *io_op_buf(const struct io_op *op)
{
	return (char *)op->buf + op->moved;
}

static inline uint64_t io_op_off(const struct io_op *op)
{
	return op->off + op->moved;
}

static inline bool io_op_is_sync(const struct io_op *op)
{
	return op->kind >= IO_FSYNC;
}

/*
 * Return true if the operation was cancelled.  Atomic, because cancel() may run while another
 * thread runs the operation.  Relaxed: the flag publishes nothing else, and a cancel that is seen
 * late has the same effect as a late cancel.
 */
static inline bool io_op_canceled(const struct io_op *op)
{
	return __atomic_load_n(&op->canceled, __ATOMIC_RELAXED);
}

static inline void io_op_set_canceled(struct io_op *op)
{
	__atomic_store_n(&op->canceled, true, __ATOMIC_RELAXED);
}

/*
 * A FIFO list linked by op->next, which allows removal from the middle.  op->in is written under
 * the list's lock; readers without the lock only compare it with their own list.
 */
struct io_fifo {
	struct io_op *head, *tail;
};

static inline void io_fifo_push(struct io_fifo *q, struct io_op *op)
{
	op->next = NULL;
	op->prev = q->head ? q->tail : NULL;
	if (q->head)
		q->tail->next = op;
	else
		q->head = op;
	q->tail = op;
	__atomic_store_n(&op->in, q, __ATOMIC_RELAXED);
}

static inline struct io_op *io_fifo_pop(struct io_fifo *q)
{
	struct io_op *op = q->head;

	if (!op)
		return NULL;
	q->head = op->next;
	if (q->head)
		q->head->prev = NULL;
	__atomic_store_n(&op->in, NULL, __ATOMIC_RELAXED);
	return op;
}

static inline bool io_fifo_has(const struct io_fifo *q, const struct io_op *op)
{
	return __atomic_load_n(&op->in, __ATOMIC_RELAXED) == q;
}

/* Remove an operation from any position; return false if the list does not hold it. */
bool io_fifo_remove(struct io_fifo *q, struct io_op *op);

#endif
