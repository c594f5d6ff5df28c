/* SPDX-License-Identifier: MIT */
/*
 * The I/O context of peers' memory.  If the memory is mapped here, the context's user copies the
 * bytes in flush() and reap(); otherwise the peer's thread moves the bytes.
 */
#include <sys/eventfd.h>

#include "base/err.h"
#include "peer/ctx.h"

struct peer_ctx {
	struct io_ctx base; /* must be the first member */
	struct io_inbox in;
	struct io_fifo copies; /* operations to copy here */
	int efd;
	bool armed;
};

static struct peer_ctx *peer_ctx_of(struct io_ctx *base)
{
	return container_of(base, struct peer_ctx, base);
}

static int peer_ctx_new(unsigned depth, struct io_ctx **ret)
{
	struct peer_ctx *c = calloc(1, sizeof(*c));

	if (!c)
		return err_set(ENOMEM, "out of memory");
	c->base = (struct io_ctx){ .ops = &peer_backend, .depth = depth };
	c->efd = -1;
	io_inbox_init(&c->in);
	*ret = &c->base;
	return 0;
}

static void peer_ctx_free(struct io_ctx *base)
{
	struct peer_ctx *c = peer_ctx_of(base);

	io_inbox_done(&c->in);
	free(c);
}

static void peer_ctx_end(struct peer_ctx *c, struct io_op *op, int64_t res)
{
	op->res = res;
	op->moved = res > 0 ? (uint64_t)res : op->moved;
	io_inbox_push(&c->in, op);
}

static int peer_queue(struct io_ctx *base, struct io_op *op)
{
	struct peer_ctx *c = peer_ctx_of(base);
	struct peer_file *f = peer_file_of(op->file);
	int64_t ask;
	int r = 0;

	if (base->nr_ops >= base->depth)
		return -EAGAIN;
	io_op_begin(op);
	op->ctx_data = NULL;
	base->nr_ops++;
	ask = io_op_ask(op);
	if (unlikely(ask < 0)) /* a fault was injected */
		peer_ctx_end(c, op, ask);
	else if (io_op_is_sync(op)) /* nothing to do: a completed write is in the peer's memory */
		peer_ctx_end(c, op, 0);
	else if (op->kind == IO_WRITE && (op->off > f->len || op->len > f->len - op->off))
		peer_ctx_end(c, op, -ERANGE);
	else if (f->import)
		io_fifo_push(&c->copies, op);
	else if (op->flags & IO_OP_RDMA)
		r = rdma_start(f, &c->in, op);
	else
		r = socket_start(f, &c->in, op);
	if (r < 0)
		peer_ctx_end(c, op, r);
	return 0;
}

static void copy_some(struct peer_ctx *c)
{
	uint64_t budget = PEER_COPY_MAX;

	while (c->copies.head && budget) {
		struct io_op *op = c->copies.head;

		if (!memory_go_on(peer_file_of(op->file), op, &budget))
			break;
		(void)io_fifo_pop(&c->copies);
		io_inbox_push(&c->in, op);
	}
}

static int peer_flush(struct io_ctx *base)
{
	copy_some(peer_ctx_of(base));
	return 0;
}

static unsigned peer_reap(struct io_ctx *base, struct io_op **ret, unsigned max)
{
	struct peer_ctx *c = peer_ctx_of(base);
	unsigned n;

	if (!base->nr_ops)
		return 0;
	copy_some(c);
	n = io_inbox_reap(&c->in, ret, max);
	base->nr_ops -= n;
	if (c->copies.head && c->armed)
		(void)eventfd_write(c->efd, 1);
	return n;
}

static void peer_cancel(struct io_ctx *base, struct io_op *op)
{
	struct peer_ctx *c = peer_ctx_of(base);

	if (io_fifo_remove(&c->copies, op))
		peer_ctx_end(c, op, -ECANCELED);
	else
		socket_cancel(peer_file_of(op->file), op);
}

static int peer_arm(struct io_ctx *base, int efd, bool armed)
{
	struct peer_ctx *c = peer_ctx_of(base);

	c->efd = efd;
	c->armed = armed;
	io_inbox_arm(&c->in, efd, armed);
	if (armed && c->copies.head)
		(void)eventfd_write(efd, 1);
	return 0;
}

const struct io_backend peer_backend = {
	.name = "peer",
	.ctx_new = peer_ctx_new,
	.ctx_free = peer_ctx_free,
	.queue = peer_queue,
	.flush = peer_flush,
	.reap = peer_reap,
	.cancel = peer_cancel,
	.arm = peer_arm,
};
