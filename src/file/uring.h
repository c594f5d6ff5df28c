/* SPDX-License-Identifier: MIT */
/*
 * An I/O context of io_uring.  uring_ctx.c creates it and waits; uring.c submits and reaps
 * operations.
 */
#ifndef PST_URING_H
#define PST_URING_H

#include <liburing.h>
#include <sys/eventfd.h>

#include "file/op.h"
#include "file/uring_bufs.h"

/* Kinds of completions, in the low bits of user_data, which are 0 in an operation's address. */
#define TAG_MASK UINT64_C(7)
#define TAG_OP 0u      /* the result of an operation */
#define TAG_CANCEL 1u  /* the result of a cancel, which is ignored */
#define TAG_DROPPED 2u /* an operation cancelled before it started */

struct uring_ctx {
	struct io_ctx base;
	struct io_ctx *threads; /* replacement after the kernel refused the ring, or NULL */
	struct io_uring ring;
	struct io_op *single;        /* the NOWAIT read of this flush, if it is the only one */
	struct io_fifo inline_reads; /* reads of files in memory, which flush() runs */
	struct io_fifo done;         /* ended without the ring; res holds the raw result */
	unsigned nr_done;
	struct io_fifo to_cancel; /* cancelled, but the kernel was not told yet */
	unsigned nr_files;        /* length of the ring's file table; 0: no table */
	bool files_off;           /* registering a file failed: register no more files */
	bool owe_submit;          /* requeued operations are not submitted yet */
	bool armed;
	unsigned spin_skip; /* how many of the next waits sleep without spinning */
	int efd;            /* eventfd; -1 until the first arm() */
	struct ctx_tables tables;
	/* Generation of the file registered at each index, 0: none.  Written by the I/O context's
	 * user and by the thread that frees the file, never both for one index; see ctx.c. */
	uint32_t file_gen[IO_NR_FILES];
	struct uring_bufs bufs;
};

static inline struct uring_ctx *uring_ctx_of(struct io_ctx *ctx)
{
	return container_of(ctx, struct uring_ctx, base);
}

static inline void uring_wake_armed(struct uring_ctx *ctx)
{
	if (ctx->armed)
		(void)eventfd_write(ctx->efd, 1);
}

/* End op with a raw result, without the kernel. */
static inline void uring_push_done(struct uring_ctx *ctx, struct io_op *op, int64_t raw)
{
	op->res = raw;
	io_fifo_push(&ctx->done, op);
	ctx->nr_done++;
	uring_wake_armed(ctx);
}

/* Return true if completions wait in the kernel, for room in the ring or for this thread to fetch
 * them. */
static inline bool uring_must_enter(const struct uring_ctx *ctx)
{
	return IO_URING_READ_ONCE(*ctx->ring.sq.kflags) &
	       (IORING_SQ_CQ_OVERFLOW | IORING_SQ_TASKRUN);
}

/* Return true if the kernel accepts nothing more from this process, as in a sandbox. */
static inline bool uring_is_forbidden(int err)
{
	return err == -EPERM || err == -EACCES || err == -ENOSYS || err == -EBADF;
}

/* Return how many operations the kernel still has after threads have taken over. */
static inline unsigned uring_nr_taken(const struct uring_ctx *ctx)
{
	return ctx->base.nr_ops - ctx->nr_done - ctx->threads->nr_ops;
}

/*
 * Let threads take over from a ring that the kernel refuses with this error: they run the
 * operations that the kernel has not taken, and all later ones.  Return false if the user insists
 * on the ring, or if there are no threads.
 */
bool uring_take_over(struct uring_ctx *ctx, int err);

/* Members of struct io_backend in uring.c. */
int uring_queue(struct io_ctx *base, struct io_op *op);
int uring_flush(struct io_ctx *base);
unsigned uring_reap(struct io_ctx *base, struct io_op **ret, unsigned max);
void uring_cancel(struct io_ctx *base, struct io_op *op);

#endif
