/* SPDX-License-Identifier: MIT */
/*
 * Implementation of provider.h.
 *
 * An I/O context has a list of waiting operations and threads that execute the due ones.  A step
 * of an operation is one system call; if io_op_advance() says that more is to come, the
 * operation returns to the list with a new time.
 *
 * An operation held by a gate is never due.  A change of the gate wakes the threads.
 *
 * A file is a local file with other operations, so tests find their bytes on the disk, and
 * operations on a hanging file system hang here, too.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#include "base/err.h"
#include "base/list.h"
#include "base/log.h"
#include "base/thread.h"
#include "file/inbox.h"
#include "file/local.h"
#include "file/op.h"
#include "provider.h"

#define NR_THREADS_MAX 160u /* an operation may block each of them in the kernel */
#define HANG_LOOK_NS NSEC_PER_MSEC

struct test_file {
	struct file file;
	struct file *below;
	struct test_gate *gate; /* gate of the file; NULL: none */
};

/* The I/O context's state of an operation, from queue() to its completion. */
struct step {
	uint64_t due;
	bool hangs;
	bool at_gate; /* counted in gate->held[] */
};

struct test_ctx {
	struct io_ctx base;
	struct list link;      /* entry of all.list, for gates */
	struct io_fifo queued; /* not flushed yet; used by the owner only */

	pthread_mutex_t lock; /* guards the members below */
	pthread_cond_t work;
	struct io_fifo waiting;
	uint64_t random;
	pthread_t threads[NR_THREADS_MAX];
	unsigned nr_threads, nr_idle;
	bool stop;
	struct io_inbox inbox; /* its lock is taken after the context's */
};

static struct {
	pthread_mutex_t lock;
	struct test_plan plan;
	unsigned nr_ctxs; /* contexts made so far */
} state = { .lock = PTHREAD_MUTEX_INITIALIZER, .plan = TEST_PLAN };

/* State of all contexts; its lock is taken before a context's. */
static struct {
	pthread_mutex_t lock;
	struct list list;
} all = { PTHREAD_MUTEX_INITIALIZER, LIST_INIT(all.list) };

static _Thread_local struct test_gate *gate_now;

static atomic_uint ctxs, hanging, files;
static _Atomic uint64_t steps, fail_at;

/* -------------------------------------------------------------------- plan */

static struct test_plan plan_now(void)
{
	struct test_plan p;

	(void)pthread_mutex_lock(&state.lock);
	p = state.plan;
	(void)pthread_mutex_unlock(&state.lock);
	return p;
}

void test_provider_plan(const struct test_plan *plan)
{
	(void)pthread_mutex_lock(&state.lock);
	state.plan = *plan;
	atomic_store(&fail_at, plan->fail_nth ? atomic_load(&steps) + plan->fail_nth : 0);
	(void)pthread_mutex_unlock(&state.lock);
}

unsigned test_provider_ctxs(void)
{
	return atomic_load(&ctxs);
}

unsigned test_provider_hanging(void)
{
	return atomic_load(&hanging);
}

uint64_t test_provider_steps(void)
{
	return atomic_load(&steps);
}

unsigned test_provider_files(void)
{
	return atomic_load(&files);
}

static struct test_file *file_of(const struct file *f)
{
	return container_of((struct file *)f, struct test_file, file);
}

/* ------------------------------------------------------------------- gates */

static enum test_bar bar_of(const struct io_op *op)
{
	if (io_op_is_sync(op))
		return TEST_BAR_SYNC;
	return op->kind == IO_WRITE ? TEST_BAR_WRITE : TEST_BAR_READ;
}

static enum test_result gate_result(const struct io_op *op)
{
	const struct test_gate *g = file_of(op->file)->gate;

	return g ? atomic_load(&g->result[bar_of(op)]) : TEST_DONE;
}

/* Return true if a gate holds the operation, and update held[].  Call it with the lock held. */
static bool gate_keeps(struct io_op *op)
{
	struct test_gate *g = file_of(op->file)->gate;
	struct step *s = op->ctx_data;
	bool keeps = gate_result(op) == TEST_SHUT;

	if (keeps != s->at_gate)
		atomic_fetch_add(&g->held[bar_of(op)], keeps ? 1 : -1u);
	s->at_gate = keeps;
	return keeps;
}

void test_gate_use(struct test_gate *gate)
{
	gate_now = gate;
}

void test_gate_set(struct test_gate *gate, enum test_bar bar, enum test_result result)
{
	struct list *e;

	atomic_store(&gate->result[bar], result);
	(void)pthread_mutex_lock(&all.lock);
	list_for_each (e, &all.list) {
		struct test_ctx *ctx = list_entry(e, struct test_ctx, link);

		(void)pthread_mutex_lock(&ctx->lock);
		if (ctx->waiting.head)
			(void)pthread_cond_broadcast(&ctx->work);
		(void)pthread_mutex_unlock(&ctx->lock);
	}
	(void)pthread_mutex_unlock(&all.lock);
}

/* ------------------------------------------------------------------- steps */

/* Return a random number below the limit.  Call it with the lock held. */
static uint64_t below(struct test_ctx *ctx, uint64_t n)
{
	uint64_t x = ctx->random;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	ctx->random = x;
	return x % n;
}

static int64_t call(const struct io_op *op, uint64_t ask)
{
	const struct local_file *lf = local_of(file_of(op->file)->below);
	int fd = op->flags & IO_OP_DIRECT ? lf->fd_direct : lf->fd;
	struct iovec iov = { io_op_buf(op), ask };
	off_t off = (off_t)io_op_off(op);
	ssize_t n;

	switch (op->kind) {
	case IO_READ:
		if (op->flags & IO_OP_NOWAIT && !(op->file->caps & FILE_RESIDENT))
			n = preadv2(fd, &iov, 1, off, RWF_NOWAIT);
		else
			n = pread(fd, iov.iov_base, iov.iov_len, off);
		break;
	case IO_WRITE:
		n = pwrite(fd, iov.iov_base, iov.iov_len, off);
		break;
	case IO_FSYNC:
		n = fsync(fd);
		break;
	default:
		n = fdatasync(fd);
		break;
	}
	return n < 0 ? -errno : n;
}

/* Make one step.  If the plan splits operations, move between 1/16 and all of the remaining
 * bytes. */
static int64_t take_step(const struct io_op *op, const struct test_plan *p, uint64_t sixteenths)
{
	int64_t ask = io_op_ask(op);
	uint64_t unit = op->flags & IO_OP_DIRECT ? op->file->off_align : 1, part;

	if (ask < 0)
		return ask;
	if (atomic_fetch_add(&steps, 1) + 1 == atomic_load(&fail_at))
		return p->fail_err;
	if (op->flags & IO_OP_DIRECT && p->refuse_direct)
		return -EINVAL;
	if (gate_result(op) == TEST_ERROR)
		return -EIO;
	if (gate_result(op) == TEST_SHORT && !io_op_is_sync(op)) {
		if (!op->moved)
			return call(op, align_down(op->len / 2, unit));
		return op->kind == IO_WRITE ? -ENOSPC : 0;
	}
	if (p->split && !io_op_is_sync(op) && !(op->flags & IO_OP_NOWAIT)) {
		part = align_down((uint64_t)ask * (sixteenths + 1) / 16, unit);
		ask = part ? (int64_t)part : ask;
	}
	return call(op, (uint64_t)ask);
}

/* ----------------------------------------------------------------- threads */

static void *work(void *arg);

bool test_provider_runs(void *(*fn)(void *))
{
	return fn == work;
}

/* Wake or create a thread for a waiting operation.  Call it with the lock held. */
static void have_thread(struct test_ctx *ctx)
{
	/* Wake all threads: glibc may lose a signal to one of several (bug 25847). */
	if (ctx->nr_idle)
		(void)pthread_cond_broadcast(&ctx->work);
	else if (ctx->nr_threads < NR_THREADS_MAX &&
		 thread_start(&ctx->threads[ctx->nr_threads], work, ctx) == 0)
		ctx->nr_threads++;
}

/* Queue an operation whose next step is due at @due.  Call it with the lock held. */
static void put(struct test_ctx *ctx, struct io_op *op, uint64_t due)
{
	struct step *s = op->ctx_data;

	s->due = due;
	io_fifo_push(&ctx->waiting, op);
	have_thread(ctx);
}

/* Complete an operation.  Call it with the lock held. */
static void end(struct test_ctx *ctx, struct io_op *op)
{
	struct step *s = op->ctx_data;

	if (s->hangs)
		atomic_fetch_sub(&hanging, 1);
	if (s->at_gate)
		atomic_fetch_sub(&file_of(op->file)->gate->held[bar_of(op)], 1);
	free(s);
	op->ctx_data = NULL;
	io_inbox_push(&ctx->inbox, op);
}

/* Return the first operation that is due; else NULL and the time of the next one.  Call it with
 * the lock held. */
static struct io_op *next(struct test_ctx *ctx, uint64_t *ret_at)
{
	struct io_op *first = NULL;

	for (struct io_op *op = ctx->waiting.head; op; op = op->next)
		if (!gate_keeps(op) && (!first || ((struct step *)op->ctx_data)->due <
							  ((struct step *)first->ctx_data)->due))
			first = op;
	*ret_at = first ? ((struct step *)first->ctx_data)->due : UINT64_MAX;
	return *ret_at <= now_ns() ? first : NULL;
}

static void wait_until(struct test_ctx *ctx, uint64_t at)
{
	struct timespec ts = { .tv_sec = (time_t)(at / NSEC_PER_SEC),
			       .tv_nsec = (long)(at % NSEC_PER_SEC) };

	ctx->nr_idle++;
	if (at == UINT64_MAX)
		(void)pthread_cond_wait(&ctx->work, &ctx->lock);
	else
		(void)pthread_cond_timedwait(&ctx->work, &ctx->lock, &ts);
	ctx->nr_idle--;
}

static uint64_t delay_of(struct test_ctx *ctx, const struct test_plan *p)
{
	return p->delay_us ? below(ctx, p->delay_us * UINT64_C(1000)) : 0;
}

/* Return true if the operation hangs by this plan; then queue it again, to be checked later. */
static bool still_hangs(struct test_ctx *ctx, struct io_op *op, const struct test_plan *p)
{
	struct step *s = op->ctx_data;
	bool hangs = !io_op_is_sync(op) && op->off == p->hang_off &&
		     (p->deaf || !io_op_canceled(op));

	if (hangs != s->hangs)
		(void)(hangs ? atomic_fetch_add(&hanging, 1) : atomic_fetch_sub(&hanging, 1));
	s->hangs = hangs;
	if (hangs)
		put(ctx, op, now_ns() + HANG_LOOK_NS);
	return hangs;
}

static void *work(void *arg)
{
	struct test_ctx *ctx = arg;
	struct io_op *op;
	uint64_t at;

	(void)pthread_setname_np(pthread_self(), "pst-test");
	(void)pthread_mutex_lock(&ctx->lock);
	while (!ctx->stop) {
		struct test_plan p = plan_now();
		uint64_t sixteenths = below(ctx, 16);
		int64_t res;

		op = next(ctx, &at);
		if (!op) {
			wait_until(ctx, at);
			continue;
		}
		(void)io_fifo_remove(&ctx->waiting, op);
		if (still_hangs(ctx, op, &p))
			continue;
		/* This step may block in the kernel: have a thread for the other operations. */
		if (ctx->waiting.head)
			have_thread(ctx);
		(void)pthread_mutex_unlock(&ctx->lock);
		res = take_step(op, &p, sixteenths);
		(void)pthread_mutex_lock(&ctx->lock);
		if (io_op_advance(op, res))
			end(ctx, op);
		else
			put(ctx, op, now_ns() + delay_of(ctx, &p));
	}
	(void)pthread_mutex_unlock(&ctx->lock);
	return NULL;
}

/* -------------------------------------------------------------- I/O context */

static struct test_ctx *ctx_of(struct io_ctx *ctx)
{
	return container_of(ctx, struct test_ctx, base);
}

static int new_ctx(const struct io_backend *kind, unsigned depth, struct io_ctx **ret)
{
	struct test_plan p = plan_now();
	pthread_condattr_t attr;
	struct test_ctx *ctx;

	if (p.ctx_err)
		return err_set(p.ctx_err, "the plan has no I/O context");
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return err_set(ENOMEM, "out of memory");
	ctx->base = (struct io_ctx){ .ops = kind, .depth = depth };
	io_inbox_init(&ctx->inbox);
	(void)pthread_mutex_lock(&state.lock);
	ctx->random = (p.seed ? p.seed : 1) * UINT64_C(0x9e3779b97f4a7c15) + state.nr_ctxs++;
	(void)pthread_mutex_unlock(&state.lock);
	(void)pthread_mutex_init(&ctx->lock, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&ctx->work, &attr);
	(void)pthread_condattr_destroy(&attr);
	atomic_fetch_add(&ctxs, 1);
	(void)pthread_mutex_lock(&all.lock);
	list_add_tail(&all.list, &ctx->link);
	(void)pthread_mutex_unlock(&all.lock);
	*ret = &ctx->base;
	return 0;
}

static void ctx_free(struct io_ctx *base)
{
	struct test_ctx *ctx = ctx_of(base);

	(void)pthread_mutex_lock(&all.lock);
	list_del(&ctx->link);
	(void)pthread_mutex_unlock(&all.lock);
	(void)pthread_mutex_lock(&ctx->lock);
	ctx->stop = true;
	(void)pthread_cond_broadcast(&ctx->work);
	(void)pthread_mutex_unlock(&ctx->lock);
	for (unsigned i = 0; i < ctx->nr_threads; i++)
		(void)pthread_join(ctx->threads[i], NULL);
	(void)pthread_mutex_destroy(&ctx->lock);
	(void)pthread_cond_destroy(&ctx->work);
	io_inbox_done(&ctx->inbox);
	free(ctx);
	atomic_fetch_sub(&ctxs, 1);
}

static int ctx_queue(struct io_ctx *base, struct io_op *op)
{
	struct test_plan p = plan_now();
	struct step *s;

	if (base->nr_ops >= base->depth)
		return -EAGAIN;
	if (io_op_is_sync(op) && p.sync_err)
		return p.sync_err;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	/* The library must give each operation the deadline of its request. */
	if (!op->deadline_ns)
		abort();
	io_op_begin(op);
	op->ctx_data = s;
	io_fifo_push(&ctx_of(base)->queued, op);
	base->nr_ops++;
	return 0;
}

static int ctx_flush(struct io_ctx *base)
{
	struct test_ctx *ctx = ctx_of(base);
	struct test_plan p = plan_now();
	struct io_op *op;

	if (!ctx->queued.head)
		return 0;
	(void)pthread_mutex_lock(&ctx->lock);
	while ((op = io_fifo_pop(&ctx->queued)))
		put(ctx, op, now_ns() + delay_of(ctx, &p));
	/* Without a thread no operation would ever complete. */
	op = ctx->nr_threads ? NULL : ctx->waiting.head;
	while (op) {
		(void)io_fifo_remove(&ctx->waiting, op);
		op->res = -EAGAIN;
		end(ctx, op);
		op = ctx->waiting.head;
	}
	(void)pthread_mutex_unlock(&ctx->lock);
	return 0;
}

static unsigned ctx_reap(struct io_ctx *base, struct io_op **ret, unsigned max)
{
	unsigned n = io_inbox_reap(&ctx_of(base)->inbox, ret, max);

	base->nr_ops -= n;
	return n;
}

/* Return true if a cancel does not reach the waiting operation.  Call it with the lock held. */
static bool is_deaf(const struct test_ctx *ctx, struct io_op *op)
{
	const struct step *s = op->ctx_data;

	if (!io_fifo_has(&ctx->waiting, op))
		return false;
	return gate_keeps(op) ? file_of(op->file)->gate->deaf : s->hangs && plan_now().deaf;
}

static void ctx_cancel(struct io_ctx *base, struct io_op *op)
{
	struct test_ctx *ctx = ctx_of(base);

	(void)pthread_mutex_lock(&ctx->lock);
	/*
	 * Under the lock: otherwise a thread could execute the canceled operation, which no
	 * longer hangs, before it is completed here.
	 */
	io_op_set_canceled(op);
	if (io_fifo_remove(&ctx->queued, op) ||
	    (!is_deaf(ctx, op) && io_fifo_remove(&ctx->waiting, op))) {
		op->res = -ECANCELED;
		end(ctx, op);
	} else if (io_fifo_has(&ctx->waiting, op) && gate_keeps(op)) {
		atomic_fetch_add(&file_of(op->file)->gate->told[bar_of(op)], 1);
	}
	(void)pthread_mutex_unlock(&ctx->lock);
}

static int ctx_arm(struct io_ctx *base, int efd, bool armed)
{
	io_inbox_arm(&ctx_of(base)->inbox, efd, armed);
	return 0;
}

static int test_ctx_new(unsigned depth, struct io_ctx **ret);
static int twin_ctx_new(unsigned depth, struct io_ctx **ret);

#define BACKEND(NEW)                                                                       \
	{                                                                                  \
		.name = "test", .ctx_new = NEW, .ctx_free = ctx_free, .queue = ctx_queue,  \
		.flush = ctx_flush, .reap = ctx_reap, .cancel = ctx_cancel, .arm = ctx_arm \
	}

static const struct io_backend test_backend = BACKEND(test_ctx_new);
static const struct io_backend twin_backend = BACKEND(twin_ctx_new);

static int test_ctx_new(unsigned depth, struct io_ctx **ret)
{
	return new_ctx(&test_backend, depth, ret);
}

static int twin_ctx_new(unsigned depth, struct io_ctx **ret)
{
	return new_ctx(&twin_backend, depth, ret);
}

/* -------------------------------------------------------------------- files */

/* Make a file over @lower; it takes @lower over, even on failure. */
static int new_file(const struct file_ops *ops, struct file *lower, struct file **ret)
{
	struct test_plan p = plan_now();
	struct test_file *f = calloc(1, sizeof(*f));

	if (!f) {
		file_free(lower);
		return err_set(ENOMEM, "out of memory");
	}
	f->below = lower;
	f->gate = gate_now;
	if (f->gate)
		atomic_fetch_add(&f->gate->files, 1);
	f->file = (struct file){
		.ops = ops,
		.flags = lower->flags,
		.caps = lower->caps & p.caps,
		.writers = lower->writers,
		.disk = p.disk,
	};
	if (f->file.caps & FILE_DIRECT) {
		f->file.mem_align = lower->mem_align;
		f->file.off_align = lower->off_align;
	} else if (!(lower->caps & FILE_DIRECT)) {
		f->file.why = lower->why;
		f->file.detail = lower->detail;
	}
	(void)snprintf(f->file.name, sizeof(f->file.name), "%s", lower->name);
	atomic_fetch_add(&files, 1);
	*ret = &f->file;
	return 0;
}

static int open_file(const struct file_ops *ops, const char *name, uint32_t flags, uint32_t mode,
		     struct file **ret)
{
	struct test_plan p = plan_now();
	struct file *lower = NULL;
	int r;

	if (p.open_err)
		return err_set(p.open_err, "%s: the plan opens nothing", name);
	r = local_file_ops.open(name + strlen(ops->scheme) + 3, flags, mode, &lower);
	return r < 0 ? r : new_file(ops, lower, ret);
}

static int test_open(const char *name, uint32_t flags, uint32_t mode, struct file **ret)
{
	return open_file(&test_file_ops, name, flags, mode, ret);
}

static int twin_open(const char *name, uint32_t flags, uint32_t mode, struct file **ret)
{
	return open_file(&twin_file_ops, name, flags, mode, ret);
}

static void test_free(struct file *f)
{
	struct test_gate *gate = file_of(f)->gate;

	file_free(file_of(f)->below);
	free(file_of(f));
	if (gate)
		atomic_fetch_sub(&gate->files, 1);
	atomic_fetch_sub(&files, 1);
}

static int test_size(const struct file *f, uint64_t *ret_size)
{
	return file_size(file_of(f)->below, ret_size);
}

static int test_again(const struct file *f, struct file **ret)
{
	struct file *lower = NULL;
	int r = file_again(file_of(f)->below, &lower);

	return r < 0 ? r : new_file(f->ops, lower, ret);
}

static int64_t test_peek(const struct file *f, void *buf, uint64_t off, uint64_t len)
{
	return file_peek(file_of(f)->below, buf, off, len);
}

static int test_resident(const struct file *f, uint64_t off, uint64_t len)
{
	return file_resident(file_of(f)->below, off, len);
}

static bool test_ends_at(const struct file *f, uint64_t off)
{
	return file_ends_at(file_of(f)->below, off);
}

static int test_stamp(const struct file *f, struct file_stamp *ret)
{
	return file_stamp(file_of(f)->below, ret);
}

#define OPS(SCHEME, OPEN, BACKEND)                                                      \
	{                                                                               \
		.scheme = SCHEME, .backend = BACKEND, .open = OPEN, .free = test_free,  \
		.size = test_size, .again = test_again, .peek = test_peek,              \
		.resident = test_resident, .ends_at = test_ends_at, .stamp = test_stamp \
	}

const struct file_ops test_file_ops = OPS("test", test_open, &test_backend);
const struct file_ops twin_file_ops = OPS("twin", twin_open, &twin_backend);

/* ----------------------------------------------------------- tests of the API */

/* Set the plan from PST_TEST_PLAN: "seed=N,delay=US,split,bare".  "bare" takes all optional
 * capabilities from files. */
static void plan_env(void)
{
	const char *text = getenv("PST_TEST_PLAN");
	struct test_plan p = TEST_PLAN;
	const char *at;

	if (!text)
		text = TEST_PLAN_TEXT;
	at = strstr(text, "seed=");
	p.seed = at ? strtoull(at + 5, NULL, 0) : 1;
	at = strstr(text, "delay=");
	p.delay_us = at ? (unsigned)strtoul(at + 6, NULL, 0) : 0;
	p.split = strstr(text, "split");
	if (strstr(text, "bare"))
		p.caps = FILE_MAY_HANG | FILE_STALE;
	test_provider_plan(&p);
	if (file_provider_add(&test_file_ops) < 0)
		abort();
}

int __real_pst_file_open(const char *path, uint32_t flags, const struct pst_file_opts *opts,
			 struct pst_file **ret_file);
int __wrap_pst_file_open(const char *path, uint32_t flags, const struct pst_file_opts *opts,
			 struct pst_file **ret_file);

/* All tests open files, so add the provider in the first call. */
int __wrap_pst_file_open(const char *path, uint32_t flags, const struct pst_file_opts *opts,
			 struct pst_file **ret_file)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	char name[2 * PATH_MAX], dir[PATH_MAX];

	(void)pthread_once(&once, plan_env);
	if (!path || !*path || strstr(path, "://") || strlen(path) >= PATH_MAX)
		return __real_pst_file_open(path, flags, opts, ret_file);
	if (path[0] == '/')
		(void)snprintf(name, sizeof(name), "test://%s", path);
	else
		(void)snprintf(name, sizeof(name), "test://%s/%s", getcwd(dir, sizeof(dir)), path);
	return __real_pst_file_open(name, flags, opts, ret_file);
}
