/* SPDX-License-Identifier: MIT */
/*
 * For providers only: what the next system call of an operation should ask for.
 */
#ifndef PST_STORE_OP_H
#define PST_STORE_OP_H

#include "base/fault.h"
#include "file/store.h"

int64_t store_op_ask_fault(const struct store_op *op);

/*
 * Bytes to ask for, 0 for a sync; or -errno where a fault is injected: hand that to
 * store_op_advance() in place of a system call's result.
 */
static inline int64_t store_op_ask(const struct store_op *op)
{
	if (unlikely(fault_active))
		return store_op_ask_fault(op);
	return (int64_t)(op->len - op->moved);
}

static inline void *store_op_buf(const struct store_op *op)
{
	return (char *)op->buf + op->moved;
}

static inline uint64_t store_op_off(const struct store_op *op)
{
	return op->off + op->moved;
}

static inline int store_op_fd(const struct store_op *op)
{
	return op->flags & STORE_OP_DIRECT ? op->file->fd_direct : op->file->fd;
}

static inline bool store_op_is_sync(const struct store_op *op)
{
	return op->kind == STORE_FSYNC || op->kind == STORE_FDATASYNC;
}

/*
 * cancel() may come while another thread runs the operation, so the flag is read and
 * written whole.  Relaxed: nothing else is published through it, and a cancel that is
 * seen late is a cancel that came late.
 */
static inline bool store_op_canceled(const struct store_op *op)
{
	return __atomic_load_n(&op->canceled, __ATOMIC_RELAXED);
}

static inline void store_op_set_canceled(struct store_op *op)
{
	__atomic_store_n(&op->canceled, true, __ATOMIC_RELAXED);
}

/*
 * First in, first out, through op->next; any can be taken out of the middle.  op->in is written
 * under the lock of its list, and read without: only whether it is this list is asked for then.
 */
struct store_fifo {
	struct store_op *head, *tail;
};

static inline void store_fifo_push(struct store_fifo *q, struct store_op *op)
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

static inline struct store_op *store_fifo_pop(struct store_fifo *q)
{
	struct store_op *op = q->head;

	if (!op)
		return NULL;
	q->head = op->next;
	if (q->head)
		q->head->prev = NULL;
	__atomic_store_n(&op->in, NULL, __ATOMIC_RELAXED);
	return op;
}

static inline bool store_fifo_has(const struct store_fifo *q, const struct store_op *op)
{
	return __atomic_load_n(&op->in, __ATOMIC_RELAXED) == q;
}

/* Take one out of the middle; false when it is not there. */
bool store_fifo_remove(struct store_fifo *q, struct store_op *op);

#endif
