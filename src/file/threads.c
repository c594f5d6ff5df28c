/* SPDX-License-Identifier: MIT */
/*
 * File operations by pread(2) and pwrite(2) on threads; works everywhere.
 *
 * One pool of threads serves all I/O contexts of the process.  The pool grows while operations find
 * no idle thread, and a thread that finds no work for IDLE_NS ends.  One thread stays while there
 * is an I/O context, so that operations can always start.  When the last I/O context is freed, all
 * threads end and are joined; nothing is in flight then, so none of them is in a system call.  An
 * operation that hangs keeps its I/O context, and with it the pool.  If NR_THREADS_MAX operations
 * hang, no thread is free for others, which can only be cancelled.
 *
 * Each thread sleeps on a condition variable of its own, and the last to fall asleep is woken
 * first.  With a shared one, pthread_cond_signal(3) may wake none of several sleepers: glibc can
 * lose a signal (sourceware.org bug 25847; Debian 12 has it), and the operation would wait for the
 * next.
 *
 * Lock order: life_lock, pool.lock.  An inbox's lock is never held together with these.
 */
#include <assert.h>
#include <pthread.h>
#include <string.h>
#include <sys/uio.h>

#include "base/err.h"
#include "base/thread.h"
#include "file/inbox.h"
#include "file/local.h"
#include "file/threads.h"

#define NR_THREADS_MAX 64
#define IDLE_NS (2 * NSEC_PER_SEC)

struct threads_ctx {
	struct io_ctx base;
	struct io_fifo queued; /* operations that wait for flush(); only the context's user
			        * touches the list */

	struct io_inbox inbox; /* pool threads push finished operations here */
};

struct pool_thread {
	struct pool_thread *next; /* next in pool.asleep or pool.gone */
	pthread_t thread;
	pthread_cond_t wake;
	bool woken; /* the thread was woken since it fell asleep */
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t none_left; /* signalled when nr_threads drops to 0 */
	struct io_fifo queued;
	unsigned nr_queued;
	unsigned nr_threads; /* threads that take work */
	unsigned nr_idle;
	bool stop;
	struct pool_thread *asleep; /* sleeping and not woken yet; the head fell asleep last */
	struct pool_thread *gone;   /* ended threads that must be joined */
} pool = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Serializes creation and destruction of the pool. */
static pthread_mutex_t life_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned nr_ctxs;

static struct threads_ctx *threads_ctx_of(struct io_ctx *ctx)
{
	return container_of(ctx, struct threads_ctx, base);
}

/* ------------------------------------------------------------- operations */

/* Ignore NOWAIT for files in memory: their bytes are resident, but they lack RWF_NOWAIT. */
static ssize_t call_read(const struct io_op *op, size_t len)
{
	struct iovec iov = { .iov_base = io_op_buf(op), .iov_len = len };
	off_t off = (off_t)io_op_off(op);

	if (op->flags & IO_OP_NOWAIT && !(op->file->caps & FILE_RESIDENT))
		return preadv2(io_op_fd(op), &iov, 1, off, RWF_NOWAIT);
	return pread(io_op_fd(op), iov.iov_base, len, off);
}

/* Make one system call for the operation. */
static int64_t threads_call(const struct io_op *op)
{
	int64_t ask = io_op_ask(op);
	ssize_t n;

	if (ask < 0)
		return ask;
	switch (op->kind) {
	case IO_READ:
		n = call_read(op, (size_t)ask);
		break;
	case IO_WRITE:
		n = pwrite(io_op_fd(op), io_op_buf(op), (size_t)ask, (off_t)io_op_off(op));
		break;
	case IO_FSYNC:
		n = fsync(io_op_fd(op));
		break;
	default:
		n = fdatasync(io_op_fd(op));
		break;
	}
	return n < 0 ? -errno : n;
}

static void perform(struct io_op *op)
{
	/* Pause after EAGAIN from a blocking call: some resource is short for a moment. */
	static const struct timespec moment = { .tv_nsec = (long)NSEC_PER_MSEC };
	int64_t res = threads_call(op);

	while (!io_op_advance(op, res)) {
		if (res == -EAGAIN)
			(void)nanosleep(&moment, NULL);
		res = threads_call(op);
	}
}

/* ------------------------------------------------------------------- pool */

/* Wake the thread that fell asleep last.  Return false if none sleeps.  pool.lock is held. */
static bool threads_wake_one(void)
{
	struct pool_thread *w = pool.asleep;

	if (!w)
		return false;
	pool.asleep = w->next;
	w->woken = true;
	(void)pthread_cond_signal(&w->wake);
	return true;
}

/* Wait until the thread is woken or the given time. Return 0 or ETIMEDOUT. pool.lock is held. */
static int threads_wait_idle(struct pool_thread *w, uint64_t until)
{
	struct pool_thread **at = &pool.asleep;
	int r = 0;

	w->woken = false;
	w->next = pool.asleep;
	pool.asleep = w;
	while (!w->woken && r != ETIMEDOUT)
		r = cond_wait_until(&w->wake, &pool.lock, until);
	if (w->woken)
		return 0;
	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	return r;
}

/* Return the next operation, or NULL if the calling thread must end.  pool.lock is held. */
static struct io_op *next_op(struct pool_thread *w)
{
	uint64_t until = now_ns() + IDLE_NS;

	while (!pool.queued.head) {
		bool last = pool.nr_threads == 1;
		int r;

		if (pool.stop)
			return NULL;
		pool.nr_idle++;
		r = threads_wait_idle(w, last ? PST_NO_DEADLINE : until);
		pool.nr_idle--;
		if (r == ETIMEDOUT && !pool.queued.head && pool.nr_threads > 1)
			return NULL;
	}
	pool.nr_queued--;
	return io_fifo_pop(&pool.queued);
}

static void *threads_work(void *arg)
{
	struct pool_thread *w = arg;
	struct io_op *op;

	(void)pthread_setname_np(pthread_self(), "pst-io");
	(void)pthread_mutex_lock(&pool.lock);
	pool.nr_idle--; /* threads_spawn() has counted this thread as idle */
	while ((op = next_op(w))) {
		struct threads_ctx *ctx = op->ctx_data;

		(void)pthread_mutex_unlock(&pool.lock);
		perform(op);
		io_inbox_push(&ctx->inbox, op);
		(void)pthread_mutex_lock(&pool.lock);
	}
	w->next = pool.gone;
	pool.gone = w;
	if (!--pool.nr_threads)
		(void)pthread_cond_signal(&pool.none_left);
	(void)pthread_mutex_unlock(&pool.lock);
	return NULL;
}

static void thread_free(struct pool_thread *w)
{
	(void)pthread_cond_destroy(&w->wake);
	free(w);
}

/* Create a thread.  Return 0, or -EAGAIN with a sentence.  pool.lock is held. */
static int threads_spawn(void)
{
	struct pool_thread *w = malloc(sizeof(*w));
	int r;

	if (!w)
		return err_set(EAGAIN, "no memory to start a thread for file operations");
	cond_init_monotonic(&w->wake);
	r = thread_start(&w->thread, threads_work, w);
	if (r < 0) {
		thread_free(w);
		return r;
	}
	pool.nr_threads++;
	/* Count the new thread as idle: it is about to take one of the queued operations. */
	pool.nr_idle++;
	return 0;
}

/*
 * Create threads until every queued operation has an idle thread, or creation fails.  At least one
 * thread exists already and will run the rest.  pool.lock is held.
 */
static void threads_grow(void)
{
	while (pool.nr_queued > pool.nr_idle && pool.nr_threads < NR_THREADS_MAX)
		if (threads_spawn() < 0)
			break;
}

/* Join threads that have ended.  Quick: each is about to return. */
static void join_gone(struct pool_thread *w)
{
	struct pool_thread *next;

	for (; w; w = next) {
		next = w->next;
		(void)pthread_join(w->thread, NULL);
		thread_free(w);
	}
}

static int threads_pool_start(void)
{
	int r;

	cond_init_monotonic(&pool.none_left);
	(void)pthread_mutex_lock(&pool.lock);
	pool.stop = false;
	r = threads_spawn();
	(void)pthread_mutex_unlock(&pool.lock);
	if (r < 0)
		(void)pthread_cond_destroy(&pool.none_left);
	return r;
}

static void threads_pool_stop(void)
{
	(void)pthread_mutex_lock(&pool.lock);
	pool.stop = true;
	while (threads_wake_one())
		;
	while (pool.nr_threads)
		(void)pthread_cond_wait(&pool.none_left, &pool.lock);
	(void)pthread_mutex_unlock(&pool.lock);
	join_gone(TAKE_PTR(pool.gone));
	(void)pthread_cond_destroy(&pool.none_left);
}

static int pool_get(void)
{
	int r = 0;

	(void)pthread_mutex_lock(&life_lock);
	if (!nr_ctxs)
		r = threads_pool_start();
	if (r == 0)
		nr_ctxs++;
	(void)pthread_mutex_unlock(&life_lock);
	return r;
}

static void threads_pool_put(void)
{
	(void)pthread_mutex_lock(&life_lock);
	if (!--nr_ctxs)
		threads_pool_stop();
	(void)pthread_mutex_unlock(&life_lock);
}

/* ------------------------------------------------------------------ I/O contexts */

static int threads_check(void)
{
	return 0;
}

static int threads_ctx_new(unsigned depth, struct io_ctx **ret)
{
	struct threads_ctx *ctx = calloc(1, sizeof(*ctx));
	int r;

	if (!ctx)
		return err_set(ENOMEM, "no memory for an I/O context of threads");
	r = pool_get();
	if (r < 0) {
		free(ctx);
		return r;
	}
	ctx->base = (struct io_ctx){ .ops = &threads_backend, .depth = depth };
	io_inbox_init(&ctx->inbox);
	*ret = &ctx->base;
	return 0;
}

static void threads_ctx_free(struct io_ctx *base)
{
	struct threads_ctx *ctx = threads_ctx_of(base);

	io_inbox_done(&ctx->inbox);
	free(ctx);
	threads_pool_put();
}

void threads_take(struct io_ctx *base, struct io_op *op)
{
	struct threads_ctx *ctx = threads_ctx_of(base);

	op->ctx_data = ctx;
	io_fifo_push(&ctx->queued, op);
	base->nr_ops++;
}

static int threads_queue(struct io_ctx *base, struct io_op *op)
{
	if (base->nr_ops >= base->depth)
		return -EAGAIN;
	io_op_begin(op);
	threads_take(base, op);
	return 0;
}

/* Run NOWAIT operations at once on this thread: a pool thread would not be faster. */
static void run_nowait(struct threads_ctx *ctx)
{
	struct io_op *op, *next;

	for (op = ctx->queued.head; op; op = next) {
		next = op->next;
		if (!(op->flags & IO_OP_NOWAIT))
			continue;
		(void)io_fifo_remove(&ctx->queued, op);
		perform(op);
		io_inbox_push(&ctx->inbox, op);
	}
}

static int threads_flush(struct io_ctx *base)
{
	struct threads_ctx *ctx = threads_ctx_of(base);
	struct pool_thread *gone;
	struct io_op *op;
	unsigned nr = 0;

	run_nowait(ctx);
	if (!ctx->queued.head)
		return 0;
	(void)pthread_mutex_lock(&pool.lock);
	for (; (op = io_fifo_pop(&ctx->queued)); nr++)
		io_fifo_push(&pool.queued, op);
	pool.nr_queued += nr;
	threads_grow();
	for (unsigned i = 0; i < nr && threads_wake_one(); i++)
		;
	gone = TAKE_PTR(pool.gone);
	(void)pthread_mutex_unlock(&pool.lock);
	join_gone(gone);
	return 0;
}

static unsigned threads_reap(struct io_ctx *base, struct io_op **ret, unsigned max)
{
	unsigned n = io_inbox_reap(&threads_ctx_of(base)->inbox, ret, max);

	base->nr_ops -= n;
	return n;
}

static int threads_wait(struct io_ctx *base, unsigned min, uint64_t deadline_ns)
{
	if (!base->nr_ops)
		return 0; /* nothing is queued or in flight */
	return io_inbox_wait(&threads_ctx_of(base)->inbox, MIN(MAX(min, 1u), base->nr_ops),
			     deadline_ns);
}

static void threads_cancel(struct io_ctx *base, struct io_op *op)
{
	struct threads_ctx *ctx = threads_ctx_of(base);
	bool waits = io_fifo_remove(&ctx->queued, op);

	/* An operation in a system call ends when that call returns; the flag prevents another
	 * call. */
	io_op_set_canceled(op);
	if (!waits) {
		(void)pthread_mutex_lock(&pool.lock);
		waits = io_fifo_remove(&pool.queued, op);
		if (waits)
			pool.nr_queued--;
		(void)pthread_mutex_unlock(&pool.lock);
	}
	if (waits) {
		op->res = -ECANCELED;
		io_inbox_push(&ctx->inbox, op);
	}
}

static int threads_arm(struct io_ctx *base, int efd, bool armed)
{
	io_inbox_arm(&threads_ctx_of(base)->inbox, efd, armed);
	return 0;
}

const struct io_backend threads_backend = {
	.name = "threads",
	.backend = PST_BACKEND_THREADS,
	.check = threads_check,
	.ctx_new = threads_ctx_new,
	.ctx_free = threads_ctx_free,
	.queue = threads_queue,
	.flush = threads_flush,
	.reap = threads_reap,
	.wait = threads_wait,
	.cancel = threads_cancel,
	.arm = threads_arm,
};
