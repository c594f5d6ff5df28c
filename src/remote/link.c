/* SPDX-License-Identifier: MIT */
/* Connections of a link, and its operations. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>

#include "base/err.h"
#include "base/log.h"
#include "remote/link.h"

#define BACKOFF_MIN_NS (5 * NSEC_PER_MSEC)
#define BACKOFF_MAX_NS NSEC_PER_SEC

/* -------------------------------------------------------------- connection */

void link_poll(struct link *l, bool out)
{
	struct epoll_event ev = { .events = EPOLLIN | (out ? EPOLLOUT : 0u), .data.ptr = l };

	if (l->want_out != out && epoll_ctl(l->ctx->epfd, EPOLL_CTL_MOD, l->fd, &ev) == 0)
		l->want_out = out;
}

/* Handle the end of the connection.  Pieces wait for the next connection. */
void link_drop(struct link *l, int err)
{
	uint64_t now = now_ns(), backoff = BACKOFF_MIN_NS << MIN(l->nr_tries, 10u);
	struct remote_ctx *c = l->ctx;

	if (l->state == LINK_DOWN)
		return;
	/* End RDMA before any operation ends: the server's NIC must not access the memory of an
	 * operation that has ended. */
	link_rdma_end(l, err);
	l->rdma_no = 0;
	net_tls_end(l->tls);
	l->tls = NULL;
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
	l->nr_batch = 0;
	l->nr_sent = l->nr_long = 0;
	l->want_out = false;
	for (struct opened *of = l->files; of; of = of->next)
		of->state = OPENED_NO;
	for (struct piece *p = c->pieces; p < c->pieces + LINK_PIECES; p++) {
		if (p->state == PIECE_FREE || p->link != l || (p->task && p->waits_again))
			continue;
		p->rdma = false;
		if (!p->task) {
			piece_free(p);
			continue;
		}
		p->state = PIECE_WAITS;
		p->waits_again = true;
		pieces_push(&p->of->again, p);
	}
	log_debug("the connection to a storage service ended: %s", err_name(err));
}

static void send_hello(struct link *l)
{
	struct wire_request q = { .len = WIRE_HEAD + WIRE_HELLO_LEN, .op = WIRE_HELLO };
	struct piece *p = piece_new(l, PIECE_HELLO);
	struct wire_hello h;

	if (!p) /* the context's other links use all pieces, and will free some */
		return;
	remote_hello(&h, l->channel, ++l->epoch);
	wire_put_hello(&h, p->payload);
	q.id = piece_id(p);
	wire_put_request(&q, p->head);
	pieces_push(&l->tx, p);
	l->state = LINK_HELLO;
}

static void link_connect(struct link *l)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT, .data.ptr = l };
	unsigned ms = 20000;
	int r = 0;

	l->fd = net_socket(&l->server.addr);
	l->state = LINK_CONNECTING;
	l->at = now_ns() + REMOTE_CONNECT_NS;
	l->want_out = true;
	if (l->fd < 0) {
		link_drop(l, -l->fd);
		return;
	}
	if (l->server.addr.sa.ss_family != AF_UNIX)
		(void)setsockopt(l->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
	if (connect(l->fd, (const struct sockaddr *)&l->server.addr.sa, l->server.addr.len) < 0)
		r = errno;
	if (r == EINPROGRESS)
		r = 0;
	/* connect() to an AF_UNIX socket with a full backlog fails with EAGAIN. */
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
		if (!err && l->server.tls) {
			err = -l->server.tls->begin(l->fd, &l->server.key, NULL, &l->tls);
			l->state = err ? LINK_CONNECTING : LINK_TLS;
		} else if (!err) {
			send_hello(l);
		}
		if (err)
			link_drop(l, err);
	}
}

static void link_handshake(struct link *l)
{
	int r = l->tls->ready ? 0 : net_tls_handshake(l->tls);

	if (r == 0) {
		send_hello(l);
	} else if (r == -EAGAIN) {
		link_poll(l, link_wants_out(l));
	} else {
		bool refused = r == -EKEYREJECTED || r == -EPROTO;

		/* Retry: bytes damaged in transit look the same as a wrong key. */
		refused = refused && ++l->nr_refused >= LINK_TRIES;
		if (refused)
			log_warn("no connection to a storage service: %s", l->tls->why);
		link_drop(l, -r);
		if (refused) {
			link_fail(l, -r);
			l->nr_refused = 0;
		}
	}
}

/* --------------------------------------------------------------------- turns */

/* Connect, or give up, while there is no connection. */
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
	do {
		link_fill(l);
		if (link_wants_out(l))
			link_send(l);
		if (l->state != LINK_UP)
			return;
		link_receive(l);
		if (l->state != LINK_UP)
			return;
		(void)link_rdma_turn(l);
		if (l->state != LINK_UP)
			return;
		link_fill(l);
		if (link_wants_out(l))
			link_send(l);
	} while (l->state == LINK_UP && link_rdma_wait(l));
}

void link_turn(struct link *l)
{
	if (l->state == LINK_UP) {
		link_up(l);
		/* Check the time after receiving: the reply may have been waiting. */
		if (link_rdma_next(l) != UINT64_MAX && now_ns() >= link_rdma_next(l))
			link_drop(l, ETIMEDOUT);
		return;
	}
	if (l->state == LINK_DOWN)
		link_down(l);
	if (l->state == LINK_CONNECTING)
		link_connecting(l);
	if (l->state == LINK_TLS)
		link_handshake(l);
	if (l->state == LINK_HELLO) {
		if (link_wants_out(l))
			link_send(l);
		if (l->state == LINK_HELLO)
			link_receive(l);
	}
	if (l->state == LINK_UP)
		link_up(l);
	else if (l->state != LINK_DOWN && now_ns() >= l->at)
		link_drop(l, ETIMEDOUT);
}

uint64_t link_next(const struct link *l)
{
	if (l->state == LINK_UP)
		return link_rdma_next(l);
	return l->nr_tasks || l->state != LINK_DOWN ? l->at : UINT64_MAX;
}

/* --------------------------------------------------------------- operations */

static struct link *link_find(struct remote_ctx *c, const struct remote_server *server)
{
	struct link *l;

	for (l = c->links; l; l = l->next)
		if (remote_is_server(&l->server, server))
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
	l->server = *server;
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
	struct link *l = link_find(c, &ref->server);
	struct opened *of = l ? opened_find(l, ref) : NULL;
	struct task *t = c->free_tasks;

	if (!of)
		return -ENOMEM;
	if (ref->reach && !l->reach)
		l->reach = reach_again(ref->reach);
	c->free_tasks = t->next;
	*t = (struct task){ .op = op, .of = of, .limit = op->len };
	if (io_op_is_sync(op))
		t->nr_writes = remote_nr_writes(ref);
	op->ctx_data = t;
	of->nr_tasks++;
	l->nr_tasks++;
	opened_push_task(of, t);
	return 0;
}

/*
 * Return true if cancelling the piece requires ending the connection.  A cancelled write must not
 * run after later operations if the server may have it; the next connection's hello prevents that.
 * And the server's NIC must not access memory that is returned to the program; destroying the queue
 * pair prevents that.
 */
static bool must_drop(const struct link *l, const struct piece *p)
{
	return (p->task->op->kind == IO_WRITE || p->rdma) &&
	       (p->state == PIECE_SENT || (p == l->tx.head && l->tx_done));
}

void link_cancel_op(struct remote_ctx *c, struct io_op *op)
{
	struct task *t = op->ctx_data;
	struct link *l;

	if (!t) /* already completed */
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
				pieces_remove(&p->of->again, p);
			} else {
				pieces_remove(&l->tx, p);
				l->nr_sent--;
				l->nr_long -= piece_is_long(p);
				link_rdma_unsend(l, p);
			}
			piece_free(p);
			continue;
		}
		/* The piece stays in flight without a task; its reply will be skipped. */
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
		if (of->state == OPENED_YES && !link_send_close(l, of->handle)) {
			all = false;
			break;
		}
		/* Pieces in flight whose tasks have ended must not point to the file. */
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
	reach_put(l->reach);
	explicit_bzero(&l->server.key, sizeof(l->server.key));
	free(l);
}
