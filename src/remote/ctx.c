/* SPDX-License-Identifier: MIT */
/* The I/O context of the storage service's client. */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include "base/err.h"
#include "remote/link.h"

static struct remote_ctx *ctx_of(struct io_ctx *base)
{
	return container_of(base, struct remote_ctx, base);
}

/* Set the timer to the next time at which a link must act without receiving a byte. */
static void set_timer(struct remote_ctx *c)
{
	struct itimerspec t = { 0 };
	uint64_t at = UINT64_MAX, n;

	for (struct link *l = c->links; l; l = l->next)
		at = MIN(at, link_next(l));
	if (at == c->timer_at)
		return;
	(void)!read(c->timerfd, &n, sizeof(n));
	c->timer_at = at;
	if (at != UINT64_MAX) {
		at = at ? at : 1; /* 0 would disarm the timer */
		t.it_value.tv_sec = (time_t)(at / NSEC_PER_SEC);
		t.it_value.tv_nsec = (long)(at % NSEC_PER_SEC);
	}
	(void)timerfd_settime(c->timerfd, TFD_TIMER_ABSTIME, &t, NULL);
}

static void remote_turn(struct remote_ctx *c)
{
	uint64_t closed = atomic_load(&remote_nr_closed);
	bool all = true;

	for (struct link *l = c->links; l; l = l->next) {
		if (unlikely(c->nr_closed != closed))
			all &= link_close_files(l);
		link_turn(l);
	}
	if (all)
		c->nr_closed = closed;
	set_timer(c);
}

static struct remote_ctx *ctx_attended(const struct attended *a)
{
	return container_of((struct attended *)a, struct remote_ctx, attended);
}

static bool remote_works(const struct attended *a)
{
	const struct remote_ctx *c = ctx_attended(a);

	return c->base.nr_ops > c->nr_done;
}

/* Move the operations while the user computes. */
static bool turn_alone(struct attended *a)
{
	struct remote_ctx *c = ctx_attended(a);
	unsigned nr_done = c->nr_done;

	remote_turn(c);
	if (c->nr_done != nr_done && c->armed_efd >= 0)
		(void)eventfd_write(c->armed_efd, 1);
	return remote_works(a);
}

static void remote_ctx_free(struct io_ctx *base)
{
	struct remote_ctx *c = ctx_of(base);
	struct link *l;

	attend_end(&c->attended);
	while ((l = c->links)) {
		c->links = l->next;
		link_free(l);
	}
	waker_free(c->waker);
	closep(&c->timerfd);
	closep(&c->epfd);
	free(c->tasks);
	free(c->pieces);
	free(c);
}

static int add_timer(struct remote_ctx *c)
{
	struct epoll_event ev = { .events = EPOLLIN };

	if (c->epfd < 0 || c->timerfd < 0 || epoll_ctl(c->epfd, EPOLL_CTL_ADD, c->timerfd, &ev) < 0)
		return err_set(errno, "no descriptors for connections to a storage service: %s",
			       err_name(errno));
	return 0;
}

static int remote_ctx_new(unsigned depth, struct io_ctx **ret)
{
	struct remote_ctx *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return err_set(ENOMEM, "out of memory");
	c->base = (struct io_ctx){ .ops = &remote_backend, .depth = depth };
	c->timer_at = UINT64_MAX;
	c->armed_efd = -1;
	c->epfd = epoll_create1(EPOLL_CLOEXEC);
	c->attended.epfd = c->epfd;
	c->attended.turn = turn_alone;
	c->attended.works = remote_works;
	attend_init(&c->attended);
	c->timerfd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	r = add_timer(c);
	if (r == 0)
		r = waker_new(c->epfd, &c->waker);
	c->tasks = calloc(depth, sizeof(*c->tasks));
	c->pieces = calloc(LINK_PIECES, sizeof(*c->pieces));
	if (r == 0 && (!c->tasks || !c->pieces))
		r = err_set(ENOMEM, "out of memory");
	if (r < 0) {
		remote_ctx_free(&c->base);
		return r;
	}
	for (unsigned i = depth; i-- > 0;) {
		c->tasks[i].next = c->free_tasks;
		c->free_tasks = &c->tasks[i];
	}
	for (unsigned i = LINK_PIECES; i-- > 0;) {
		c->pieces[i].next = c->free_pieces;
		c->free_pieces = &c->pieces[i];
	}
	attend_begin(&c->attended);
	*ret = &c->base;
	return 0;
}

static int remote_queue(struct io_ctx *base, struct io_op *op)
{
	struct remote_ctx *c = ctx_of(base);
	int64_t ask;
	int r;

	if (base->nr_ops >= base->depth)
		return -EAGAIN;
	attend_lock(&c->attended);
	io_op_begin(op);
	op->ctx_data = NULL;
	ask = io_op_ask(op);
	if (unlikely(ask < 0)) { /* a fault was injected */
		op->res = ask;
		io_fifo_push(&c->done, op);
		c->nr_done++;
		r = 0;
	} else {
		r = link_add_op(c, op);
	}
	if (r == 0)
		base->nr_ops++;
	attend_unlock(&c->attended);
	attend_work();
	return r;
}

static int remote_flush(struct io_ctx *base)
{
	struct remote_ctx *c = ctx_of(base);

	attend_lock(&c->attended);
	remote_turn(c);
	attend_unlock(&c->attended);
	return 0;
}

static unsigned remote_reap(struct io_ctx *base, struct io_op **ret, unsigned max)
{
	struct remote_ctx *c = ctx_of(base);
	unsigned n = 0;

	if (!base->nr_ops)
		return 0;
	attend_lock(&c->attended);
	if (c->nr_done < max) {
		waker_clear(c->waker);
		remote_turn(c);
	}
	for (; n < max && c->nr_done; n++, c->nr_done--)
		ret[n] = io_fifo_pop(&c->done);
	base->nr_ops -= n;
	attend_unlock(&c->attended);
	return n;
}

static void remote_cancel(struct io_ctx *base, struct io_op *op)
{
	struct remote_ctx *c = ctx_of(base);

	attend_lock(&c->attended);
	link_cancel_op(c, op);
	attend_unlock(&c->attended);
}

static int remote_arm(struct io_ctx *base, int efd, bool armed)
{
	struct remote_ctx *c = ctx_of(base);
	int r;

	attend_lock(&c->attended);
	r = waker_arm(c->waker, efd, armed, c->nr_done);
	c->armed_efd = armed && r == 0 ? efd : -1;
	attend_unlock(&c->attended);
	return r;
}

const struct io_backend remote_backend = {
	.name = "tcp",
	.ctx_new = remote_ctx_new,
	.ctx_free = remote_ctx_free,
	.queue = remote_queue,
	.flush = remote_flush,
	.reap = remote_reap,
	.cancel = remote_cancel,
	.arm = remote_arm,
};
