/* SPDX-License-Identifier: MIT */
/*
 * For back ends only: the arguments of an operation's next system call.
 */
#ifndef PST_FILE_OP_H
#define PST_FILE_OP_H

#include "base/fault.h"
#include "file/io.h"

int64_t io_op_ask_fault(const struct io_op *op);

/*
 * Bytes to ask for, 0 for a sync; or -errno where a fault is injected: hand that to
 * io_op_advance() in place of a system call's result.
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
 * cancel() may come while another thread runs the operation, so the flag is read and
 * written whole.  Relaxed: nothing else is published through it, and a cancel that is
 * seen late is a cancel that came late.
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
 * First in, first out, through op->next; any can be taken out of the middle.  op->in is written
 * under the lock of its list, and read without: only whether it is this list is asked for then.
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

/* Take one out of the middle; false when it is not there. */
bool io_fifo_remove(struct io_fifo *q, struct io_op *op);

#endif
