/* SPDX-License-Identifier: MIT */
/*
 * The I/O context: tasks, their pieces, and the budget of pieces in flight.
 *
 * Lock order: task, budget.  Neither lock is held while a task ends.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/uaccess.h"
#include "file/inbox.h"
#include "file/op.h"
#include "rados/lib.h"
#include "rados/rados.h"

#define POPULATE_READ 22 /* MADV_POPULATE_READ, missing in old headers */
#define POPULATE_WRITE 23

struct rados_ctx {
	struct io_ctx base; /* must be the first member */
	struct io_inbox in;
	struct io_fifo queued; /* operations before flush() */
	pthread_mutex_t lock;  /* covers ctx_data of operations, which points to their tasks */
};

static struct {
	pthread_mutex_t lock; /* covers all members */
	uint64_t bytes;
	unsigned pieces;
	struct task *head, **tail; /* tasks that wait for room; each has a reference */
} budget = { .lock = PTHREAD_MUTEX_INITIALIZER, .tail = &budget.head };

static void rados_done(void *completion, void *arg);

static struct rados_ctx *rados_ctx_of(struct io_ctx *base)
{
	return container_of(base, struct rados_ctx, base);
}

/* ------------------------------------------------------------------ budget */

/* Return true if a piece fits.  The lock is held. */
static bool budget_has_room(uint64_t len)
{
	return !budget.pieces ||
	       (budget.pieces < BUDGET_PIECES && budget.bytes + len <= BUDGET_BYTES);
}

/* Reserve room for a piece.  If there is none, return false and queue the task; a task that was
 * woken goes to the front. */
static bool budget_take(struct task *t, uint64_t len, bool woken)
{
	bool room;

	(void)pthread_mutex_lock(&budget.lock);
	room = (woken || !budget.head) && budget_has_room(len);
	if (room) {
		budget.bytes += len;
		budget.pieces++;
	} else if (!t->waits) {
		t->waits = true;
		t->need = len;
		atomic_fetch_add(&t->refs, 1);
		t->next_waiting = woken ? budget.head : NULL;
		if (!woken)
			*budget.tail = t;
		else
			budget.head = t;
		if (!t->next_waiting)
			budget.tail = &t->next_waiting;
	}
	(void)pthread_mutex_unlock(&budget.lock);
	return room;
}

static void budget_give(uint64_t len)
{
	(void)pthread_mutex_lock(&budget.lock);
	budget.bytes -= len;
	budget.pieces--;
	(void)pthread_mutex_unlock(&budget.lock);
}

/* Take the next task that has room now, with its reference; NULL if there is none. */
static struct task *budget_next(void)
{
	struct task *t;

	(void)pthread_mutex_lock(&budget.lock);
	t = budget.head;
	if (t && budget_has_room(t->need)) {
		budget.head = t->next_waiting;
		if (!budget.head)
			budget.tail = &budget.head;
		t->waits = false;
	} else {
		t = NULL;
	}
	(void)pthread_mutex_unlock(&budget.lock);
	return t;
}

/* Remove a task from the waiting list.  Return true if it was there; the caller then owns its
 * reference. */
static bool budget_forget(struct task *t)
{
	struct task **at = &budget.head;
	bool found = false;

	(void)pthread_mutex_lock(&budget.lock);
	while (*at && *at != t)
		at = &(*at)->next_waiting;
	if (*at) {
		*at = t->next_waiting;
		if (budget.tail == &t->next_waiting)
			budget.tail = at;
		t->waits = false;
		found = true;
	}
	(void)pthread_mutex_unlock(&budget.lock);
	return found;
}

/* ------------------------------------------------------------------- tasks */

static void piece_clean(struct piece *p, bool write)
{
	if (p->completion)
		lib.rados_aio_release(p->completion);
	if (p->op && write)
		lib.rados_release_write_op(p->op);
	else if (p->op)
		lib.rados_release_read_op(p->op);
	p->completion = p->op = NULL;
}

static void task_put(struct task *t)
{
	if (atomic_fetch_sub(&t->refs, 1) > 1)
		return;
	for (unsigned i = 0; i < PIECES_MAX; i++)
		piece_clean(&t->pieces[i], t->kind == IO_WRITE);
	(void)pthread_mutex_destroy(&t->lock);
	free(t);
}

static void raise_to(_Atomic uint64_t *at, uint64_t to)
{
	uint64_t is = atomic_load(at);

	while (is < to && !atomic_compare_exchange_weak(at, &is, to))
		;
}

/* Record a write for the next sync, in case the write ended inside the file's size. */
static void file_wrote(struct rados_file *f, uint64_t end)
{
	raise_to(&f->inside, end);
	atomic_store(&f->wrote, true);
}

/* Complete the operation.  The operation's memory, file and context then belong to the caller. */
static void rados_task_end(struct task *t, int64_t res)
{
	struct rados_ctx *c = t->ctx;
	struct io_op *op = t->op;

	if (res < 0 && t->kind != IO_READ && t->kind != IO_WRITE)
		file_wrote(t->file, t->reach); /* record the write again, so that the next sync
					        * retries */
	if (res < 0 && res != -ECANCELED) {
		res = lib_err((int)res, t->file->shown);
		log_warn("%s", err_text());
	}
	(void)pthread_mutex_lock(&c->lock);
	op->ctx_data = NULL;
	(void)pthread_mutex_unlock(&c->lock);
	op->res = res;
	op->moved = res > 0 ? (uint64_t)res : 0;
	task_put(t);
	io_inbox_push(&c->in, op);
}

void task_head_done(struct task *t, int err)
{
	if (err == 0 && t->kind == IO_WRITE)
		raise_to(&t->file->size, t->reach);
	rados_task_end(t, err < 0 ? err : (int64_t)t->end);
}

/* ------------------------------------------------------------------ pieces */

/* Let the kernel copy one byte of each page; this also works for windows on devices. */
static int memory_probe(const struct piece *p, uintptr_t page, bool write)
{
	char *end = p->buf + p->len, byte = 0;
	int r = 0;

	for (char *at = p->buf; at < end && r == 0;) {
		r = write ? uaccess_read(&byte, at, 1) : uaccess_write(at, &byte, 1);
		at += page - (uintptr_t)at % page;
	}
	return r;
}

/* Check that the memory is mapped, because librados would crash on unmapped memory. */
static int memory_check(const struct piece *p, bool write)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)p->buf & ~(page - 1);
	int advice = write ? POPULATE_READ : POPULATE_WRITE;

	if (madvise((void *)from, (uintptr_t)p->buf + p->len - from, advice) == 0)
		return 0;
	if (errno == EFAULT || errno == ENOMEM)
		return -EFAULT;
	/* EINVAL: protected memory, a window on a device, or a kernel before 5.14. */
	return memory_probe(p, page, write);
}

static int piece_start(struct piece *p, const struct extent *e)
{
	struct task *t = p->task;
	struct rados_file *f = t->file;
	char name[LAYOUT_NAME_MAX + LAYOUT_SUFFIX + 1];
	bool write = t->kind == IO_WRITE;

	if (memory_check(p, write) < 0)
		return -EFAULT;
	layout_name(&f->layout, f->object, e->object, name);
	piece_clean(p, write);
	p->op = write ? lib.rados_create_write_op() : lib.rados_create_read_op();
	if (!p->op || lib.rados_aio_create_completion2(p, rados_done, &p->completion) < 0) {
		p->completion = NULL;
		return -ENOMEM;
	}
	p->got = 0;
	p->result = 0;
	if (write) {
		/* librados copies the bytes here. */
		lib.rados_write_op_write(p->op, p->buf, p->len, e->off);
		return lib.rados_aio_write_op_operate(p->op, f->io, p->completion, name, NULL,
						      LIB_FULL_TRY);
	}
	if (f->guard && p->first)
		lib.rados_read_op_assert_version(p->op, f->version);
	lib.rados_read_op_read(p->op, e->off, p->len, p->buf, &p->got, &p->result);
	return lib.rados_aio_read_op_operate(p->op, f->io, p->completion, name, 0);
}

/* Start as many pieces as possible.  The lock is held. */
static void task_step(struct task *t, bool woken)
{
	bool write = t->kind == IO_WRITE;

	for (unsigned i = 0; i < PIECES_MAX && t->err == 0 && t->at < t->end; i++) {
		struct piece *p = &t->pieces[i];
		struct extent e;
		int r;

		if (p->running)
			continue;
		e = layout_at(&t->file->layout, t->op->off + t->at,
			      MIN(t->end - t->at, write ? PIECE_WRITE : PIECE_READ));
		if (!budget_take(t, e.len, woken))
			return;
		p->task = t;
		p->buf = (char *)t->op->buf + t->at;
		p->len = e.len;
		p->object = e.object;
		p->first = e.object == 0;
		t->elsewhere |= !p->first;
		p->running = true;
		t->nr_running++;
		atomic_fetch_add(&t->refs, 1);
		t->at += e.len;
		r = piece_start(p, &e);
		if (r < 0) { /* rados_done() will not be called */
			t->err = r;
			p->running = false;
			t->nr_running--;
			atomic_fetch_sub(&t->refs, 1);
			budget_give(e.len);
		}
	}
}

static bool needs_head(const struct task *t)
{
	const struct rados_file *f = t->file;

	if (!f->layout.unit)
		return false;
	if (t->kind == IO_READ)
		return f->guard && t->elsewhere;
	return t->kind != IO_WRITE || t->reach > atomic_load(&f->size);
}

/* If all pieces have ended, set the next stage and return true.  The lock is held. */
static bool pieces_over(struct task *t)
{
	if (t->stage != TASK_PIECES || t->nr_running || (t->err == 0 && t->at < t->end))
		return false;
	t->stage = t->err == 0 && needs_head(t) ? TASK_HEAD : TASK_ENDED;
	return true;
}

/* Enter the stage that pieces_over() has set.  No lock is held: nobody else changes the stage
 * now. */
static void rados_task_go_on(struct task *t)
{
	if (t->stage == TASK_HEAD) {
		head_add(t->file, t);
	} else if (t->err == 0) {
		if (t->kind == IO_WRITE)
			file_wrote(t->file, t->reach);
		task_head_done(t, 0);
	} else {
		rados_task_end(t, t->err);
	}
}

/*
 * Cancel all pieces in flight; t->err is set, so no new ones start.  The lock is held, so the file
 * stays valid: librados calls rados_done() only on its own threads, never from within a call.
 */
static void task_drop(struct task *t)
{
	for (unsigned i = 0; i < PIECES_MAX; i++)
		if (t->pieces[i].running)
			(void)lib.rados_aio_cancel(t->file->io, t->pieces[i].completion);
}

/* Start pieces for which there is room now. */
static void wake_tasks(void)
{
	struct task *t;

	while ((t = budget_next())) {
		bool over;

		(void)pthread_mutex_lock(&t->lock);
		task_step(t, true);
		over = pieces_over(t);
		(void)pthread_mutex_unlock(&t->lock);
		if (over)
			rados_task_go_on(t);
		task_put(t);
	}
}

/* Evaluate a finished piece; missing bytes of a striped file are zeros.  The task's lock is not
 * held. */
static int piece_result(struct piece *p, int r, bool write)
{
	const struct rados_file *f = p->task->file;

	if (write || (r < 0 && r != -ENOENT))
		return MIN(r, 0);
	if (r >= 0 && p->result < 0)
		return p->result;
	/* A missing object is a hole of a striped file, but only if the first object exists. */
	if (r == -ENOENT && (p->first || !f->layout.unit))
		return f->guard ? -ESTALE : -ENOENT;
	if (r == -ENOENT)
		p->got = 0;
	memset(p->buf + p->got, 0, p->len - p->got);
	return 0;
}

/* Check that the object was not written since the file's first read of it.  Return 0, -ESTALE or
 * -ENOMEM. */
static int piece_seen(const struct piece *p, void *completion, int r)
{
	struct rados_file *f = p->task->file;

	if (!f->guard || p->first || !f->layout.unit)
		return 0;
	return seen_check(&f->seen, p->object,
			  r == -ENOENT ? SEEN_HOLE : lib.rados_aio_get_version(completion));
}

/* Completion callback, on a thread of librados; several may run at once. */
static void rados_done(void *completion, void *arg)
{
	struct piece *p = arg;
	struct task *t = p->task;
	bool write = t->kind == IO_WRITE, over, drop;
	uint64_t len = p->len;
	int got = lib.rados_aio_get_return_value(completion), r = piece_result(p, got, write);

	if (r == 0 && !write)
		r = piece_seen(p, completion, got);
	(void)pthread_mutex_lock(&t->lock);
	p->running = false;
	t->nr_running--;
	drop = r < 0 && t->err == 0;
	if (drop)
		t->err = r;
	budget_give(len);
	task_step(t, false);
	over = pieces_over(t);
	/* Cancel the other pieces of a failed operation. */
	if (drop && !over)
		task_drop(t);
	(void)pthread_mutex_unlock(&t->lock);
	if (over)
		rados_task_go_on(t);
	task_put(t);
	wake_tasks();
}

static void task_cancel(struct task *t)
{
	bool over, in_head, waited;

	(void)pthread_mutex_lock(&t->lock);
	in_head = t->stage == TASK_HEAD;
	if (t->stage == TASK_PIECES && t->err == 0)
		t->err = -ECANCELED;
	waited = budget_forget(t);
	over = pieces_over(t);
	if (t->err < 0)
		task_drop(t);
	(void)pthread_mutex_unlock(&t->lock);
	if (waited)
		(void)atomic_fetch_sub(&t->refs, 1); /* the caller still holds another reference */
	if (in_head && head_remove(t->file, t))
		rados_task_end(t, -ECANCELED);
	else if (over)
		rados_task_go_on(t);
}

/* -------------------------------------------------------------------- start */

static void rados_op_end(struct rados_ctx *c, struct io_op *op, int64_t res)
{
	op->res = res;
	io_inbox_push(&c->in, op);
}

static void rados_start_op(struct rados_ctx *c, struct io_op *op)
{
	struct rados_file *f = rados_file_of(op->file);
	uint64_t size = atomic_load(&f->size), len = op->len;
	bool write = op->kind == IO_WRITE, over;
	struct task *t;

	if (op->kind == IO_READ)
		len = op->off < size ? MIN(op->len, size - op->off) : 0;
	else if (!write)
		len = 0;
	if (!len && (op->kind == IO_READ || write || !f->layout.unit || !atomic_load(&f->wrote))) {
		rados_op_end(c, op, 0);
		return;
	}
	if (write && (op->off > layout_size_max(&f->layout) ||
		      len > layout_size_max(&f->layout) - op->off)) {
		rados_op_end(c, op, -EFBIG);
		return;
	}
	t = calloc(1, sizeof(*t));
	if (!t) {
		rados_op_end(c, op, -ENOMEM);
		return;
	}
	(void)pthread_mutex_init(&t->lock, NULL);
	t->refs = 2; /* one reference is for this function */
	t->op = op;
	t->kind = op->kind;
	t->ctx = c;
	t->file = f;
	t->end = len;
	if (write) {
		t->reach = op->off + len;
		atomic_store(&f->wrote, true);
	} else if (op->kind != IO_READ) {
		atomic_store(&f->wrote, false);
		t->reach = atomic_exchange(&f->inside, 0);
	}
	(void)pthread_mutex_lock(&c->lock);
	op->ctx_data = t;
	(void)pthread_mutex_unlock(&c->lock);
	(void)pthread_mutex_lock(&t->lock);
	task_step(t, false);
	over = pieces_over(t);
	(void)pthread_mutex_unlock(&t->lock);
	if (over)
		rados_task_go_on(t);
	task_put(t);
}

/* ----------------------------------------------------------------- context */

static int rados_ctx_new(unsigned depth, struct io_ctx **ret)
{
	struct rados_ctx *c = calloc(1, sizeof(*c));

	if (!c)
		return err_set(ENOMEM, "out of memory");
	c->base = (struct io_ctx){ .ops = &rados_backend, .depth = depth };
	io_inbox_init(&c->in);
	(void)pthread_mutex_init(&c->lock, NULL);
	*ret = &c->base;
	return 0;
}

static void rados_ctx_free(struct io_ctx *base)
{
	struct rados_ctx *c = rados_ctx_of(base);

	io_inbox_done(&c->in);
	(void)pthread_mutex_destroy(&c->lock);
	free(c);
}

static int rados_queue(struct io_ctx *base, struct io_op *op)
{
	struct rados_ctx *c = rados_ctx_of(base);

	if (base->nr_ops >= base->depth)
		return -EAGAIN;
	io_op_begin(op);
	op->ctx_data = NULL;
	io_fifo_push(&c->queued, op);
	base->nr_ops++;
	return 0;
}

static int rados_flush(struct io_ctx *base)
{
	struct rados_ctx *c = rados_ctx_of(base);
	struct io_op *op;

	while ((op = io_fifo_pop(&c->queued))) {
		if (io_op_canceled(op))
			rados_op_end(c, op, -ECANCELED);
		else
			rados_start_op(c, op);
	}
	/* Pieces that failed to start have returned their room. */
	wake_tasks();
	return 0;
}

static unsigned rados_reap(struct io_ctx *base, struct io_op **ret, unsigned max)
{
	unsigned n = base->nr_ops ? io_inbox_reap(&rados_ctx_of(base)->in, ret, max) : 0;

	base->nr_ops -= n;
	return n;
}

static void rados_cancel(struct io_ctx *base, struct io_op *op)
{
	struct rados_ctx *c = rados_ctx_of(base);
	struct task *t;

	io_op_set_canceled(op);
	(void)pthread_mutex_lock(&c->lock);
	t = op->ctx_data;
	if (t)
		(void)atomic_fetch_add(&t->refs, 1);
	(void)pthread_mutex_unlock(&c->lock);
	if (!t)
		return;
	task_cancel(t);
	task_put(t);
}

static int rados_arm(struct io_ctx *base, int efd, bool armed)
{
	io_inbox_arm(&rados_ctx_of(base)->in, efd, armed);
	return 0;
}

const struct io_backend rados_backend = {
	.name = "rados",
	.ctx_new = rados_ctx_new,
	.ctx_free = rados_ctx_free,
	.queue = rados_queue,
	.flush = rados_flush,
	.reap = rados_reap,
	.cancel = rados_cancel,
	.arm = rados_arm,
};
