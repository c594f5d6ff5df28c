/* SPDX-License-Identifier: MIT */
/*
 * The I/O context.  flush() passes operations to the thread pst-http, which splits reads into
 * ranges of RANGE_LEN, and pushes finished operations into the context's inbox.
 */
#include <stdio.h>

#include "base/err.h"
#include "base/log.h"
#include "base/uaccess.h"
#include "file/inbox.h"
#include "s3/io.h"
#include "s3/read.h"

#define TASK_CALLS 16u /* maximum ranges of an operation in flight */

struct s3_ctx {
	struct io_ctx base; /* must be the first member */
	struct io_inbox in;
	struct io_fifo queued; /* operations before flush() */
};

/* A read in progress on the thread pst-http. */
struct task {
	struct task *next;
	struct io_op *op;
	struct s3_file *file;
	uint64_t at, end; /* bytes; at: where the next range begins; end: end of the read */
	unsigned nr_calls;
	int err;
	bool starting;
	struct call *calls[TASK_CALLS];
};

/* Operations from other threads, and jobs that take them. */
static struct {
	pthread_mutex_t lock;
	struct io_fifo ops;
	bool ops_asked, cancels_asked;
	struct http_job take, cancel;
} handed = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Used by the thread pst-http only. */
static struct task *tasks;

static struct s3_ctx *io_ctx_of(struct io_ctx *base)
{
	return container_of(base, struct s3_ctx, base);
}

void op_end(struct io_op *op, int64_t res)
{
	struct s3_ctx *c = op->ctx_data;

	op->res = res;
	op->moved = res > 0 ? (uint64_t)res : 0;
	io_inbox_push(&c->in, op);
}

/* ------------------------------------------------------------------- reads */

static void io_range_done(struct call *c);

static int range_check(struct call *c)
{
	const struct task *t = c->arg;

	return answer_check(t->file, c);
}

static int start_range(struct task *t, unsigned i)
{
	struct call *c = calloc(1, sizeof(*c));
	uint64_t off = t->op->off + t->at;

	if (!c)
		return -ENOMEM;
	*c = (struct call){
		.method = "GET",
		.where = t->file->where,
		.if_match = t->file->etag,
		.off = off,
		.len = MIN(RANGE_LEN - off % RANGE_LEN, t->end - t->at),
		.to = (char *)t->op->buf + t->at,
		.plain = true,
		.deadline_ns = t->op->deadline_ns,
		.check = range_check,
		.done = io_range_done,
		.arg = t,
	};
	t->at += c->len;
	t->calls[i] = c;
	t->nr_calls++;
	call_start(c);
	return 0;
}

/* Start ranges, and end the task when none is in flight. */
static void task_go_on(struct task *t)
{
	struct task **at = &tasks;

	for (unsigned i = 0; i < TASK_CALLS && t->err == 0 && t->at < t->end; i++)
		if (!t->calls[i])
			t->err = start_range(t, i);
	if (t->nr_calls)
		return;
	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	op_end(t->op, t->err < 0 ? t->err : (int64_t)t->end);
	free(t);
}

/* Cancel the other ranges of a failed operation, so that nothing writes to its memory any more. */
static void cancel_calls(struct task *t)
{
	t->starting = true;
	for (unsigned i = 0; i < TASK_CALLS; i++)
		if (t->calls[i])
			call_cancel(t->calls[i]);
	t->starting = false;
}

static void io_range_done(struct call *c)
{
	struct task *t = c->arg;

	for (unsigned i = 0; i < TASK_CALLS; i++)
		if (t->calls[i] == c)
			t->calls[i] = NULL;
	t->nr_calls--;
	/* Ranges lie inside the object's size at the open, so this error comes from a server that
	 * ignores If-Match. */
	if (c->err == -ERANGE) {
		c->err = err_object_replaced(t->file);
		(void)snprintf(c->why, sizeof(c->why), "%s", err_text());
	}
	if (c->err < 0 && t->err == 0) {
		t->err = c->err;
		log_warn("%s", c->why);
	}
	call_free_text(c);
	free(c);
	if (t->starting)
		return;
	if (t->err < 0)
		cancel_calls(t);
	task_go_on(t);
}

static void start_read(struct io_op *op)
{
	struct s3_file *f = s3_file_of(op->file);
	uint64_t len = op->off < f->size ? MIN(op->len, f->size - op->off) : 0;
	struct task *t;

	if (!len) {
		op_end(op, 0);
		return;
	}
	t = calloc(1, sizeof(*t));
	if (!t) {
		op_end(op, -ENOMEM);
		return;
	}
	t->op = op;
	t->file = f;
	t->end = len;
	t->next = tasks;
	tasks = t;
	task_go_on(t);
}

/* ------------------------------------------------------------ other threads */

static void start_op(struct io_op *op)
{
	struct s3_file *f = s3_file_of(op->file);

	if (io_op_canceled(op))
		op_end(op, -ECANCELED);
	else if (op->kind == IO_READ)
		start_read(op);
	else if (f->up)
		upload_op(f->up, op);
	else
		op_end(op, op->kind == IO_WRITE ? -EBADF : 0);
}

static void take_ops(void *arg)
{
	struct io_fifo ops;
	struct io_op *op;

	(void)arg;
	(void)pthread_mutex_lock(&handed.lock);
	ops = handed.ops;
	handed.ops = (struct io_fifo){ 0 };
	handed.ops_asked = false;
	(void)pthread_mutex_unlock(&handed.lock);
	while ((op = io_fifo_pop(&ops)))
		start_op(op);
}

static void take_cancels(void *arg)
{
	struct task *next;

	(void)arg;
	(void)pthread_mutex_lock(&handed.lock);
	handed.cancels_asked = false;
	(void)pthread_mutex_unlock(&handed.lock);
	for (struct task *t = tasks; t; t = next) {
		next = t->next;
		if (!io_op_canceled(t->op))
			continue;
		t->err = -ECANCELED;
		cancel_calls(t);
		task_go_on(t);
	}
	uploads_cancel();
}

/* ----------------------------------------------------------------- context */

static int s3_ctx_new(unsigned depth, struct io_ctx **ret)
{
	struct s3_ctx *c = calloc(1, sizeof(*c));
	int r = c ? http_get() : err_set(ENOMEM, "out of memory");

	if (r < 0) {
		free(c);
		return r;
	}
	c->base = (struct io_ctx){ .ops = &s3_backend, .depth = depth };
	io_inbox_init(&c->in);
	*ret = &c->base;
	return 0;
}

static void s3_ctx_free(struct io_ctx *base)
{
	struct s3_ctx *c = io_ctx_of(base);

	io_inbox_done(&c->in);
	free(c);
	http_put();
}

static int s3_queue(struct io_ctx *base, struct io_op *op)
{
	struct s3_ctx *c = io_ctx_of(base);

	if (base->nr_ops >= base->depth)
		return -EAGAIN;
	io_op_begin(op);
	op->ctx_data = c;
	io_fifo_push(&c->queued, op);
	base->nr_ops++;
	return 0;
}

static int s3_flush(struct io_ctx *base)
{
	struct s3_ctx *c = io_ctx_of(base);
	struct io_op *op;

	if (!c->queued.head)
		return 0;
	(void)pthread_mutex_lock(&handed.lock);
	while ((op = io_fifo_pop(&c->queued)))
		io_fifo_push(&handed.ops, op);
	if (!handed.ops_asked) {
		handed.ops_asked = true;
		handed.take.fn = take_ops;
		http_run(&handed.take);
	}
	(void)pthread_mutex_unlock(&handed.lock);
	return 0;
}

static unsigned s3_reap(struct io_ctx *base, struct io_op **ret, unsigned max)
{
	unsigned n = base->nr_ops ? io_inbox_reap(&io_ctx_of(base)->in, ret, max) : 0;

	base->nr_ops -= n;
	return n;
}

static void s3_cancel(struct io_ctx *base, struct io_op *op)
{
	(void)base;
	io_op_set_canceled(op);
	(void)pthread_mutex_lock(&handed.lock);
	if (!handed.cancels_asked) {
		handed.cancels_asked = true;
		handed.cancel.fn = take_cancels;
		http_run(&handed.cancel);
	}
	(void)pthread_mutex_unlock(&handed.lock);
}

static int s3_arm(struct io_ctx *base, int efd, bool armed)
{
	io_inbox_arm(&io_ctx_of(base)->in, efd, armed);
	return 0;
}

const struct io_backend s3_backend = {
	.name = "http",
	.ctx_new = s3_ctx_new,
	.ctx_free = s3_ctx_free,
	.queue = s3_queue,
	.flush = s3_flush,
	.reap = s3_reap,
	.cancel = s3_cancel,
	.arm = s3_arm,
};
