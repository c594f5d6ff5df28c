/* SPDX-License-Identifier: MIT */
/*
 * An I/O context of io_uring: uring_ctx.c makes it and waits, uring.c puts operations
 * into its ring and takes them back.
 */
#ifndef PST_URING_H
#define PST_URING_H

#include <liburing.h>
#include <sys/eventfd.h>

#include "file/op.h"
#include "file/uring_bufs.h"

/* Kinds of completions, in the low bits of user_data: operations are aligned. */
#define TAG_MASK UINT64_C(7)
#define TAG_OP 0u      /* the result of an operation */
#define TAG_CANCEL 1u  /* the result of a cancel: of no interest */
#define TAG_DROPPED 2u /* an operation that was cancelled before it started */

struct uring_ctx {
	struct io_ctx base;
	struct io_ctx *threads; /* that have taken over, or NULL */
	struct io_uring ring;
	struct io_op *single;        /* a read that may not wait, if it is the only one */
	struct io_fifo inline_reads; /* to be read by flush(): files in memory */
	struct io_fifo done;         /* ended without the ring; res holds the raw result */
	unsigned nr_done;
	struct io_fifo to_cancel; /* flagged, but the ring had no room to say so */
	unsigned nr_files;        /* files the ring's table has places for, 0: no table */
	bool files_off;           /* registering a file failed: register no more */
	bool owe_submit;          /* requeued operations that the kernel did not take yet */
	bool armed;
	unsigned spin_skip; /* waits that sleep at once */
	int efd;            /* -1 until the first arm() */
	struct ctx_tables tables;
	/* Generation registered in place [idx], 0: none.  Written by the I/O context's user, and by
	 * the thread that frees the file; those two never meet at one place, see ctx.c. */
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

/* End op without the kernel. */
static inline void uring_push_done(struct uring_ctx *ctx, struct io_op *op, int64_t raw)
{
	op->res = raw;
	io_fifo_push(&ctx->done, op);
	ctx->nr_done++;
	uring_wake_armed(ctx);
}

/* Completions wait in the kernel: for room in the ring, or for this thread to fetch them. */
static inline bool uring_must_enter(const struct uring_ctx *ctx)
{
	return IO_URING_READ_ONCE(*ctx->ring.sq.kflags) &
	       (IORING_SQ_CQ_OVERFLOW | IORING_SQ_TASKRUN);
}

/* The kernel takes nothing from this process any more, as after a sandbox. */
static inline bool uring_is_forbidden(int err)
{
	return err == -EPERM || err == -EACCES || err == -ENOSYS || err == -EBADF;
}

/* After threads have taken over: operations that the kernel has. */
static inline unsigned uring_nr_taken(const struct uring_ctx *ctx)
{
	return ctx->base.nr_ops - ctx->nr_done - ctx->threads->nr_ops;
}

/*
 * Take over from a ring that the kernel refuses with this error: threads do what the kernel has not
 * taken, and all later operations.  Return false if the user insists on the ring, or if there are
 * no threads.
 */
bool uring_take_over(struct uring_ctx *ctx, int err);

/* uring.c: members of struct io_backend. */
int uring_queue(struct io_ctx *base, struct io_op *op);
int uring_flush(struct io_ctx *base);
unsigned uring_reap(struct io_ctx *base, struct io_op **ret, unsigned max);
void uring_cancel(struct io_ctx *base, struct io_op *op);

#endif
