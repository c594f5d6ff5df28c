/* SPDX-License-Identifier: MIT */
/*
 * Host memory registered with a ring, piece by piece.
 *
 * A piece is registered when operations have moved twice the bytes that they named of it: by
 * then its pages were pinned as often, one operation at a time, as registering costs at most
 * once.  Only named pages are registered, and only if all of them are there, so that
 * nothing is faulted in.  An I/O context spends at most one part in REGISTER_SHARE of its time
 * on it.
 *
 * Where RLIMIT_MEMLOCK has no room, the kernel is not asked.  If the kernel has no memory all the
 * same, the I/O context registers nothing more.  Operations on memory that is not registered for
 * one of these reasons say so (pin_err); nothing else changes for them.
 */
#ifndef PST_URING_BUFS_H
#define PST_URING_BUFS_H

#include "file/io.h"

struct io_uring;

struct buf_slot {
	uintptr_t start, end; /* registered; equal: nothing */
	uint64_t moved;       /* unregistered, since it was last tried */
	uint32_t lo, hi;      /* named by operations: bytes in the piece */
	int err;              /* why it is not registered; 0: not tried, or it is */
};

struct uring_bufs {
	struct io_uring *ring;
	bool on;       /* the ring has a table */
	bool exempt;   /* RLIMIT_MEMLOCK does not hold for the ring */
	int err;       /* the kernel had no memory for more: nothing more is registered */
	uint64_t next; /* not before that time, now_ns() */
	struct buf_slot slots[IO_NR_BUFS];
};

void uring_bufs_init(struct uring_bufs *t, struct io_uring *ring);
/* Free the table.  Nothing is in flight on the ring, which is destroyed next. */
void uring_bufs_done(struct uring_bufs *t);
/* Called when the memory is freed, from any thread. */
void uring_bufs_forget(struct uring_bufs *t, uint32_t idx, unsigned nr);
/* These bytes of a piece are not registered: are they now?  If not, op->pin_err may say why. */
bool uring_bufs_miss(struct uring_bufs *t, struct io_op *op, uint32_t piece, uintptr_t at,
		     uint64_t len);

/* The place of at..at+len in the ring's table, or -1 if they are not registered. */
static inline int uring_bufs_find(const struct uring_bufs *t, const struct io_buf *b, uintptr_t at,
				  uint64_t len)
{
	const struct buf_slot *s;
	uint64_t piece;

	if (!b)
		return -1;
	piece = (at - (uintptr_t)b->base) / IO_BUF_MAX;
	if (unlikely(piece >= b->nr))
		return -1;
	s = &t->slots[b->idx + piece];
	return likely(at >= s->start && at + len <= s->end) ? (int)(b->idx + piece) : -1;
}

/* As above, and register the buffers if that is due. */
static inline int uring_bufs_slot(struct uring_bufs *t, struct io_op *op, uintptr_t at,
				  uint64_t len)
{
	const struct io_buf *b = op->reg;
	int slot = uring_bufs_find(t, b, at, len);
	uint64_t piece;

	if (slot >= 0 || !b)
		return slot;
	piece = (at - (uintptr_t)b->base) / IO_BUF_MAX;
	if (piece >= b->nr || !uring_bufs_miss(t, op, (uint32_t)piece, at, len))
		return -1;
	return (int)(b->idx + piece);
}

#endif
