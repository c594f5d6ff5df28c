/* SPDX-License-Identifier: MIT */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include "base/crc32c.h"
#include "base/err.h"
#include "base/log.h"
#include "base/uaccess.h"
#include "remote/link.h"

#define IOVS 64u        /* of one system call */
#define SEND_MAX MIB(4) /* bytes of one system call */
#define LONG KIB(16)    /* a longer payload is received into its place, not into a buffer */
#define BACKOFF_MIN_NS (5 * NSEC_PER_MSEC)
#define BACKOFF_MAX_NS NSEC_PER_SEC

/* ------------------------------------------------------------------- lists */

static void push(struct pieces *q, struct piece *p)
{
	p->next = NULL;
	if (q->head)
		q->tail->next = p;
	else
		q->head = p;
	q->tail = p;
}

static struct piece *pop(struct pieces *q)
{
	struct piece *p = q->head;

	if (p)
		q->head = p->next;
	return p;
}

static void take_out(struct pieces *q, struct piece *p)
{
	struct piece *last = NULL;

	for (struct piece **at = &q->head; *at; last = *at, at = &(*at)->next) {
		if (*at != p)
			continue;
		*at = p->next;
		if (q->tail == p)
			q->tail = last;
		return;
	}
}

static void todo_push(struct opened *of, struct task *t)
{
	t->next = NULL;
	if (of->todo)
		of->todo_last->next = t;
	else
		of->todo = t;
	of->todo_last = t;
	t->queued = true;
}

static void todo_remove(struct opened *of, struct task *t)
{
	struct task *last = NULL;

	for (struct task **at = &of->todo; *at; last = *at, at = &(*at)->next) {
		if (*at != t)
			continue;
		*at = t->next;
		if (of->todo_last == t)
			of->todo_last = last;
		break;
	}
	t->queued = false;
}

/* ------------------------------------------------------------------ pieces */

static struct piece *piece_new(struct link *l, enum piece_kind kind)
{
	struct remote_ctx *c = l->ctx;
	struct piece *p = c->free_pieces;

	if (!p)
		return NULL;
	c->free_pieces = p->next;
	*p = (struct piece){
		.link = l, .kind = (uint8_t)kind, .turn = p->turn + 1, .state = PIECE_WAITS
	};
	return p;
}

static void piece_free(struct piece *p)
{
	struct remote_ctx *c = p->link->ctx;

	if (p->task)
		p->task->nr_pieces--;
	p->task = NULL;
	p->state = PIECE_FREE;
	p->next = c->free_pieces;
	c->free_pieces = p;
}

static uint64_t piece_id(const struct piece *p)
{
	return (uint64_t)p->turn << 32 | (uint64_t)(p - p->link->ctx->pieces);
}

static struct piece *piece_find(const struct link *l, uint64_t id)
{
	uint64_t idx = id & UINT32_MAX;
	struct piece *p = idx < LINK_PIECES ? &l->ctx->pieces[idx] : NULL;

	return p && p->state == PIECE_SENT && p->link == l && p->turn == id >> 32 ? p : NULL;
}

static bool is_long(const struct piece *p)
{
	return p->kind == PIECE_TASK && p->len > LONG;
}

/* ------------------------------------------------------------------- tasks */

static void task_end(struct task *t)
{
	struct opened *of = t->of;
	struct remote_ctx *c = of->link->ctx;
	struct io_op *op = t->op;

	if (t->queued)
		todo_remove(of, t);
	op->moved = io_op_is_sync(op) ? 0 : t->limit;
	op->res = t->err ? -t->err : (int64_t)op->moved;
	op->ctx_data = NULL;
	io_fifo_push(&c->done, op);
	c->nr_done++;
	t->next = c->free_tasks;
	c->free_tasks = t;
	of->nr_tasks--;
	of->link->nr_tasks--;
}

static bool task_is_issued(const struct task *t)
{
	return t->issued >= MAX(t->limit, UINT64_C(1));
}

static void task_check(struct task *t)
{
	if (!t->nr_pieces && (t->err || task_is_issued(t)))
		task_end(t);
}

/* Bytes from off on are missing. */
static void task_cut(struct task *t, uint64_t off, int err)
{
	if (off < t->limit || (err && !t->err && off == t->limit) || io_op_is_sync(t->op)) {
		t->limit = off;
		t->err = err;
	}
	if (t->queued && (t->err || task_is_issued(t)))
		todo_remove(t->of, t);
}

/* All that is left of it is for nothing. */
static void pieces_drop(struct pieces *q)
{
	struct piece *p;

	while ((p = pop(q)))
		piece_free(p);
}

static void opened_fail(struct opened *of, int err)
{
	struct task *t;
	struct piece *p;

	while ((p = pop(&of->again))) {
		t = p->task;
		piece_free(p);
		task_cut(t, p->off, err);
		task_check(t);
	}
	while ((t = of->todo)) {
		task_cut(t, MIN(t->issued, t->limit), err);
		if (t->queued)
			todo_remove(of, t);
		task_check(t);
	}
}

static void link_fail(struct link *l, int err)
{
	for (struct opened *of = l->files; of; of = of->next)
		opened_fail(of, err);
}

/* -------------------------------------------------------------- connection */

static void link_poll(struct link *l, bool out)
{
	struct epoll_event ev = { .events = EPOLLIN | (out ? EPOLLOUT : 0u), .data.ptr = l };

	if (l->want_out != out && epoll_ctl(l->ctx->epfd, EPOLL_CTL_MOD, l->fd, &ev) == 0)
		l->want_out = out;
}

/* The connection ended.  Its pieces wait for the next one. */
static void link_drop(struct link *l, int err)
{
	uint64_t now = now_ns(), backoff = BACKOFF_MIN_NS << MIN(l->nr_tries, 10u);
	struct remote_ctx *c = l->ctx;

	if (l->state == LINK_DOWN)
		return;
	(void)close(l->fd);
	l->fd = -1;
	l->err = err;
	if (!l->down_since)
		l->down_since = now;
	l->at = now + MIN(backoff, BACKOFF_MAX_NS);
	l->nr_tries++;
	l->state = LINK_DOWN;
	l->tx = (struct pieces){ 0 };
	l->tx_done = 0;
	l->cur = NULL;
	l->body = l->body_done = l->in_at = l->in_len = 0;
	l->nr_sent = l->nr_long = 0;
	l->want_out = false;
	for (struct opened *of = l->files; of; of = of->next)
		of->state = OPENED_NO;
	for (struct piece *p = c->pieces; p < c->pieces + LINK_PIECES; p++) {
		if (p->state == PIECE_FREE || p->link != l || (p->task && p->waits_again))
			continue;
		if (!p->task) {
			piece_free(p);
			continue;
		}
		p->state = PIECE_WAITS;
		p->waits_again = true;
		push(&p->of->again, p);
	}
	log_debug("the connection to a storage service ended: %s", err_name(err));
}

static void send_hello(struct link *l)
{
	struct wire_request q = { .len = WIRE_HEAD + WIRE_HELLO_LEN, .op = WIRE_HELLO };
	struct piece *p = piece_new(l, PIECE_HELLO);
	struct wire_hello h;

	if (!p) /* others of the context have them all, and give them back */
		return;
	remote_hello(&h, l->channel, ++l->epoch);
	wire_put_hello(&h, p->hello);
	q.id = piece_id(p);
	wire_put_request(&q, p->head);
	push(&l->tx, p);
	l->state = LINK_HELLO;
}

static void link_connect(struct link *l)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT, .data.ptr = l };
	unsigned ms = 20000;
	int r = 0;

	l->fd = net_socket(&l->addr);
	l->state = LINK_CONNECTING;
	l->at = now_ns() + REMOTE_CONNECT_NS;
	l->want_out = true;
	if (l->fd < 0) {
		link_drop(l, -l->fd);
		return;
	}
	if (l->addr.sa.ss_family != AF_UNIX)
		(void)setsockopt(l->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
	if (connect(l->fd, (const struct sockaddr *)&l->addr.sa, l->addr.len) < 0)
		r = errno;
	if (r == EINPROGRESS)
		r = 0;
	/* A full backlog of an AF_UNIX socket says EAGAIN. */
	if (!r && epoll_ctl(l->ctx->epfd, EPOLL_CTL_ADD, l->fd, &ev) < 0)
		r = errno;
	if (r)
		link_drop(l, r);
}

static void link_connecting(struct link *l)
{
	struct pollfd p = { .fd = l->fd, .events = POLLOUT };
	socklen_t len = sizeof(int);
	int err = 0;

	if (poll(&p, 1, 0) == 1) {
		if (getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
			err = errno;
		if (err)
			link_drop(l, err);
		else
			send_hello(l);
	}
}

/* ------------------------------------------------------------------- sending */

static void send_open(struct link *l, struct opened *of)
{
	struct wire_request q = { .op = WIRE_OPEN, .how = of->ref->how };
	struct piece *p = piece_new(l, PIECE_OPEN);

	if (!p)
		return;
	p->of = of;
	q.id = piece_id(p);
	q.len = WIRE_HEAD + (uint32_t)strlen(of->ref->path);
	wire_put_request(&q, p->head);
	push(&l->tx, p);
	of->state = OPENED_ASKED;
}

static void send_close(struct link *l, uint32_t handle)
{
	struct wire_request q = { .len = WIRE_HEAD, .op = WIRE_CLOSE, .handle = handle };
	struct piece *p = piece_new(l, PIECE_CLOSE);

	if (!p)
		return;
	q.id = piece_id(p);
	wire_put_request(&q, p->head);
	push(&l->tx, p);
}

/* Send a piece of a task.  False: its memory is gone, and so is the task. */
static bool send_piece(struct link *l, struct piece *p)
{
	const struct io_op *op = p->task->op;
	struct wire_request q = {
		.len = WIRE_HEAD,
		.id = piece_id(p),
		.handle = p->of->handle,
		.off = op->off + p->off,
		.count = (uint32_t)p->len,
		.flags = p->of->ref->crc ? WIRE_F_CRC : 0,
	};

	switch (op->kind) {
	case IO_READ:
		q.op = WIRE_READ;
		break;
	case IO_WRITE:
		q.op = WIRE_WRITE;
		q.len += q.count;
		break;
	default:
		q.op = WIRE_SYNC;
		q.flags = op->kind == IO_FDATASYNC ? WIRE_F_DATA : 0;
		q.off = q.count = 0;
	}
	if (q.op == WIRE_WRITE && q.flags & WIRE_F_CRC &&
	    uaccess_crc32c(&q.crc, (char *)op->buf + p->off, p->len) < 0) {
		struct task *t = p->task;

		piece_free(p);
		task_cut(t, p->off, EFAULT);
		task_check(t);
		return false;
	}
	p->waits_again = false;
	p->op = q.op;
	wire_put_request(&q, p->head);
	push(&l->tx, p);
	l->nr_sent++;
	l->nr_long += is_long(p);
	return true;
}

/* The next piece of a task. */
static struct piece *cut_piece(struct link *l, struct task *t)
{
	struct piece *p = piece_new(l, PIECE_TASK);
	bool sync = io_op_is_sync(t->op);

	if (!p)
		return NULL;
	p->task = t;
	p->of = t->of;
	p->off = t->issued;
	p->len = sync ? 0 : MIN(t->limit - t->issued, (uint64_t)l->data_max);
	t->issued += sync ? 1 : p->len;
	t->nr_pieces++;
	if (task_is_issued(t))
		todo_remove(t->of, t);
	return p;
}

/* One piece of a file: false if there was none to send. */
static bool fill_one(struct link *l, struct opened *of)
{
	struct piece *p = pop(&of->again);

	if (!p && of->todo)
		p = cut_piece(l, of->todo);
	if (!p)
		return false;
	(void)send_piece(l, p);
	return true;
}

/* Turn what waits into pieces; each file in its turn. */
static void link_fill(struct link *l)
{
	bool more = true;

	while (more) {
		more = false;
		for (struct opened *of = l->files; of; of = of->next) {
			if (!of->todo && !of->again.head)
				continue;
			if (of->state == OPENED_NO)
				send_open(l, of);
			else if (of->state == OPENED_YES && l->nr_sent < l->max_sent)
				more |= fill_one(l, of);
		}
	}
}

static uint64_t payload_of(const struct piece *p, const void **ret)
{
	switch (p->kind) {
	case PIECE_HELLO:
		*ret = p->hello;
		return WIRE_HELLO_LEN;
	case PIECE_OPEN:
		*ret = p->of->ref->path;
		return strlen(p->of->ref->path);
	case PIECE_TASK:
		if (p->task && p->task->op->kind == IO_WRITE) {
			*ret = (char *)p->task->op->buf + p->off;
			return p->len;
		}
		return 0;
	default:
		return 0;
	}
}

static void add_iov(struct msghdr *m, const void *base, uint64_t len, size_t *skip)
{
	size_t cut = MIN(*skip, (size_t)len);

	*skip -= cut;
	if (len > cut)
		m->msg_iov[m->msg_iovlen++] = (struct iovec){ (char *)base + cut, len - cut };
}

static void sent_some(struct link *l, uint64_t n)
{
	while (n) {
		const void *payload;
		struct piece *p = l->tx.head;
		uint64_t all = WIRE_HEAD + payload_of(p, &payload), part;

		part = MIN(n, all - l->tx_done);
		l->tx_done += part;
		n -= part;
		if (l->tx_done < all)
			return;
		l->tx_done = 0;
		p->state = PIECE_SENT;
		(void)pop(&l->tx);
	}
}

/* The memory of a write is gone.  A part of the message may have been sent. */
static void send_fault(struct link *l)
{
	for (struct piece *p = l->tx.head; p; p = p->next) {
		struct task *t = p->task;
		uint32_t crc = 0;

		if (t && t->op->kind == IO_WRITE &&
		    uaccess_crc32c(&crc, (char *)t->op->buf + p->off, p->len) < 0)
			task_cut(t, p->off, EFAULT);
	}
	link_drop(l, EFAULT);
	l->at = 0;
	for (struct opened *of = l->files; of; of = of->next) {
		struct pieces all = of->again;
		struct piece *p;

		of->again = (struct pieces){ 0 };
		while ((p = pop(&all))) {
			struct task *t = p->task;

			if (t->err != EFAULT) {
				push(&of->again, p);
				continue;
			}
			piece_free(p);
			task_check(t);
		}
	}
}

static void link_send(struct link *l)
{
	while (l->tx.head) {
		struct iovec iov[IOVS];
		struct msghdr m = { .msg_iov = iov };
		size_t skip = l->tx_done;
		uint64_t all = 0;
		ssize_t n;

		for (struct piece *p = l->tx.head; p && m.msg_iovlen + 2 <= IOVS && all < SEND_MAX;
		     p = p->next) {
			const void *payload;
			uint64_t len = payload_of(p, &payload);

			add_iov(&m, p->head, WIRE_HEAD, &skip);
			if (len)
				add_iov(&m, payload, len, &skip);
			all += WIRE_HEAD + len;
		}
		all -= l->tx_done;
		n = sendmsg(l->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) {
			if (errno == EFAULT)
				send_fault(l);
			else
				link_drop(l, errno);
			return;
		}
		sent_some(l, (uint64_t)n);
		if ((uint64_t)n < all)
			break;
	}
	link_poll(l, l->tx.head != NULL);
}

/* ------------------------------------------------------------------ receiving */

static void hello_done(struct link *l)
{
	struct wire_welcome w;
	int r = l->rep.err ? -(int)l->rep.err : wire_get_welcome(l->small, l->body, &w);

	if (r < 0) {
		link_drop(l, -r);
		if (r == -EPROTONOSUPPORT || r == -EBADMSG)
			link_fail(l, -r == EBADMSG ? EPROTO : -r);
		return;
	}
	l->state = LINK_UP;
	l->max_sent = MIN(w.requests_max, LINK_PIECES / 2);
	l->data_max = MIN(w.data_max, (uint32_t)WIRE_DATA_MAX);
	l->down_since = 0;
	l->nr_tries = 0;
}

static void open_done(struct link *l, struct opened *of)
{
	struct wire_attr a;

	if (of->state != OPENED_ASKED)
		return;
	if (!l->rep.err && wire_get_attr(l->small, l->body, &a) < 0) {
		link_drop(l, EBADMSG);
		return;
	}
	of->state = OPENED_NO;
	if (l->rep.err) {
		/* It was there when it was opened first. */
		opened_fail(of, l->rep.err == ENOENT ? ESTALE : (int)l->rep.err);
		return;
	}
	if (!remote_is_same(&a, &of->ref->attr)) {
		send_close(l, l->rep.count);
		opened_fail(of, ESTALE);
		return;
	}
	of->handle = l->rep.count;
	of->state = OPENED_YES;
}

/* Wrong bytes came, or arrived there: once more on another connection. */
static void damaged(struct link *l, struct piece *p)
{
	struct task *t = p->task;

	if (++p->tries < LINK_TRIES) {
		link_drop(l, EBADMSG);
		l->at = 0;
		return;
	}
	log_warn("a storage service or the network to it damages data: %u wrong checksums",
		 LINK_TRIES);
	task_cut(t, p->off, EIO);
}

static void task_done(struct link *l, struct piece *p)
{
	struct task *t = p->task;
	const struct io_op *op = t->op;
	uint32_t crc = 0;

	if (l->rep.err && (l->rep.err != EBADMSG || op->kind != IO_WRITE)) {
		task_cut(t, p->off, (int)l->rep.err);
		return;
	}
	switch (op->kind) {
	case IO_READ:
		if (p->of->ref->crc && l->rep.count) {
			if (!(l->rep.flags & WIRE_F_CRC) ||
			    uaccess_crc32c(&crc, (char *)op->buf + p->off, l->rep.count) < 0 ||
			    crc != l->rep.crc) {
				damaged(l, p);
				return;
			}
		}
		if (l->rep.count < p->len)
			task_cut(t, p->off + l->rep.count, 0);
		break;
	case IO_WRITE:
		if (l->rep.err) {
			damaged(l, p);
			return;
		}
		remote_wrote(p->of->ref, l->rep.boot);
		if (l->rep.count < p->len)
			task_cut(t, p->off + l->rep.count, EIO);
		break;
	default:
		if (remote_synced(p->of->ref, l->rep.boot, t->nr_writes) < 0)
			task_cut(t, 0, EIO);
	}
}

/* A reply and its payload are here. */
static void reply_done(struct link *l)
{
	struct piece *p = l->cur;
	struct task *t = p->task;
	uint32_t turn = p->turn;

	l->cur = NULL;
	switch (p->kind) {
	case PIECE_HELLO:
		hello_done(l);
		break;
	case PIECE_OPEN:
		open_done(l, p->of);
		break;
	case PIECE_TASK:
		if (t)
			task_done(l, p);
		break;
	default:
		break;
	}
	/* Where the connection was dropped, it was freed then, or it is to be sent again. */
	if (p->state != PIECE_SENT || p->turn != turn)
		return;
	if (p->kind == PIECE_TASK) {
		l->nr_sent--;
		l->nr_long -= is_long(p);
	}
	piece_free(p);
	if (t)
		task_check(t);
}

static bool reply_fits(const struct piece *p, const struct wire_reply *r)
{
	static const uint16_t ops[] = {
		[PIECE_HELLO] = WIRE_HELLO,
		[PIECE_OPEN] = WIRE_OPEN,
		[PIECE_CLOSE] = WIRE_CLOSE,
	};

	if (p->kind != PIECE_TASK)
		return r->op == ops[p->kind];
	return r->op == p->op && (r->op == WIRE_SYNC || r->count <= p->len);
}

/* A header is here. */
static void reply_head(struct link *l, const uint8_t *head)
{
	struct piece *p;

	if (wire_get_reply(head, &l->rep) < 0) {
		link_drop(l, EBADMSG);
		return;
	}
	p = piece_find(l, l->rep.id);
	if (!p || !reply_fits(p, &l->rep)) {
		link_drop(l, EBADMSG);
		return;
	}
	l->boot = l->rep.boot;
	l->cur = p;
	l->body = wire_payload(l->rep.len);
	l->body_done = 0;
	if (!l->body)
		reply_done(l);
}

/* Where the rest of the payload belongs; NULL: nowhere. */
static char *body_at(const struct link *l)
{
	const struct piece *p = l->cur;

	if (p->kind != PIECE_TASK)
		return (char *)l->small + l->body_done;
	return p->task ? (char *)p->task->op->buf + p->off + l->body_done : NULL;
}

static void body_fault(struct link *l)
{
	struct piece *p = l->cur;
	struct task *t = p->task;

	/* The rest of the payload is skipped. */
	p->task = NULL;
	t->nr_pieces--;
	task_cut(t, p->off, EFAULT);
	task_check(t);
}

/* Bytes of the payload that are in the buffer. */
static void body_from_buffer(struct link *l)
{
	uint32_t n = MIN(l->in_len - l->in_at, l->body - l->body_done);
	const uint8_t *from = l->in + l->in_at;
	char *to = body_at(l);

	if (to && l->cur->kind != PIECE_TASK)
		memcpy(to, from, n);
	else if (to && uaccess_write(to, from, n) < 0)
		body_fault(l);
	l->in_at += n;
	l->body_done += n;
}

/* Take all that the buffer holds. */
static void take_buffer(struct link *l)
{
	while (l->fd >= 0) {
		if (l->cur) {
			if (l->in_at < l->in_len)
				body_from_buffer(l);
			if (l->body_done < l->body)
				return;
			reply_done(l);
			continue;
		}
		if (l->in_len - l->in_at < WIRE_HEAD)
			return;
		l->in_at += WIRE_HEAD;
		reply_head(l, l->in + l->in_at - WIRE_HEAD);
	}
}

/* Receive the payload to its place, and in the same call the next header. */
static ssize_t receive_body(struct link *l, size_t *ret_asked)
{
	static _Thread_local char sink[LINK_IN_MAX];
	uint32_t left = l->body - l->body_done;
	char *to = body_at(l);
	struct iovec iov[2] = {
		{ to ? to : sink, to ? left : MIN(left, (uint32_t)sizeof(sink)) },
		{ l->in, l->nr_long > 1 ? WIRE_HEAD : LINK_IN_MAX },
	};
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = iov[0].iov_len == left ? 2 : 1 };
	ssize_t n = recvmsg(l->fd, &m, MSG_DONTWAIT);

	l->in_at = l->in_len = 0;
	*ret_asked = iov[0].iov_len + (m.msg_iovlen > 1 ? iov[1].iov_len : 0);
	if (n < 0 && errno == EFAULT && to) {
		body_fault(l);
		errno = EINTR;
	}
	if (n <= 0)
		return n;
	if ((size_t)n <= iov[0].iov_len) {
		l->body_done += (uint32_t)n;
	} else {
		l->body_done += left;
		l->in_len = (uint32_t)n - left;
	}
	return n;
}

static ssize_t receive_head(struct link *l, size_t *ret_asked)
{
	uint32_t have = l->in_len - l->in_at, ask;
	ssize_t n;

	memmove(l->in, l->in + l->in_at, have);
	l->in_at = 0;
	l->in_len = have;
	/* Long payloads are not to pass through the buffer. */
	ask = (l->nr_long ? WIRE_HEAD : LINK_IN_MAX) - have;
	n = recv(l->fd, l->in + have, ask, MSG_DONTWAIT);
	if (n > 0)
		l->in_len += (uint32_t)n;
	*ret_asked = ask;
	return n;
}

static void link_receive(struct link *l)
{
	size_t asked;
	ssize_t n;

	while (l->fd >= 0) {
		n = l->cur ? receive_body(l, &asked) : receive_head(l, &asked);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			link_drop(l, n ? errno : ECONNRESET);
			return;
		}
		take_buffer(l);
		if ((size_t)n < asked)
			return;
	}
}

/* --------------------------------------------------------------------- turns */

/* Nothing is connected, and something waits. */
static void link_down(struct link *l)
{
	uint64_t now = now_ns();

	if (l->down_since && now - l->down_since > REMOTE_GIVE_UP_NS) {
		link_fail(l, l->err);
		l->down_since = 0;
	} else if (l->nr_tasks && now >= l->at) {
		link_connect(l);
	}
}

static void link_up(struct link *l)
{
	link_fill(l);
	if (l->tx.head)
		link_send(l);
	if (l->state != LINK_UP)
		return;
	link_receive(l);
	if (l->state != LINK_UP)
		return;
	link_fill(l);
	if (l->tx.head)
		link_send(l);
}

void link_turn(struct link *l)
{
	if (l->state == LINK_UP) {
		link_up(l);
		return;
	}
	if (l->state == LINK_DOWN)
		link_down(l);
	if (l->state == LINK_CONNECTING)
		link_connecting(l);
	if (l->state == LINK_HELLO) {
		if (l->tx.head)
			link_send(l);
		if (l->state == LINK_HELLO)
			link_receive(l);
	}
	if (l->state == LINK_UP)
		link_up(l);
	else if ((l->state == LINK_CONNECTING || l->state == LINK_HELLO) && now_ns() >= l->at)
		link_drop(l, ETIMEDOUT);
}

uint64_t link_next(const struct link *l)
{
	return l->state != LINK_UP && (l->nr_tasks || l->state != LINK_DOWN) ? l->at : UINT64_MAX;
}

/* --------------------------------------------------------------- operations */

static struct link *link_find(struct remote_ctx *c, const struct net_addr *addr)
{
	struct link *l;

	for (l = c->links; l; l = l->next)
		if (net_addr_is(&l->addr, addr))
			return l;
	l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->in = malloc(LINK_IN_MAX);
	if (!l->in) {
		free(l);
		return NULL;
	}
	l->ctx = c;
	l->addr = *addr;
	l->fd = -1;
	l->channel = remote_channel();
	l->next = c->links;
	c->links = l;
	return l;
}

static struct opened *opened_find(struct link *l, struct remote_ref *ref)
{
	struct opened *of;

	for (of = l->files; of; of = of->next)
		if (of->ref == ref)
			return of;
	of = calloc(1, sizeof(*of));
	if (!of)
		return NULL;
	of->link = l;
	of->ref = remote_ref_get(ref);
	of->next = l->files;
	l->files = of;
	return of;
}

int link_add_op(struct remote_ctx *c, struct io_op *op)
{
	struct remote_ref *ref = container_of(op->file, struct remote_file, file)->ref;
	struct link *l = link_find(c, &ref->addr);
	struct opened *of = l ? opened_find(l, ref) : NULL;
	struct task *t = c->free_tasks;

	if (!of)
		return -ENOMEM;
	c->free_tasks = t->next;
	*t = (struct task){ .op = op, .of = of, .limit = op->len };
	if (io_op_is_sync(op))
		t->nr_writes = remote_nr_writes(ref);
	op->ctx_data = t;
	of->nr_tasks++;
	l->nr_tasks++;
	todo_push(of, t);
	return 0;
}

/* Nothing of it can be taken back that the server may have: a write that is given up must not run
 * later than what follows it, and the next connection's hello sees to that. */
static bool must_drop(const struct link *l, const struct piece *p)
{
	return p->task->op->kind == IO_WRITE &&
	       (p->state == PIECE_SENT || (p == l->tx.head && l->tx_done));
}

void link_cancel_op(struct remote_ctx *c, struct io_op *op)
{
	struct task *t = op->ctx_data;
	struct link *l;

	if (!t) /* it is done already */
		return;
	l = t->of->link;
	for (struct piece *p = c->pieces; p < c->pieces + LINK_PIECES; p++) {
		if (p->state == PIECE_FREE || p->task != t)
			continue;
		if (must_drop(l, p)) {
			link_drop(l, ECANCELED);
			l->at = 0;
			break;
		}
	}
	for (struct piece *p = c->pieces; t->nr_pieces && p < c->pieces + LINK_PIECES; p++) {
		if (p->state == PIECE_FREE || p->task != t)
			continue;
		if (p->state == PIECE_WAITS && !(p == l->tx.head && l->tx_done)) {
			if (p->waits_again) {
				take_out(&p->of->again, p);
			} else {
				take_out(&l->tx, p);
				l->nr_sent--;
				l->nr_long -= is_long(p);
			}
			piece_free(p);
			continue;
		}
		/* Its reply will be skipped. */
		p->task = NULL;
		t->nr_pieces--;
	}
	t->limit = 0;
	t->err = ECANCELED;
	task_end(t);
}

/* ---------------------------------------------------------------------- ends */

bool link_close_files(struct link *l)
{
	struct opened **at = &l->files;
	bool all = true;

	while (*at) {
		struct opened *of = *at;

		if (!atomic_load(&of->ref->closed)) {
			at = &of->next;
			continue;
		}
		if (of->nr_tasks || of->state == OPENED_ASKED) {
			at = &of->next;
			all = false;
			continue;
		}
		if (of->state == OPENED_YES)
			send_close(l, of->handle);
		/* Pieces whose tasks are gone need the file no more. */
		for (struct piece *p = l->ctx->pieces; p < l->ctx->pieces + LINK_PIECES; p++)
			if (p->of == of)
				p->of = NULL;
		*at = of->next;
		remote_ref_put(of->ref);
		free(of);
	}
	return all;
}

void link_free(struct link *l)
{
	struct opened *of;

	link_drop(l, ESHUTDOWN);
	while ((of = l->files)) {
		l->files = of->next;
		pieces_drop(&of->again);
		remote_ref_put(of->ref);
		free(of);
	}
	free(l->in);
	free(l);
}
