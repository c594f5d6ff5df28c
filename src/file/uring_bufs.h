/* SPDX-License-Identifier: MIT */
/*
 * Host memory registered with a ring, piece by piece.
 *
 * A piece is registered once operations have moved twice as many bytes as they use of the piece.
 * Then pinning its pages for each operation has cost at least as much as registering does.  Only
 * used pages are registered, and only if all are present, so that nothing is faulted in.  An I/O
 * context spends at most one part in REGISTER_SHARE of its time on registering.
 *
 * If RLIMIT_MEMLOCK has no room, the kernel is not asked.  If the kernel still runs out of memory,
 * the I/O context registers nothing more.  Operations on memory that is unregistered for one of
 * these reasons report the reason in pin_err; nothing else changes for them.
 */
#ifndef PST_URING_BUFS_H
#define PST_URING_BUFS_H

#include "file/io.h"

struct io_uring;

struct buf_slot {
	uintptr_t start, end; /* registered addresses; empty if equal */
	uint64_t moved;       /* bytes moved unregistered since the last attempt */
	uint32_t lo, hi;      /* range that operations used: bytes from the piece's start */
	int err;              /* errno of registering the piece; 0: not tried, or registered */
};

struct uring_bufs {
	struct io_uring *ring;
	bool on;       /* the ring has a buffer table */
	bool exempt;   /* RLIMIT_MEMLOCK does not apply to the ring */
	int err;       /* errno of a lack of kernel memory, which ends registering */
	uint64_t next; /* now_ns() of the earliest next attempt */
	struct buf_slot slots[IO_NR_BUFS];
};

void uring_bufs_init(struct uring_bufs *t, struct io_uring *ring);
/* Free the table.  Nothing is in flight on the ring, and the caller destroys the ring next. */
void uring_bufs_done(struct uring_bufs *t);
/* Drop entries when their memory is freed; any thread may call this. */
void uring_bufs_forget(struct uring_bufs *t, uint32_t idx, unsigned nr);
/* Try to register bytes of a piece that are not registered.  Return true if they are now; else
 * op->pin_err may hold the reason. */
bool uring_bufs_miss(struct uring_bufs *t, struct io_op *op, uint32_t piece, uintptr_t at,
		     uint64_t len);

/* Return the table index of at..at+len, or -1 if not registered. */
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

/* Return the index as uring_bufs_find(), registering the bytes first if that is due. */
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
