/* SPDX-License-Identifier: MIT */
/* The thread of a connection, which receives and sends. */
#include <poll.h>
#include <sys/eventfd.h>

#include "base/err.h"
#include "base/log.h"
#include "file/op.h"
#include "net/verbs/nic.h"
#include "peer/peer.h"

#define LONG KIB(16) /* bytes; longer payloads bypass the receive buffer */
#define RDMA_LOOK_MS 20
#define NIC_PAUSE_MS 3 /* more than NIC_EVENTS_NS */
#define TURN_MAX 64u   /* receive calls before sending gets a turn */

/* ----------------------------------------------------------------- receive */

/* Continue to receive a long reply straight to its place.  Return 1; 0 if the message is short or
 * is no reply; -errno. */
static int begin_body(struct pst_peer *p, const struct peer_msg *m, uint32_t have)
{
	struct peer_request *q;
	int r;

	if (m->type != PEER_DATA || m->count <= LONG || p->tls)
		return 0;
	(void)pthread_mutex_lock(&p->lock);
	q = peer_request_find(p, m->id, PEER_GET);
	if (!q || m->count != q->len) {
		r = -EPROTO;
	} else {
		r = peer_store(q, 0, p->rx + p->rx_at + PEER_HEAD, have);
		p->body = q;
		p->body_at = have;
		p->body_len = m->count;
		p->body_err = r;
		r = 1;
	}
	(void)pthread_mutex_unlock(&p->lock);
	p->rx_at = p->rx_len = 0;
	return r;
}

/* Handle all complete messages in the buffer. */
static int thread_take_buffer(struct pst_peer *p)
{
	while (p->rx_len - p->rx_at >= PEER_HEAD) {
		uint8_t *at = p->rx + p->rx_at;
		uint32_t have = p->rx_len - p->rx_at;
		struct peer_msg m;
		int r;

		if (peer_get_msg(at, &m) < 0)
			return -EPROTO;
		if (have < m.len) {
			r = begin_body(p, &m, have - PEER_HEAD);
			if (r)
				return r < 0 ? r : 0;
			break;
		}
		r = peer_got(p, &m, at + PEER_HEAD);
		if (r < 0)
			return r;
		p->rx_at += m.len;
	}
	memmove(p->rx, p->rx + p->rx_at, p->rx_len - p->rx_at);
	p->rx_len -= p->rx_at;
	p->rx_at = 0;
	return 0;
}

static int thread_keep_fd(struct pst_peer *p, int fd)
{
	if (p->nr_fds == PEER_FDS_MAX) {
		closep(&fd);
		return -EPROTO;
	}
	p->fds[p->nr_fds++] = fd;
	return 0;
}

/* Keep received descriptors.  Return -EPROTO if there are more than were asked for. */
static int thread_take_fds(struct pst_peer *p, struct msghdr *h)
{
	bool some = false;
	int r = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= c->cmsg_len; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			some = true;
			if (thread_keep_fd(p, fd) < 0)
				r = -EPROTO;
		}
	}
	/* A message carries one descriptor.  If this process may open no more, the kernel drops the
	 * descriptor, and reports only this flag. */
	if (h->msg_flags & MSG_CTRUNC && (some || thread_keep_fd(p, -1) < 0))
		r = -EPROTO;
	return r;
}

static ssize_t receive_local(struct pst_peer *p, void *buf, size_t len)
{
	union {
		struct cmsghdr align;
		char buf[256];
	} control;
	struct iovec iov = { buf, len };
	struct msghdr h = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.buf,
			    .msg_controllen = sizeof(control.buf) };
	ssize_t n = recvmsg(p->fd, &h, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	int r;

	if (n < 0)
		return -errno;
	r = thread_take_fds(p, &h);
	return r < 0 ? r : n;
}

/* Return the bytes received; 0 at the end; -errno. */
static ssize_t thread_receive_some(struct pst_peer *p, void *buf, size_t len)
{
	ssize_t n;

	if (p->tls)
		return net_tls_receive(p->tls, buf, len);
	if (p->info & PST_PEER_LOCAL)
		return receive_local(p, buf, len);
	n = recv(p->fd, buf, len, MSG_DONTWAIT);
	return n < 0 ? -errno : n;
}

/* Receive the rest of a long reply.  If its place is gone, skip the bytes. */
static ssize_t thread_receive_body(struct pst_peer *p)
{
	uint32_t left = p->body_len - p->body_at;
	struct peer_request *q = p->body;
	ssize_t n;
	char *to;

	(void)pthread_mutex_lock(&p->lock);
	to = p->body_err ? NULL : peer_place_of(q, p->body_at);
	n = recv(p->fd, to ? to : (char *)p->rx, MIN(left, (uint32_t)PEER_RX_MAX), MSG_DONTWAIT);
	if (n < 0 && errno == EFAULT && to) {
		p->body_err = -EFAULT;
		n = -EINTR;
	} else if (n < 0) {
		n = -errno;
	} else {
		p->body_at += (uint32_t)n;
		if (p->body_at == p->body_len) {
			peer_request_end(p, q, p->body_err);
			p->body = NULL;
			(void)pthread_cond_broadcast(&p->more);
		}
	}
	(void)pthread_mutex_unlock(&p->lock);
	return n;
}

/* Handle the end of the stream (n is 0 or -errno), and record whether the other side closed its
 * socket. */
static int thread_ended(struct pst_peer *p, int n)
{
	if (n && n != -ECONNRESET)
		return n;
	(void)pthread_mutex_lock(&p->lock);
	p->gone = true;
	(void)pthread_mutex_unlock(&p->lock);
	return -EPIPE;
}

/* Receive what has arrived.  Return 0, with *ret_more set if there may be more; -errno; -EPIPE at
 * the end. */
static int thread_receive(struct pst_peer *p, bool *ret_more)
{
	for (unsigned i = 0; i < TURN_MAX; i++) {
		ssize_t n;
		int r = 0;

		if (p->body) {
			n = thread_receive_body(p);
		} else {
			n = thread_receive_some(p, p->rx + p->rx_len, PEER_RX_MAX - p->rx_len);
			if (n > 0) {
				p->rx_len += (uint32_t)n;
				r = thread_take_buffer(p);
			}
		}
		if (r < 0)
			return r;
		if (n == -EINTR)
			continue;
		if (n == -EAGAIN)
			return 0;
		if (n <= 0)
			return thread_ended(p, (int)n);
	}
	*ret_more = true;
	return 0;
}

/* ------------------------------------------------------------------- send */

static bool thread_has_room(const struct pst_peer *p, uint32_t len)
{
	return p->tx_len + PEER_HEAD + len <= PEER_TX_MAX;
}

/* Add a message whose payload is already in the buffer. */
static void thread_put(struct pst_peer *p, const struct peer_msg *m)
{
	peer_put_msg(m, p->tx + p->tx_len);
	p->tx_len += m->len;
}

/* Add a reply to a GET or PUT. */
static bool fill_reply(struct pst_peer *p)
{
	struct served *s = &p->served[p->served_at];
	struct peer_msg m = { .len = PEER_HEAD, .id = s->id };

	if (!p->nr_served || !thread_has_room(p, s->type == PEER_GET ? s->count : 0))
		return false;
	m.type = PEER_DONE;
	m.err = s->err;
	if (s->type == PEER_GET) {
		struct peer_msg asked = { .share = s->share, .off = s->off, .count = s->count };
		int r = share_move(p, MEM_FROM_DEVICE, &asked, p->tx + p->tx_len + PEER_HEAD);

		m.type = PEER_DATA;
		m.err = (uint32_t)-r;
		m.count = r < 0 ? 0 : s->count;
		m.len += m.count;
	}
	thread_put(p, &m);
	p->served_at = (p->served_at + 1) % PEER_REQUESTS_MAX;
	p->nr_served--;
	p->nr_owed--;
	return true;
}

/* Move a queued item into tx.  The lock is held. */
static bool fill_item(struct pst_peer *p)
{
	struct item *i = p->out.head;

	/* A descriptor is sent with the first byte of a call, so it needs an empty buffer. */
	if (!i || !thread_has_room(p, i->len) || (i->fd >= 0 && p->tx_len))
		return false;
	(void)peer_items_pop(&p->out);
	memcpy(p->tx + p->tx_len + PEER_HEAD, i->payload, i->len);
	if (i->fd >= 0)
		p->tx_fd = TAKE_FD(i->fd);
	thread_put(p, &i->m);
	p->nr_untaken -= i->m.type == PEER_TAKEN;
	p->nr_revoked -= i->m.type == PEER_REVOKED;
	p->nr_owed -= i->m.type == PEER_OPENED || i->m.type == PEER_REACHED;
	peer_item_free(i);
	return true;
}

/* Add a request.  The lock is held. */
static bool fill_request(struct pst_peer *p)
{
	struct peer_request *q;
	struct peer_msg m;
	struct io_op *op;
	char *from;
	int r = 0;

	if (!p->todo.head ||
	    !thread_has_room(p, p->todo.head->op->kind == IO_READ ? 0 : PEER_DATA_MAX))
		return false;
	q = peer_request_next(p, &m);
	if (!q)
		return false;
	op = q->task->op;
	from = (char *)op->buf + q->off;
	if (m.type == PEER_PUT)
		r = io_op_load(op, p->tx + p->tx_len + PEER_HEAD, from, q->len);
	if (r == 0)
		thread_put(p, &m);
	else
		peer_request_end(p, q, r);
	return true;
}

/* Fill the buffer with waiting messages, the kinds in turn.  Return false if there are none. */
static bool thread_fill(struct pst_peer *p)
{
	bool some = false, more = true;

	if (p->tx_at < p->tx_len || p->shut)
		return false;
	p->tx_at = p->tx_len = 0;
	/* Send a message with a descriptor first: it needs an empty buffer. */
	(void)pthread_mutex_lock(&p->lock);
	if (p->out.head && p->out.head->fd >= 0)
		some = fill_item(p);
	(void)pthread_mutex_unlock(&p->lock);
	while (more) {
		more = fill_reply(p);
		(void)pthread_mutex_lock(&p->lock);
		more |= fill_item(p);
		more |= fill_request(p);
		(void)pthread_mutex_unlock(&p->lock);
		some |= more;
	}
	return some;
}

static ssize_t thread_send_some(struct pst_peer *p)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec iov = { p->tx + p->tx_at, p->tx_len - p->tx_at };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (p->tls)
		return net_tls_send(p->tls, &iov, 1, NULL);
	if (p->tx_fd >= 0) {
		struct cmsghdr *c;

		h.msg_control = control.buf;
		h.msg_controllen = sizeof(control.buf);
		c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &p->tx_fd, sizeof(int));
	}
	n = sendmsg(p->fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n < 0)
		return -errno;
	closep(&p->tx_fd);
	p->tx_fd = -1;
	return n;
}

/* Return 0 if the kernel took everything; -EAGAIN; -errno. */
static int thread_flush(struct pst_peer *p)
{
	if (p->tls && net_tls_unsent(p->tls)) {
		int r = net_tls_flush(p->tls);

		if (r < 0)
			return r;
	}
	while (p->tx_at < p->tx_len) {
		ssize_t n = thread_send_some(p);

		if (n == -EINTR)
			continue;
		if (n < 0)
			return (int)n;
		p->tx_at += (uint32_t)n;
	}
	return p->tls && net_tls_unsent(p->tls) ? -EAGAIN : 0;
}

/* Send what is waiting.  Return 0; -EAGAIN if the socket is full; -errno. */
static int thread_send_all(struct pst_peer *p)
{
	int r = thread_flush(p);

	while (r == 0 && thread_fill(p))
		r = thread_flush(p);
	if (r == -ECONNRESET)
		return -EPIPE;
	return r;
}

/* ------------------------------------------------------------------- thread */

/* Handle pst_peer_close().  Set the milliseconds to wait; return -EPIPE when the connection is
 * over. */
static int close_slowly(struct pst_peer *p, bool sent, int *ret_timeout_ms)
{
	uint64_t now = now_ns(), until;
	bool closing, idle;

	(void)pthread_mutex_lock(&p->lock);
	closing = p->closing;
	until = p->linger_until;
	idle = sent && !p->out.head;
	(void)pthread_mutex_unlock(&p->lock);
	if (!closing)
		return 0;
	if (now >= until)
		return -EPIPE;
	/* Closing the sending side tells the other side that none of its memory is in use here.
	 * The other side then reads everything and ends the connection. */
	if (idle && !p->shut) {
		(void)pthread_mutex_lock(&p->lock);
		imports_end(p);
		(void)pthread_mutex_unlock(&p->lock);
		(void)shutdown(p->fd, SHUT_WR);
		p->shut = true;
	}
	*ret_timeout_ms = (int)((until - now) / NSEC_PER_MSEC) + 1;
	return 0;
}

static int sooner(int timeout_ms, int most_ms)
{
	return timeout_ms < 0 ? most_ms : MIN(timeout_ms, most_ms);
}

/* Wait for work, or for the failure of @nic, which may be NULL. */
static void thread_wait(struct pst_peer *p, bool full, int rdma_fd, struct nic *nic, int timeout_ms)
{
	bool pause = nic && p->nic_pause;
	struct pollfd fds[] = {
		{ .fd = p->fd, .events = (short)(POLLIN | (full ? POLLOUT : 0)) },
		{ .fd = p->efd, .events = POLLIN },
		{ .fd = rdma_fd, .events = POLLIN },
		{ .fd = nic ? nic->dead_fd : -1, .events = POLLIN },
		{ .fd = nic && !pause ? nic->ctx->async_fd : -1, .events = POLLIN },
	};
	eventfd_t n;
	int r;

	/* Poll regularly: a NIC reports a failure only when asked. */
	if (rdma_fd >= 0)
		timeout_ms = sooner(timeout_ms, RDMA_LOOK_MS);
	/* Limit how often the NIC's events are read: another thread may have read them just now,
	 * and nic_events() then leaves new ones for later. */
	if (pause)
		timeout_ms = sooner(timeout_ms, NIC_PAUSE_MS);
	r = poll(fds, ARRAY_SIZE(fds), timeout_ms);
	p->nic_pause = fds[4].revents;
	if (pause || p->nic_pause)
		nic_events(nic);
	if (r <= 0 || !fds[1].revents)
		return;
	(void)pthread_mutex_lock(&p->lock);
	(void)eventfd_read(p->efd, &n);
	p->kicked = false;
	(void)pthread_mutex_unlock(&p->lock);
}

static void thread_end(struct pst_peer *p, int err)
{
	bool keep; /* keep the socket, so that share_close() can wait for the other side to close */

	if (err == -EPROTO)
		log_warn("a peer broke the protocol and was disconnected");
	else if (err != -EPIPE)
		log_info("the connection to a peer ended: %s", err_name(err));
	(void)pthread_mutex_lock(&p->lock);
	p->err = -err;
	peer_tasks_fail(p, -EPIPE);
	rdma_end(p);
	(void)pthread_cond_broadcast(&p->more);
	/* End the imports before the shutdown, which tells the other side that none of its memory
	 * is in use here. */
	imports_end(p);
	keep = p->nr_granted;
	/* Closing is not enough: a forked child may hold the socket, and would keep the connection
	 * open. */
	(void)shutdown(p->fd, keep ? SHUT_WR : SHUT_RDWR);
	if (!keep) {
		closep(&p->fd);
		p->fd = -1;
	}
	(void)pthread_mutex_unlock(&p->lock);
	/* The program may keep the peer and its shares for long.  No thread waits for the NIC's
	 * events any more, and a NIC that failed must be closed before others can be used. */
	rdma_release(p);
}

void *peer_thread(void *arg)
{
	struct pst_peer *p = arg;
	int r = 0;

	(void)pthread_setname_np(pthread_self(), "pst-peer");
	while (r == 0) {
		int timeout_ms = -1;
		bool more = false, full;
		struct nic *nic;
		int rdma_fd;

		r = thread_receive(p, &more);
		if (r < 0)
			break;
		rdma_fd = rdma_turn(p, &nic);
		r = thread_send_all(p);
		full = r == -EAGAIN;
		if (r < 0 && !full)
			break;
		r = close_slowly(p, !full, &timeout_ms);
		if (r == 0)
			thread_wait(p, full, rdma_fd, nic, more ? 0 : timeout_ms);
	}
	thread_end(p, r);
	return NULL;
}
