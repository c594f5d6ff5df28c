/* SPDX-License-Identifier: MIT */
/* Create, wait for and free I/O contexts of io_uring. */
#include <assert.h>
#include <sys/resource.h>

#include "base/err.h"
#include "base/log.h"
#include "file/uring.h"
#include "file/uring_bufs.h"
#include "file/uring_ring.h"

#define SPIN_NS 10000u
#define SPIN_SKIP 31u

/* ------------------------------------------------------------------ set up */

/* Add sparse tables.  Kernels before 5.19 have none, so nothing is registered there. */
static void add_tables(struct uring_ctx *ctx)
{
	unsigned files = 2 * IO_NR_FILES;
	struct rlimit rl;

	/* The kernel refuses a table longer than RLIMIT_NOFILE. */
	if (getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur < files)
		files = (unsigned)align_down(rl.rlim_cur, 2);
	if (files && uring_ring_sparse(&ctx->ring, IORING_REGISTER_FILES2, files) == 0)
		ctx->nr_files = files / 2;
	uring_bufs_init(&ctx->bufs, &ctx->ring);
	log_debug("I/O context of io_uring: depth %u, places for %u files and %u buffers",
		  ctx->base.depth, ctx->nr_files, ctx->bufs.on ? IO_NR_BUFS : 0);
}

/* Clear a file's entry.  The thread that frees the file calls this; it may be any thread. */
static void uring_ctx_forget_file(struct ctx_tables *t, uint32_t idx)
{
	struct uring_ctx *ctx = container_of(t, struct uring_ctx, tables);
	int none[2] = { -1, -1 };

	if (!ctx->file_gen[idx])
		return;
	ctx->file_gen[idx] = 0;
	(void)io_uring_register_files_update(&ctx->ring, 2 * idx, none, 2);
}

static void uring_ctx_forget_buf(struct ctx_tables *t, uint32_t idx, unsigned nr)
{
	struct uring_ctx *ctx = container_of(t, struct uring_ctx, tables);

	uring_bufs_forget(&ctx->bufs, idx, nr);
}

static int uring_new_ctx(const struct io_backend *ops, unsigned depth, struct io_ctx **ret)
{
	struct uring_ctx *ctx = calloc(1, sizeof(*ctx));
	int r;

	if (!ctx)
		return err_set(ENOMEM, "no memory for an I/O context of io_uring");
	ctx->base = (struct io_ctx){ .ops = ops, .depth = depth };
	ctx->efd = -1;
	r = uring_ring_new(depth, &ctx->ring);
	if (r < 0) {
		free(ctx);
		return uring_ring_err(-r);
	}
	uring_ring_may_hang(&ctx->ring);
	/* A forked child must not use its parent's ring. */
	(void)io_uring_ring_dontfork(&ctx->ring);
	add_tables(ctx);
	ctx->tables.forget_file = uring_ctx_forget_file;
	ctx->tables.forget_buf = uring_ctx_forget_buf;
	ctx_tables_add(&ctx->tables);
	*ret = &ctx->base;
	return 0;
}

static int uring_ctx_new(unsigned depth, struct io_ctx **ret)
{
	return uring_new_ctx(&uring_backend, depth, ret);
}

static int uring_or_threads_ctx_new(unsigned depth, struct io_ctx **ret)
{
	return uring_new_ctx(&uring_or_threads_backend, depth, ret);
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
	struct uring_ctx *ctx = uring_ctx_of(base);

	if (ctx->threads)
		io_ctx_free(ctx->threads);
	ctx_tables_del(&ctx->tables);
	/* The kernel destroys a ring in the background.  Unregister files first, so they do not
	 * keep their file system busy after this call. */
	if (any_registered(ctx))
		(void)io_uring_unregister_files(&ctx->ring);
	uring_bufs_done(&ctx->bufs);
	io_uring_queue_exit(&ctx->ring);
	free(ctx);
}

/* -------------------------------------------------------------------- wait */

/* Poll in short sleeps: after threads took over, no event reports completions in the ring. */
static int wait_for_threads(struct uring_ctx *ctx, unsigned min, uint64_t deadline_ns)
{
	uint64_t soon = now_ns() + NSEC_PER_MSEC;
	const struct timespec pause = { .tv_nsec = (long)NSEC_PER_MSEC };
	int r;

	if (!uring_nr_taken(ctx))
		return threads_backend.wait(ctx->threads, min, deadline_ns);
	if (deadline_ns <= soon)
		return threads_backend.wait(ctx->threads, 1, deadline_ns);
	if (!ctx->threads->nr_ops)
		return nanosleep(&pause, NULL) < 0 ? -errno : 0;
	r = threads_backend.wait(ctx->threads, 1, soon);
	return r == -ETIMEDOUT ? 0 : r;
}

/* Call io_uring_enter(2) to wait only: submit nothing and reap nothing. */
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
 * Spin briefly for completions.  Sleeping and waking cost more than a fast device takes, most of
 * all in a virtual machine, and completions are cheaper without a sleeper to wake.  After a spin
 * that found nothing, the next waits sleep at once.
 */
static bool uring_ctx_spin(struct uring_ctx *ctx, unsigned min)
{
	uint64_t end;

	if (ctx->spin_skip) {
		ctx->spin_skip--;
		return false;
	}
	end = now_ns() + SPIN_NS;
	do {
		if (uring_must_enter(ctx) && io_uring_get_events(&ctx->ring) < 0)
			break;
		if (io_uring_cq_ready(&ctx->ring) >= min)
			return true;
	} while (now_ns() < end);
	ctx->spin_skip = SPIN_SKIP;
	return false;
}

static int uring_wait(struct io_ctx *base, unsigned min, uint64_t deadline_ns)
{
	struct uring_ctx *ctx = uring_ctx_of(base);
	uint64_t soon;
	int r;

	if (ctx->nr_done || !base->nr_ops)
		return 0;
	min = MIN(min, base->nr_ops);
	min = min ? min : 1;
	if (io_uring_cq_ready(&ctx->ring) >= min)
		return 0;
	/* Submit operations that reap() could not submit: otherwise they would never complete. */
	if (unlikely(ctx->owe_submit) && uring_flush(base) < 0) {
		soon = now_ns() + NSEC_PER_MSEC;
		r = enter_wait(ctx, 1, MIN(soon, deadline_ns));
		return r == -ETIMEDOUT && soon < deadline_ns ? 0 : r;
	}
	if (ctx->nr_done)
		return 0;
	if (unlikely(ctx->threads))
		return wait_for_threads(ctx, min, deadline_ns);
	if (uring_ctx_spin(ctx, min))
		return 0;
	r = enter_wait(ctx, min, deadline_ns);
	return uring_is_forbidden(r) && uring_take_over(ctx, r) ? 0 : r;
}

/* Switch the ring's eventfd on or off; a full barrier. */
static void set_events(struct uring_ctx *ctx, bool on)
{
	/* Pairs with the kernel, which posts a completion and then reads this flag: either the
	 * kernel sees the flag, or has_work() sees the completion. */
	(void)__atomic_exchange_n(ctx->ring.cq.kflags, on ? 0 : IORING_CQ_EVENTFD_DISABLED,
				  __ATOMIC_SEQ_CST);
	ctx->armed = on;
}

static bool has_work(struct uring_ctx *ctx)
{
	if (uring_must_enter(ctx))
		(void)io_uring_get_events(&ctx->ring);
	return ctx->nr_done || ctx->owe_submit ||
	       __atomic_load_n(ctx->ring.cq.ktail, __ATOMIC_SEQ_CST) != *ctx->ring.cq.khead;
}

/* Let threads take over after the ring refused the eventfd.  Return true if only threads will write
 * the eventfd, because the kernel has no operations left. */
static bool threads_wake(struct uring_ctx *ctx, int err)
{
	if (!uring_is_forbidden(err) || !uring_take_over(ctx, err))
		return false;
	return !uring_nr_taken(ctx);
}

static int uring_arm(struct io_ctx *base, int efd, bool armed)
{
	struct uring_ctx *ctx = uring_ctx_of(base);
	int r;

	if (!armed) {
		if (ctx->threads)
			(void)threads_backend.arm(ctx->threads, efd, false);
		if (ctx->armed)
			set_events(ctx, false);
		return 0;
	}
	if (ctx->efd < 0) {
		r = io_uring_register_eventfd(&ctx->ring, efd);
		if (r < 0 && !threads_wake(ctx, r))
			return err_set(r, "io_uring does not take the eventfd of a queue: %s",
				       err_name(r));
		ctx->efd = efd;
	}
	assert(efd == ctx->efd);
	if (ctx->threads)
		(void)threads_backend.arm(ctx->threads, efd, true);
	set_events(ctx, true);
	if (has_work(ctx))
		uring_wake_armed(ctx);
	return 0;
}

const struct io_backend uring_backend = {
	.name = "uring",
	.backend = PST_BACKEND_URING,
	.now = true,
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

const struct io_backend uring_or_threads_backend = {
	.name = "uring",
	.backend = PST_BACKEND_URING,
	.now = true,
	.check = uring_ring_check,
	.ctx_new = uring_or_threads_ctx_new,
	.ctx_free = uring_ctx_free,
	.queue = uring_queue,
	.flush = uring_flush,
	.reap = uring_reap,
	.wait = uring_wait,
	.cancel = uring_cancel,
	.arm = uring_arm,
};
