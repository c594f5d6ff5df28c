/* SPDX-License-Identifier: MIT */
/*
 * Files by io_uring: one ring per I/O context.
 *
 * What is chosen here and why:
 *
 *   - Files are registered with a ring at their first operation on it, which saves two atomics
 *     per operation, and buffers once they are used again and again, which saves the pinning
 *     of every page (uring_bufs.h).  Places of files are remembered by generation, so that a
 *     place with a new owner is never mistaken for the old one.  Other threads take them out
 *     when the file or buffer goes (ctx.c); SINGLE_ISSUER and with it DEFER_TASKRUN would
 *     forbid that.
 *   - The ring's own descriptor is not registered: that registration belongs to a thread,
 *     not to the ring, and an I/O context may be used by one thread after the other.
 *   - This file raises no limit of the process.  With a small RLIMIT_NOFILE the table of files
 *     is shorter.
 *   - Operations that end without the ring (injected faults, reads of files in memory) stand
 *     in a list of the I/O context, and reap() takes them from there as if they were completions.
 *     So does the only read of a flush, if it may not wait: a system call of its own costs
 *     less than the ring.  An entry that several reads share costs less still.
 *   - The kernel's io-wq runs one buffered write at a time for all files whose inodes share one
 *     of 64 hash values.  A write that hangs may hold up the writes to one file in 64, until
 *     its deadline or theirs.
 */
#include <assert.h>
#include <liburing.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>

#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "file/op.h"
#include "file/uring_bufs.h"
#include "file/uring_ring.h"

/* Kinds of completions, in the low bits of user_data: operations are aligned. */
#define TAG_MASK UINT64_C(7)
#define TAG_OP 0u      /* the result of an operation */
#define TAG_CANCEL 1u  /* the result of a cancel: of no interest */
#define TAG_DROPPED 2u /* an operation that was cancelled before it started */

#define SPIN_NS 10000u
#define SPIN_SKIP 31u

struct uring_ctx {
	struct io_ctx base;
	struct io_uring ring;
	struct io_op *lone;          /* a read that may not wait, if it is the only one */
	struct io_fifo inline_reads; /* to be read by flush(): files in memory */
	struct io_fifo done;         /* ended without the ring; res holds the raw result */
	unsigned nr_done;
	struct io_fifo to_cancel; /* flagged, but the ring had no room to say so */
	unsigned nr_files;        /* files the ring's table has places for, 0: no table */
	bool files_off;           /* registering one failed: register no more */
	bool owe_submit;          /* requeued operations that the kernel did not take yet */
	bool armed;
	unsigned spin_skip; /* waits that sleep at once */
	int efd;            /* -1 until the first arm() */
	struct ctx_tables tables;
	/* Generation registered in place [idx], 0: none.  Written by the I/O context's user, and by
	 * whoever frees the file; those two never meet at one place, see ctx.c. */
	uint32_t file_gen[IO_NR_FILES];
	struct uring_bufs bufs;
};

static struct uring_ctx *ctx_of(struct io_ctx *ctx)
{
	return container_of(ctx, struct uring_ctx, base);
}

/* ------------------------------------------------------------------ set up */

/* Empty tables.  Kernels before 5.19 have none: then nothing is registered. */
static void add_tables(struct uring_ctx *ctx)
{
	unsigned files = 2 * IO_NR_FILES;
	struct rlimit rl;

	/* The kernel refuses a table longer than that. */
	if (getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur < files)
		files = (unsigned)align_down(rl.rlim_cur, 2);
	if (files && uring_ring_sparse(&ctx->ring, IORING_REGISTER_FILES2, files) == 0)
		ctx->nr_files = files / 2;
	uring_bufs_init(&ctx->bufs, &ctx->ring);
	log_debug("I/O context of io_uring: depth %u, places for %u files and %u buffers",
		  ctx->base.depth, ctx->nr_files, ctx->bufs.on ? IO_NR_BUFS : 0);
}

/* Called by whoever frees the file, from any thread. */
static void forget_file(struct ctx_tables *t, uint32_t idx)
{
	struct uring_ctx *ctx = container_of(t, struct uring_ctx, tables);
	int none[2] = { -1, -1 };

	if (!ctx->file_gen[idx])
		return;
	ctx->file_gen[idx] = 0;
	(void)io_uring_register_files_update(&ctx->ring, 2 * idx, none, 2);
}

static void forget_buf(struct ctx_tables *t, uint32_t idx, unsigned nr)
{
	struct uring_ctx *ctx = container_of(t, struct uring_ctx, tables);

	uring_bufs_forget(&ctx->bufs, idx, nr);
}

static int uring_ctx_new(unsigned depth, struct io_ctx **ret)
{
	struct uring_ctx *ctx = calloc(1, sizeof(*ctx));
	int r;

	if (!ctx)
		return err_set(ENOMEM, "no memory for an I/O context of io_uring");
	ctx->base = (struct io_ctx){ .ops = &uring_backend, .depth = depth };
	ctx->efd = -1;
	r = uring_ring_new(depth, &ctx->ring);
	if (r < 0) {
		free(ctx);
		return uring_ring_err(-r);
	}
	uring_ring_may_hang(&ctx->ring);
	/* A forked child must not work on its parent's ring. */
	(void)io_uring_ring_dontfork(&ctx->ring);
	add_tables(ctx);
	ctx->tables.forget_file = forget_file;
	ctx->tables.forget_buf = forget_buf;
	ctx_tables_add(&ctx->tables);
	*ret = &ctx->base;
	return 0;
}

static bool any_registered(const struct uring_ctx *ctx)
{
	for (unsigned i = 0; i < IO_NR_FILES; i++)
		if (ctx->file_gen[i])
			return true;
	return false;
}

static void uring_ctx_free(struct io_ctx *base)
{
	struct uring_ctx *ctx = ctx_of(base);

	ctx_tables_del(&ctx->tables);
	/* The kernel tears a ring down in the background.  Files given back before that do
	 * not keep their file system busy when we are long gone. */
	if (any_registered(ctx))
		(void)io_uring_unregister_files(&ctx->ring);
	uring_bufs_done(&ctx->bufs);
	io_uring_queue_exit(&ctx->ring);
	free(ctx);
}

/* ---------------------------------------------------------- registrations */

/* The file's place, now registered; false: use descriptors. */
static bool register_file(struct uring_ctx *ctx, const struct local_file *f)
{
	int fds[2] = { f->fd, f->fd_direct };
	int r;

	if (ctx->files_off)
		return false;
	r = io_uring_register_files_update(&ctx->ring, 2 * f->idx, fds, 2);
	if (r != 2) {
		log_debug("registering a file with io_uring failed: %s; using descriptors",
			  err_name(r));
		ctx->files_off = true;
		return false;
	}
	ctx->file_gen[f->idx] = f->gen;
	return true;
}

static inline bool file_registered(struct uring_ctx *ctx, const struct local_file *f)
{
	if (unlikely(f->idx >= ctx->nr_files))
		return false;
	if (likely(ctx->file_gen[f->idx] == f->gen))
		return true;
	return register_file(ctx, f);
}

/* ------------------------------------------------------------- operations */

static void wake_armed(struct uring_ctx *ctx)
{
	if (ctx->armed)
		(void)eventfd_write(ctx->efd, 1);
}

/* End op without the kernel. */
static void push_done(struct uring_ctx *ctx, struct io_op *op, int64_t raw)
{
	op->res = raw;
	io_fifo_push(&ctx->done, op);
	ctx->nr_done++;
	wake_armed(ctx);
}

static inline void fill_sqe(struct uring_ctx *ctx, struct io_uring_sqe *sqe, struct io_op *op,
			    uint64_t ask)
{
	static const uint8_t opcodes[] = {
		[IO_READ] = IORING_OP_READ,
		[IO_WRITE] = IORING_OP_WRITE,
		[IO_FSYNC] = IORING_OP_FSYNC,
		[IO_FDATASYNC] = IORING_OP_FSYNC,
	};
	static const uint8_t fixed[] = {
		[IO_READ] = IORING_OP_READ_FIXED,
		[IO_WRITE] = IORING_OP_WRITE_FIXED,
	};
	int slot;

	op->ctx_data = (void *)(uintptr_t)(ctx->ring.sq.sqe_tail - 1);
	io_uring_prep_rw(opcodes[op->kind], sqe, io_op_fd(op), NULL, 0, 0);
	sqe->user_data = (uintptr_t)op;
	if (file_registered(ctx, op->file)) {
		sqe->fd = (int)(2 * op->file->idx + !!(op->flags & IO_OP_DIRECT));
		sqe->flags = IOSQE_FIXED_FILE;
	}
	if (unlikely(io_op_is_sync(op))) {
		if (op->kind == IO_FDATASYNC)
			sqe->fsync_flags = IORING_FSYNC_DATASYNC;
		return;
	}
	sqe->addr = (uintptr_t)io_op_buf(op);
	sqe->len = (uint32_t)ask;
	sqe->off = io_op_off(op);
	if (op->flags & IO_OP_NOWAIT)
		sqe->rw_flags = RWF_NOWAIT;
	slot = uring_bufs_slot(&ctx->bufs, op, (uintptr_t)io_op_buf(op), ask);
	if (slot >= 0) {
		sqe->opcode = fixed[op->kind];
		sqe->buf_index = (uint16_t)slot;
	}
	op->pinned = slot >= 0;
	/* With many requests open, FUSE makes the next one wait, NOWAIT or not: not here. */
	if (unlikely(op->file->may_hang && !(op->flags & IO_OP_NOWAIT)))
		sqe->flags |= IOSQE_ASYNC;
}

/* Put the cancels that cancel() noted into the ring. */
static void cancel_owed(struct uring_ctx *ctx)
{
	struct io_uring_sqe *sqe;

	while (ctx->to_cancel.head && (sqe = io_uring_get_sqe(&ctx->ring))) {
		struct io_op *op = io_fifo_pop(&ctx->to_cancel);

		io_uring_prep_cancel64(sqe, (uintptr_t)op, 0);
		sqe->user_data = TAG_CANCEL;
	}
}

/* The kernel takes nothing from this process any more, as after a sandbox. */
static bool is_forbidden(int err)
{
	return err == -EPERM || err == -EACCES || err == -ENOSYS || err == -EBADF;
}

/* End every operation in the ring that the kernel has not taken with that error. */
static void withdraw(struct uring_ctx *ctx, int err)
{
	struct io_uring_sq *sq = &ctx->ring.sq;
	unsigned head = *sq->khead;

	for (unsigned at = head; at != sq->sqe_tail; at++) {
		uint64_t data = sq->sqes[at & sq->ring_mask].user_data;
		unsigned tag = (unsigned)(data & TAG_MASK);

		if (tag != TAG_CANCEL)
			push_done(ctx, (struct io_op *)(uintptr_t)(data & ~TAG_MASK),
				  tag == TAG_DROPPED ? -ECANCELED : err);
	}
	/* They were published already; nobody but io_uring_enter() looks there. */
	sq->sqe_head = sq->sqe_tail = head;
	__atomic_store_n(sq->ktail, head, __ATOMIC_RELEASE);
	while (ctx->to_cancel.head)
		(void)io_fifo_pop(&ctx->to_cancel);
}

static int submit(struct uring_ctx *ctx)
{
	/* Kernels without SUBMIT_ALL stop behind an operation that they refuse. */
	while (io_uring_sq_ready(&ctx->ring) || ctx->to_cancel.head) {
		int r;

		if (unlikely(ctx->to_cancel.head))
			cancel_owed(ctx);
		r = io_uring_submit(&ctx->ring);
		if (likely(r > 0) || r == -EINTR)
			continue;
		if (unlikely(is_forbidden(r)))
			withdraw(ctx, r);
		/* EBUSY: completions that did not fit must be reaped first. */
		return r == -EBUSY || r == 0 ? -EAGAIN : r;
	}
	return 0;
}

/* 0, or -EAGAIN when the ring has no room. */
static inline int into_ring(struct uring_ctx *ctx, struct io_op *op, uint64_t ask, bool may_wait)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ctx->ring);

	/* There is room for every operation, but cancels take some too. */
	if (unlikely(!sqe) && submit(ctx) == 0)
		sqe = io_uring_get_sqe(&ctx->ring);
	if (unlikely(!sqe))
		return -EAGAIN;
	fill_sqe(ctx, sqe, op, ask);
	if (unlikely(may_wait))
		sqe->flags |= IOSQE_ASYNC;
	return 0;
}

/* FUSE may wait all the same. */
static inline bool does_not_wait(const struct io_op *op)
{
	return op->flags & IO_OP_NOWAIT && !op->file->may_hang;
}

/*
 * Start op from where it stands.
 * @may_wait: let a kernel thread do it, where it would not have waited before
 *
 * 0, or -EAGAIN when the ring has no room.
 */
static inline int start(struct uring_ctx *ctx, struct io_op *op, bool may_wait)
{
	int64_t ask = io_op_ask(op);

	if (unlikely(ask < 0)) {
		push_done(ctx, op, ask);
		return 0;
	}
	/* These file systems have everything in memory, but know no RWF_NOWAIT, and io_uring
	 * would send their reads through a kernel thread. */
	if (op->flags & IO_OP_NOWAIT && op->file->memory_fs) {
		op->res = ask;
		io_fifo_push(&ctx->inline_reads, op);
		return 0;
	}
	if (!ctx->lone && does_not_wait(op) && !io_uring_sq_ready(&ctx->ring)) {
		op->res = ask;
		ctx->lone = op;
		return 0;
	}
	if (ctx->lone && into_ring(ctx, ctx->lone, (uint64_t)ctx->lone->res, false) == 0)
		ctx->lone = NULL;
	return into_ring(ctx, op, (uint64_t)ask, may_wait);
}

static int uring_queue(struct io_ctx *base, struct io_op *op)
{
	struct uring_ctx *ctx = ctx_of(base);
	int r;

	if (unlikely(base->nr_ops >= base->depth))
		return -EAGAIN;
	io_op_begin(op);
	r = start(ctx, op, false);
	if (likely(r == 0))
		base->nr_ops++;
	return r;
}

static void read_inline(struct uring_ctx *ctx, struct io_op *op, int flags)
{
	struct iovec iov = { op->buf, (size_t)op->res };
	ssize_t n = preadv2(op->file->fd, &iov, 1, (off_t)op->off, flags);

	push_done(ctx, op, n < 0 ? -errno : n);
}

static int flush(struct uring_ctx *ctx)
{
	int r;

	if (ctx->lone)
		read_inline(ctx, TAKE_PTR(ctx->lone), RWF_NOWAIT);
	while (unlikely(ctx->inline_reads.head))
		read_inline(ctx, io_fifo_pop(&ctx->inline_reads), 0);
	r = submit(ctx);
	ctx->owe_submit = r < 0;
	return r;
}

static int uring_flush(struct io_ctx *base)
{
	return flush(ctx_of(base));
}

/* Goes on with an operation that is not finished. */
static void restart(struct uring_ctx *ctx, struct io_op *op, int64_t res)
{
	/* Where a file has O_NONBLOCK or a device's queue is full, the kernel answers EAGAIN
	 * instead of waiting; its own threads may wait. */
	if (start(ctx, op, res == -EAGAIN) < 0)
		push_done(ctx, op, -EINTR); /* no room: come back at the next reap() */
	else
		ctx->owe_submit = true;
}

/* True when op is finished. */
static inline bool complete(struct uring_ctx *ctx, struct io_op *op, int64_t res)
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
 * When a thread ends, the kernel cancels operations that the thread started and that wait for a
 * page of the page cache, or says that it cannot reach their memory any more.  The I/O context
 * lives on in another thread, so that is no result yet: the operation starts again.  If the memory
 * is really bad, the kernel will say so again.
 */
static inline int64_t of_thread(struct io_op *op, int64_t res)
{
	if (unlikely(res == -ECANCELED && !io_op_canceled(op)))
		return -EINTR;
	if (unlikely(res == -EFAULT && !op->suspect)) {
		op->suspect = true;
		return -EINTR;
	}
	return res;
}

static unsigned reap_done(struct uring_ctx *ctx, struct io_op **ret, unsigned max)
{
	unsigned n = 0, todo = ctx->nr_done;

	/* Not those that come back in this round: that could go on for ever. */
	for (; todo && n < max; todo--) {
		struct io_op *op = io_fifo_pop(&ctx->done);

		ctx->nr_done--;
		if (complete(ctx, op, op->res))
			ret[n++] = op;
	}
	return n;
}

/* Completions wait in the kernel: for room in the ring, or for this thread to fetch them. */
static inline bool must_enter(const struct uring_ctx *ctx)
{
	return IO_URING_READ_ONCE(*ctx->ring.sq.kflags) &
	       (IORING_SQ_CQ_OVERFLOW | IORING_SQ_TASKRUN);
}

static unsigned reap_ring(struct uring_ctx *ctx, struct io_op **ret, unsigned max)
{
	unsigned head, n = 0, seen = 0;
	struct io_uring_cqe *cqe;

	io_uring_for_each_cqe(&ctx->ring, head, cqe)
	{
		uint64_t data = cqe->user_data;
		struct io_op *op = (struct io_op *)(uintptr_t)(data & ~TAG_MASK);
		unsigned tag = (unsigned)(data & TAG_MASK);

		if (n == max)
			break;
		seen++;
		if (unlikely(tag == TAG_CANCEL))
			continue;
		if (unlikely(tag == TAG_DROPPED)) {
			op->res = -ECANCELED;
			ret[n++] = op;
		} else if (likely(complete(ctx, op, of_thread(op, cqe->res)))) {
			ret[n++] = op;
		}
	}
	if (seen)
		io_uring_cq_advance(&ctx->ring, seen);
	return n;
}

static unsigned uring_reap(struct io_ctx *base, struct io_op **ret, unsigned max)
{
	struct uring_ctx *ctx = ctx_of(base);
	unsigned n = 0;

	if (unlikely(ctx->nr_done))
		n = reap_done(ctx, ret, max);
	n += reap_ring(ctx, ret + n, max - n);
	if (n < max && must_enter(ctx)) {
		(void)io_uring_get_events(&ctx->ring);
		n += reap_ring(ctx, ret + n, max - n);
	}
	if (unlikely(ctx->owe_submit))
		(void)flush(ctx);
	base->nr_ops -= n;
	return n;
}

/* io_uring_enter(2) that neither submits nor takes completions. */
static int enter_wait(struct uring_ctx *ctx, unsigned min, uint64_t deadline_ns)
{
	struct io_uring_getevents_arg arg = { 0 };
	struct __kernel_timespec ts;
	uint64_t now;
	int r;

	if (deadline_ns != PST_NO_DEADLINE) {
		now = now_ns();
		deadline_ns -= MIN(now, deadline_ns);
		ts.tv_sec = (int64_t)(deadline_ns / NSEC_PER_SEC);
		ts.tv_nsec = (int64_t)(deadline_ns % NSEC_PER_SEC);
		arg.ts = (uintptr_t)&ts;
	}
	r = io_uring_enter2((unsigned)ctx->ring.ring_fd, 0, min,
			    IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, (sigset_t *)&arg,
			    sizeof(arg));
	if (r == -ETIME)
		return -ETIMEDOUT;
	return r < 0 ? r : 0;
}

/*
 * Going to sleep and being woken costs more than a fast device takes, most of all in a
 * virtual machine.  So look for a moment first; after a vain look, the next waits do not.
 */
static bool spin(struct uring_ctx *ctx, unsigned min)
{
	uint64_t end;

	if (ctx->spin_skip) {
		ctx->spin_skip--;
		return false;
	}
	end = now_ns() + SPIN_NS;
	do {
		if (io_uring_get_events(&ctx->ring) < 0)
			break;
		if (io_uring_cq_ready(&ctx->ring) >= min)
			return true;
	} while (now_ns() < end);
	ctx->spin_skip = SPIN_SKIP;
	return false;
}

static int uring_wait(struct io_ctx *base, unsigned min, uint64_t deadline_ns)
{
	struct uring_ctx *ctx = ctx_of(base);
	uint64_t soon;
	int r;

	if (ctx->nr_done || !base->nr_ops)
		return 0;
	min = MIN(min, base->nr_ops);
	min = min ? min : 1;
	if (io_uring_cq_ready(&ctx->ring) >= min)
		return 0;
	/* Operations that reap() could not give to the kernel would be waited for in vain. */
	if (unlikely(ctx->owe_submit) && flush(ctx) < 0) {
		soon = now_ns() + NSEC_PER_MSEC;
		r = enter_wait(ctx, 1, MIN(soon, deadline_ns));
		return r == -ETIMEDOUT && soon < deadline_ns ? 0 : r;
	}
	if (ctx->nr_done || spin(ctx, min))
		return 0;
	return enter_wait(ctx, min, deadline_ns);
}

/* The entry of an operation that was not submitted yet; fill_sqe() keeps where it went. */
static struct io_uring_sqe *find_queued(struct uring_ctx *ctx, const struct io_op *op)
{
	const struct io_uring_sq *sq = &ctx->ring.sq;
	unsigned at = (unsigned)(uintptr_t)op->ctx_data, head = *sq->khead;
	struct io_uring_sqe *sqe = &sq->sqes[at & sq->ring_mask];

	if (at - head >= sq->sqe_tail - head || sqe->user_data != (uintptr_t)op)
		return NULL;
	return sqe;
}

static void uring_cancel(struct io_ctx *base, struct io_op *op)
{
	struct uring_ctx *ctx = ctx_of(base);
	struct io_uring_sqe *sqe;

	if (op->canceled)
		return;
	io_op_set_canceled(op);
	if (ctx->lone == op || io_fifo_remove(&ctx->inline_reads, op)) {
		if (ctx->lone == op)
			ctx->lone = NULL;
		push_done(ctx, op, -ECANCELED);
		return;
	}
	sqe = find_queued(ctx, op);
	if (sqe) {
		io_uring_prep_nop(sqe);
		sqe->user_data = (uintptr_t)op | TAG_DROPPED;
	} else if (!io_fifo_has(&ctx->done, op)) {
		io_fifo_push(&ctx->to_cancel, op);
	}
	/* For callers that only reap(). */
	ctx->owe_submit = true;
}

/* On or off; a full barrier. */
static void set_events(struct uring_ctx *ctx, bool on)
{
	/* Pairs with the kernel, which posts a completion and then looks at this flag: either
	 * it sees the flag, or has_work() below sees the completion. */
	(void)__atomic_exchange_n(ctx->ring.cq.kflags, on ? 0 : IORING_CQ_EVENTFD_DISABLED,
				  __ATOMIC_SEQ_CST);
	ctx->armed = on;
}

static bool has_work(struct uring_ctx *ctx)
{
	if (must_enter(ctx))
		(void)io_uring_get_events(&ctx->ring);
	return ctx->nr_done || ctx->owe_submit ||
	       __atomic_load_n(ctx->ring.cq.ktail, __ATOMIC_SEQ_CST) != *ctx->ring.cq.khead;
}

static int uring_arm(struct io_ctx *base, int efd, bool armed)
{
	struct uring_ctx *ctx = ctx_of(base);
	int r;

	if (!armed) {
		if (ctx->armed)
			set_events(ctx, false);
		return 0;
	}
	if (ctx->efd < 0) {
		r = io_uring_register_eventfd(&ctx->ring, efd);
		if (r < 0)
			return err_set(r, "io_uring does not take the eventfd of a queue: %s",
				       err_name(r));
		ctx->efd = efd;
	}
	assert(efd == ctx->efd);
	set_events(ctx, true);
	if (has_work(ctx))
		wake_armed(ctx);
	return 0;
}

const struct io_backend uring_backend = {
	.name = "uring",
	.backend = PST_BACKEND_URING,
	.check = uring_ring_check,
	.ctx_new = uring_ctx_new,
	.ctx_free = uring_ctx_free,
	.queue = uring_queue,
	.flush = uring_flush,
	.reap = uring_reap,
	.wait = uring_wait,
	.cancel = uring_cancel,
	.arm = uring_arm,
};
