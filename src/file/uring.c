/* SPDX-License-Identifier: MIT */
/*
 * File operations by io_uring: one ring per I/O context.
 *
 * Design choices and their reasons:
 *
 *   - Files are registered with a ring at their first operation, which saves two atomics per
 *     operation.  Buffers are registered after repeated use, which saves pinning every page
 *     (uring_bufs.h).  Each table entry records the generation of its owner, so a reused index
 *     is never mistaken for the old file.  Other threads clear entries when a file or buffer is
 *     freed (ctx.c); SINGLE_ISSUER, and with it DEFER_TASKRUN, would forbid that.
 *   - The ring's own descriptor is not registered: that registration belongs to a thread,
 *     not to the ring, and several threads may use an I/O context one after another.
 *   - No limit of the process is raised.  With a small RLIMIT_NOFILE the table of files is
 *     shorter.
 *   - Operations that end without the ring (injected faults, reads of files in memory) are
 *     put on a list of the I/O context, which reap() handles like completions.  A flush with a
 *     single NOWAIT read also bypasses the ring: one preadv2(2) costs less than a ring
 *     operation.  With several reads, a shared io_uring_enter(2) costs less.
 *   - O_DIRECT operations do not wait for the end of a batch.  The first operation for an idle
 *     device is submitted at once.  Later ones are submitted when as many wait as are in flight:
 *     8 operations take 4 system calls, 128 take 8.  While the device is busy, only flush() makes
 *     system calls.
 *   - If a sandbox starts after the ring was created, threads take over, provided the user let
 *     the library choose (uring_or_threads).  Operations that were submitted already complete
 *     through the ring: its completion queue is shared memory and needs no system call.  All
 *     other operations move to the threads.  So no operation runs twice.
 *   - The kernel's io-wq serializes buffered writes of all files whose inodes share one of 64
 *     hash values.  So a write that hangs may block the writes to one file in 64, until the
 *     deadline of the hanging or of the blocked write.
 */
#include <string.h>
#include <sys/uio.h>

#include "base/err.h"
#include "base/log.h"
#include "file/local.h"
#include "file/threads.h"
#include "file/uring.h"

#define DOUBTS_MAX 8u /* retries of one operation in of_thread() */

/* ---------------------------------------------------------- registrations */

/* Register the file at its index.  Return false to use its descriptors instead. */
static _cold_ bool register_file(struct uring_ctx *ctx, const struct local_file *f)
{
	int fds[2] = { f->fd, f->fd_direct }, none[2] = { -1, -1 };
	int r;

	if (ctx->files_off)
		return false;
	r = io_uring_register_files_update(&ctx->ring, 2 * f->idx, fds, 2);
	if (r != 2) {
		log_debug("registering a file with io_uring failed: %s; using descriptors",
			  err_name(r));
		ctx->files_off = true;
		/* Clear the half that was registered, else the ring would keep the file open. */
		(void)io_uring_register_files_update(&ctx->ring, 2 * f->idx, none, 2);
		return false;
	}
	ctx->file_gen[f->idx] = f->gen;
	return true;
}

static inline bool file_registered(struct uring_ctx *ctx, const struct local_file *f)
{
	return likely(f->idx < ctx->nr_files) &&
	       (likely(ctx->file_gen[f->idx] == f->gen) || register_file(ctx, f));
}

/* ------------------------------------------------------------- operations */

/* Set the file of an entry: registered index or descriptor. */
static inline void fill_file(struct uring_ctx *ctx, struct io_uring_sqe *sqe,
			     const struct io_op *op)
{
	const struct local_file *f = local_of(op->file);

	if (likely(file_registered(ctx, f))) {
		sqe->fd = (int)(2 * f->idx + !!(op->flags & IO_OP_DIRECT));
		sqe->flags = IOSQE_FIXED_FILE;
	} else {
		sqe->fd = io_op_fd(op);
	}
}

static _cold_ void fill_sync(struct uring_ctx *ctx, struct io_uring_sqe *sqe,
			     const struct io_op *op)
{
	*sqe = (struct io_uring_sqe){
		.opcode = IORING_OP_FSYNC,
		.fsync_flags = op->kind == IO_FDATASYNC ? IORING_FSYNC_DATASYNC : 0,
		.user_data = (uintptr_t)op,
	};
	fill_file(ctx, sqe, op);
}

static inline void fill_sqe(struct uring_ctx *ctx, struct io_uring_sqe *sqe, struct io_op *op,
			    uint64_t ask)
{
	bool write = op->kind == IO_WRITE;
	int slot;

	op->ctx_data = (void *)(uintptr_t)(ctx->ring.sq.sqe_tail - 1);
	if (unlikely(io_op_is_sync(op))) {
		fill_sync(ctx, sqe, op);
		return;
	}
	*sqe = (struct io_uring_sqe){
		.opcode = write ? IORING_OP_WRITE : IORING_OP_READ,
		.off = io_op_off(op),
		.addr = (uintptr_t)io_op_buf(op),
		.len = (uint32_t)ask,
		.rw_flags = op->flags & IO_OP_NOWAIT ? RWF_NOWAIT : 0,
		.user_data = (uintptr_t)op,
	};
	fill_file(ctx, sqe, op);
	slot = uring_bufs_slot(&ctx->bufs, op, (uintptr_t)io_op_buf(op), ask);
	op->pinned = slot >= 0;
	if (likely(op->pinned)) {
		sqe->opcode = write ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED;
		sqe->buf_index = (uint16_t)slot;
	}
	/*
	 * Force FUSE operations to a kernel thread: with many requests open, FUSE blocks the
	 * submitter even with NOWAIT, and this thread must not block.
	 */
	if (unlikely(op->file->caps & FILE_MAY_HANG && !(op->flags & IO_OP_NOWAIT)))
		sqe->flags |= IOSQE_ASYNC;
}

/* Return an entry of the ring, or NULL.  The kernel takes entries only during our system calls. */
static inline struct io_uring_sqe *next_sqe(struct uring_ctx *ctx)
{
	struct io_uring_sq *sq = &ctx->ring.sq;

	if (unlikely(sq->sqe_tail - *sq->khead >= sq->ring_entries))
		return NULL;
	return &sq->sqes[sq->sqe_tail++ & sq->ring_mask];
}

/* Submit the cancels that uring_cancel() noted. */
static void cancel_owed(struct uring_ctx *ctx)
{
	struct io_uring_sqe *sqe;

	while (ctx->to_cancel.head && (sqe = next_sqe(ctx))) {
		struct io_op *op = io_fifo_pop(&ctx->to_cancel);

		io_uring_prep_cancel64(sqe, (uintptr_t)op, 0);
		sqe->user_data = TAG_CANCEL;
	}
}

/* Continue an operation on the threads that took over from the ring. */
static void by_threads(struct uring_ctx *ctx, struct io_op *op)
{
	op->pinned = false;
	op->ring_err = ctx->base.ring_err;
	threads_take(ctx->threads, op);
}

/*
 * Return true if the threads run the operation, which must be neither finished nor waiting for
 * flush().
 */
static bool has_threads(const struct uring_ctx *ctx, const struct io_op *op)
{
	return ctx->threads && op->ctx_data == ctx->threads && !io_fifo_has(&ctx->done, op);
}

/* Take back ring entries that the kernel has not taken.  Threads, if any, get the operations; else
 * those end with err. */
static void withdraw(struct uring_ctx *ctx, int err)
{
	struct io_uring_sq *sq = &ctx->ring.sq;
	unsigned head = *sq->khead;

	for (unsigned at = head; at != sq->sqe_tail; at++) {
		uint64_t data = sq->sqes[at & sq->ring_mask].user_data;
		struct io_op *op = (struct io_op *)(uintptr_t)(data & ~TAG_MASK);
		unsigned tag = (unsigned)(data & TAG_MASK);

		if (tag == TAG_DROPPED)
			uring_push_done(ctx, op, -ECANCELED);
		else if (tag == TAG_OP && ctx->threads)
			by_threads(ctx, op);
		else if (tag == TAG_OP)
			uring_push_done(ctx, op, err);
	}
	/* The entries are published already, but only io_uring_enter() reads the tail, so rewinding
	 * is safe. */
	sq->sqe_head = sq->sqe_tail = head;
	__atomic_store_n(sq->ktail, head, __ATOMIC_RELEASE);
	while (ctx->to_cancel.head)
		(void)io_fifo_pop(&ctx->to_cancel);
}

bool uring_take_over(struct uring_ctx *ctx, int err)
{
	struct io_ctx *threads;

	if (ctx->base.ops != &uring_or_threads_backend)
		return false;
	if (ctx->threads)
		return true;
	if (threads_backend.ctx_new(ctx->base.depth, &threads) < 0) {
		log_debug("no threads in place of a ring: %s", err_text());
		return false;
	}
	log_info("the kernel takes nothing from a ring any more (%s), threads instead",
		 err_name(err));
	if (ctx->efd >= 0)
		(void)threads_backend.arm(threads, ctx->efd, ctx->armed);
	ctx->threads = threads;
	ctx->base.ring_err = -err;
	ctx->nr_files = 0; /* makes uring_is_plain() return false */
	return true;
}

static inline int uring_submit(struct uring_ctx *ctx)
{
	/* Loop: kernels without SUBMIT_ALL stop after an operation that they refuse. */
	while (io_uring_sq_ready(&ctx->ring) || ctx->to_cancel.head) {
		int r;

		if (unlikely(ctx->to_cancel.head))
			cancel_owed(ctx);
		r = io_uring_submit(&ctx->ring);
		if (likely(r > 0) || r == -EINTR)
			continue;
		if (unlikely(uring_is_forbidden(r))) {
			(void)uring_take_over(ctx, r);
			withdraw(ctx, r);
		}
		/* EBUSY: overflowed completions must be reaped first. */
		return r == -EBUSY || r == 0 ? -EAGAIN : r;
	}
	return 0;
}

/* Put the operation into the ring.  Return 0, or -EAGAIN if the ring is full. */
static inline int into_ring(struct uring_ctx *ctx, struct io_op *op, uint64_t ask, bool may_wait)
{
	struct io_uring_sqe *sqe = unlikely(ctx->threads) ? NULL : next_sqe(ctx);

	/* The ring has an entry for every operation, but cancels also use entries. */
	if (unlikely(!sqe) && !ctx->threads && uring_submit(ctx) == 0)
		sqe = next_sqe(ctx);
	if (unlikely(!sqe)) {
		if (!ctx->threads)
			return -EAGAIN;
		by_threads(ctx, op);
		return 0;
	}
	fill_sqe(ctx, sqe, op, ask);
	if (unlikely(may_wait))
		sqe->flags |= IOSQE_ASYNC;
	return 0;
}

/* Return true if the operation cannot block; FUSE may block even with NOWAIT. */
static inline bool does_not_wait(const struct io_op *op)
{
	return op->flags & IO_OP_NOWAIT && !(op->file->caps & FILE_MAY_HANG);
}

static _noinline_ int uring_start(struct uring_ctx *ctx, struct io_op *op, bool may_wait)
{
	int64_t ask = io_op_ask(op);

	if (unlikely(ask < 0)) {
		uring_push_done(ctx, op, ask);
		return 0;
	}
	/* File systems in memory lack RWF_NOWAIT, and io_uring would run their reads on a kernel
	 * thread.  So flush() reads them. */
	if (op->flags & IO_OP_NOWAIT && op->file->caps & FILE_RESIDENT) {
		op->res = ask;
		io_fifo_push(&ctx->inline_reads, op);
		return 0;
	}
	if (!ctx->single && does_not_wait(op) && !io_uring_sq_ready(&ctx->ring)) {
		op->res = ask;
		ctx->single = op;
		return 0;
	}
	if (ctx->single && into_ring(ctx, ctx->single, (uint64_t)ctx->single->res, false) == 0)
		ctx->single = NULL;
	return into_ring(ctx, op, (uint64_t)ask, may_wait);
}

/* Return true if file and memory are registered and the operation needs no special case. */
static inline bool uring_is_plain(const struct uring_ctx *ctx, const struct io_op *op)
{
	const struct local_file *f = local_of(op->file);

	return likely(!fault_active && !ctx->single && !io_op_is_sync(op)) &&
	       likely(!(op->file->caps & (FILE_RESIDENT | FILE_MAY_HANG))) &&
	       likely(f->idx < ctx->nr_files && ctx->file_gen[f->idx] == f->gen) &&
	       likely(!(op->flags & IO_OP_NOWAIT) || io_uring_sq_ready(&ctx->ring));
}

/* Start a plain operation, the common case.  Return 0, or -EAGAIN to use uring_start(). */
static inline int start_plain(struct uring_ctx *ctx, struct io_op *op)
{
	int slot = uring_bufs_find(&ctx->bufs, op->reg, (uintptr_t)op->buf, op->len);
	struct io_uring_sqe *sqe;

	if (unlikely(slot < 0) || unlikely(!uring_is_plain(ctx, op)))
		return -EAGAIN;
	sqe = next_sqe(ctx);
	if (unlikely(!sqe))
		return -EAGAIN;
	op->ctx_data = (void *)(uintptr_t)(ctx->ring.sq.sqe_tail - 1);
	op->pinned = true;
	*sqe = (struct io_uring_sqe){
		.opcode = op->kind == IO_WRITE ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED,
		.flags = IOSQE_FIXED_FILE,
		.fd = (int)(2 * local_of(op->file)->idx + !!(op->flags & IO_OP_DIRECT)),
		.off = op->off,
		.addr = (uintptr_t)op->buf,
		.len = (uint32_t)op->len,
		.rw_flags = op->flags & IO_OP_NOWAIT ? RWF_NOWAIT : 0,
		.user_data = (uintptr_t)op,
		.buf_index = (uint16_t)slot,
	};
	return 0;
}

/* Return true if at least half of all operations are waiting in the ring: the device is
 * underused. */
static inline bool is_due(const struct uring_ctx *ctx, const struct io_op *op)
{
	return op->flags & IO_OP_DIRECT &&
	       2 * (ctx->ring.sq.sqe_tail - ctx->ring.sq.sqe_head) >= ctx->base.nr_ops;
}

int uring_queue(struct io_ctx *base, struct io_op *op)
{
	struct uring_ctx *ctx = uring_ctx_of(base);

	if (unlikely(base->nr_ops >= base->depth))
		return -EAGAIN;
	io_op_begin(op);
	if (unlikely(start_plain(ctx, op) < 0) && uring_start(ctx, op, false) < 0)
		return -EAGAIN;
	base->nr_ops++;
	if (is_due(ctx, op))
		(void)uring_flush(base); /* a failure is retried later */
	return 0;
}

static void read_inline(struct uring_ctx *ctx, struct io_op *op, int flags)
{
	struct iovec iov = { op->buf, (size_t)op->res };
	ssize_t n = preadv2(local_of(op->file)->fd, &iov, 1, (off_t)op->off, flags);

	uring_push_done(ctx, op, n < 0 ? -errno : n);
}

int uring_flush(struct io_ctx *base)
{
	struct uring_ctx *ctx = uring_ctx_of(base);
	int r;

	if (ctx->single)
		read_inline(ctx, TAKE_PTR(ctx->single), RWF_NOWAIT);
	while (unlikely(ctx->inline_reads.head))
		read_inline(ctx, io_fifo_pop(&ctx->inline_reads), 0);
	r = uring_submit(ctx);
	if (unlikely(ctx->threads))
		r = threads_backend.flush(ctx->threads);
	ctx->owe_submit = r < 0;
	return r;
}

/* -------------------------------------------------------------------- reap */

/* Start an unfinished operation again. */
static void restart(struct uring_ctx *ctx, struct io_op *op, int64_t res)
{
	/*
	 * The kernel returned EAGAIN instead of waiting (O_NONBLOCK, or a full device queue).  The
	 * kernel's own threads may wait.
	 */
	if (uring_start(ctx, op, res == -EAGAIN) < 0)
		uring_push_done(ctx, op, -EINTR); /* no room: retry at the next reap() */
	else
		ctx->owe_submit = true;
}

/* Apply a completion.  Return true if op is finished. */
static inline bool uring_complete(struct uring_ctx *ctx, struct io_op *op, int64_t res)
{
	if (likely(io_op_advance(op, res))) {
		if (unlikely(op->canceled) && ctx->to_cancel.head)
			(void)io_fifo_remove(&ctx->to_cancel, op);
		return true;
	}
	restart(ctx, op, res);
	return false;
}

/*
 * Turn errors caused by the end of another thread into a retry.  When a thread ends, the kernel
 * cancels its operations that wait for a page of the page cache, or fails them with -EFAULT.
 * Another thread may use the I/O context by then, so start the operation again, at most DOUBTS_MAX
 * times: if the memory is really bad, the error repeats.
 */
static inline int64_t of_thread(struct io_op *op, int64_t res)
{
	if (likely(res >= 0) || op->nr_doubts == DOUBTS_MAX)
		return res;
	if ((res != -ECANCELED || io_op_canceled(op)) && res != -EFAULT)
		return res;
	op->nr_doubts++;
	return -EINTR;
}

static unsigned reap_done(struct uring_ctx *ctx, struct io_op **ret, unsigned max)
{
	unsigned n = 0, todo = ctx->nr_done;

	/* Handle only operations that are listed now: this loop may requeue some of them, and might
	 * not end. */
	for (; todo && n < max; todo--) {
		struct io_op *op = io_fifo_pop(&ctx->done);

		ctx->nr_done--;
		if (uring_complete(ctx, op, op->res))
			ret[n++] = op;
	}
	return n;
}

static unsigned reap_ring(struct uring_ctx *ctx, struct io_op **ret, unsigned max)
{
	struct io_uring_cq *cq = &ctx->ring.cq;
	unsigned head = *cq->khead, n = 0;
	/* Pairs with the kernel's release store: entries before the tail are valid. */
	unsigned tail = io_uring_smp_load_acquire(cq->ktail);

	for (; head != tail && n < max; head++) {
		const struct io_uring_cqe *cqe = &cq->cqes[head & cq->ring_mask];
		uint64_t data = cqe->user_data;
		struct io_op *op = (struct io_op *)(uintptr_t)(data & ~TAG_MASK);
		unsigned tag = (unsigned)(data & TAG_MASK);

		if (unlikely(tag == TAG_CANCEL))
			continue;
		if (unlikely(tag == TAG_DROPPED)) {
			op->res = -ECANCELED;
			ret[n++] = op;
		} else if (likely(uring_complete(ctx, op, of_thread(op, cqe->res)))) {
			ret[n++] = op;
		}
	}
	if (head != *cq->khead)
		io_uring_smp_store_release(cq->khead, head);
	return n;
}

unsigned uring_reap(struct io_ctx *base, struct io_op **ret, unsigned max)
{
	struct uring_ctx *ctx = uring_ctx_of(base);
	unsigned n = 0;

	if (unlikely(ctx->nr_done))
		n = reap_done(ctx, ret, max);
	for (bool entered = false;; entered = true) {
		n += reap_ring(ctx, ret + n, max - n);
		if (n == max || entered || likely(!uring_must_enter(ctx)))
			break;
		(void)io_uring_get_events(&ctx->ring);
	}
	if (unlikely(ctx->threads))
		n += threads_backend.reap(ctx->threads, ret + n, max - n);
	if (unlikely(ctx->owe_submit))
		(void)uring_flush(base);
	base->nr_ops -= n;
	return n;
}

/* ------------------------------------------------------------------ cancel */

/* Find the entry of an operation that is not yet submitted; ctx_data keeps its position. */
static struct io_uring_sqe *find_queued(struct uring_ctx *ctx, const struct io_op *op)
{
	const struct io_uring_sq *sq = &ctx->ring.sq;
	unsigned at = (unsigned)(uintptr_t)op->ctx_data, head = *sq->khead;
	struct io_uring_sqe *sqe = &sq->sqes[at & sq->ring_mask];

	if (at - head >= sq->sqe_tail - head || sqe->user_data != (uintptr_t)op)
		return NULL;
	return sqe;
}

void uring_cancel(struct io_ctx *base, struct io_op *op)
{
	struct uring_ctx *ctx = uring_ctx_of(base);
	struct io_uring_sqe *sqe;

	if (op->canceled)
		return;
	io_op_set_canceled(op);
	if (ctx->single == op || io_fifo_remove(&ctx->inline_reads, op)) {
		if (ctx->single == op)
			ctx->single = NULL;
		uring_push_done(ctx, op, -ECANCELED);
		return;
	}
	if (unlikely(has_threads(ctx, op))) {
		threads_backend.cancel(ctx->threads, op);
		return;
	}
	sqe = find_queued(ctx, op);
	if (sqe) {
		io_uring_prep_nop(sqe);
		sqe->user_data = (uintptr_t)op | TAG_DROPPED;
	} else if (!io_fifo_has(&ctx->done, op)) {
		io_fifo_push(&ctx->to_cancel, op);
	}
	/* makes reap() submit, for callers that never flush */
	ctx->owe_submit = true;
}
