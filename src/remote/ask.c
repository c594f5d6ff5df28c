/* SPDX-License-Identifier: MIT */
/* Requests that wait for their answer: to open a file, and to ask for its size. */
#include <poll.h>
#include <stdio.h>

#include "base/err.h"
#include "remote/remote.h"

/* Wait for the socket: 0 or -ETIMEDOUT. */
static int wait_for(int fd, short events, uint64_t deadline_ns)
{
	for (;;) {
		struct pollfd p = { .fd = fd, .events = events };
		uint64_t now = now_ns();
		int n;

		if (now >= deadline_ns)
			return -ETIMEDOUT;
		n = poll(&p, 1, (int)((deadline_ns - now) / NSEC_PER_MSEC) + 1);
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
	}
}

static int connect_to(const struct net_addr *addr, uint64_t deadline_ns)
{
	int fd = net_socket(addr), err = 0, r;
	socklen_t len = sizeof(err);

	if (fd < 0)
		return fd;
	if (connect(fd, (const struct sockaddr *)&addr->sa, addr->len) == 0)
		return fd;
	err = errno;
	if (err == EINPROGRESS) {
		r = wait_for(fd, POLLOUT, deadline_ns);
		err = -r;
		if (r == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
			err = errno;
	}
	if (!err)
		return fd;
	(void)close(fd);
	return -err;
}

/* A connection that one request is sent on. */
struct ask {
	int fd;
	struct net_tls *tls; /* NULL: plain */
	uint64_t deadline_ns;
	bool wants_tls; /* the server answered by TLS */
};

static int copy_bytes(void *to, const void *from, uint64_t len)
{
	memcpy(to, from, len);
	return 0;
}

static ssize_t send_some(struct ask *a, const uint8_t *buf, size_t len)
{
	struct iovec iov = { (void *)buf, len };
	ssize_t n;

	if (a->tls)
		return net_tls_send(a->tls, &iov, 1, copy_bytes);
	n = send(a->fd, buf, len, MSG_NOSIGNAL | MSG_DONTWAIT);
	return n < 0 ? -errno : n;
}

static ssize_t receive_some(struct ask *a, uint8_t *buf, size_t len)
{
	ssize_t n;

	if (a->tls)
		return net_tls_receive(a->tls, buf, len);
	n = recv(a->fd, buf, len, MSG_DONTWAIT);
	return n < 0 ? -errno : n;
}

/* Wait until more can be received, or sent where something is left of that. */
static int wait_more(struct ask *a, short events)
{
	bool unsent = a->tls && net_tls_unsent(a->tls);
	int r = wait_for(a->fd, (short)(events | (unsent ? POLLOUT : 0)), a->deadline_ns);

	if (r == 0 && unsent) {
		r = net_tls_flush(a->tls);
		r = r == -EAGAIN ? 0 : r;
	}
	return r;
}

static int handshake(struct ask *a, const struct remote_server *s)
{
	int r = s->tls->begin(a->fd, &s->key, NULL, &a->tls);

	while (r == 0 && !a->tls->ready) {
		r = net_tls_handshake(a->tls);
		if (r == -EAGAIN)
			r = wait_more(a, POLLIN);
	}
	if (r == -EKEYREJECTED || r == -EPROTO)
		return err_set(r, "%s", a->tls->why);
	if (r == -ECONNRESET)
		return err_set(r, "the server closed the connection in the TLS handshake; it may "
				  "serve without --keys (pst://), or have as many clients as it "
				  "takes (penstock serve --clients)");
	if (r == -ETIMEDOUT)
		return err_set(r, "the server does not answer in the TLS handshake; it may serve "
				  "without --keys (pst://)");
	return r < 0 ? err_set(r, "no TLS connection to the server: %s", err_name(r)) : 0;
}

static int send_all(struct ask *a, const uint8_t *buf, size_t len)
{
	while (len) {
		ssize_t n = send_some(a, buf, len);
		int r;

		if (n >= 0) {
			buf += n;
			len -= (size_t)n;
			continue;
		}
		if (n != -EAGAIN && n != -EINTR)
			return (int)n;
		r = wait_more(a, POLLOUT);
		if (r < 0)
			return r;
	}
	return 0;
}

static int recv_all(struct ask *a, uint8_t *buf, size_t len, size_t *ret_got)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = receive_some(a, buf + got, len - got);
		int r = 0;

		if (n > 0) {
			got += (size_t)n;
			continue;
		}
		if (n == -EAGAIN)
			r = wait_more(a, POLLIN);
		else if (n != -EINTR)
			r = n ? (int)n : -ECONNRESET;
		if (r < 0) {
			*ret_got = got;
			return r;
		}
	}
	*ret_got = got;
	return 0;
}

/* Is it an alert of TLS? */
static bool is_alert(const uint8_t *head, size_t got)
{
	return got >= 2 && head[0] == 21 && head[1] == 3;
}

/* A reply of at most WIRE_HELLO_MAX bytes: its error, 0, or -errno. */
static int get_reply(struct ask *a, uint16_t op, uint8_t payload[WIRE_HELLO_MAX], uint32_t *ret_len,
		     uint32_t *ret_err)
{
	uint8_t head[WIRE_HEAD];
	struct wire_reply rep;
	size_t got;
	int r = recv_all(a, head, sizeof(head), &got);

	if (!a->tls && r < 0 && is_alert(head, got))
		a->wants_tls = true;
	if (r == 0)
		r = wire_get_reply(head, &rep);
	if (r == 0 && (rep.op != op || wire_payload(rep.len) > WIRE_HELLO_MAX))
		r = -EBADMSG;
	if (r < 0)
		return r;
	*ret_err = rep.err;
	*ret_len = wire_payload(rep.len);
	return recv_all(a, payload, *ret_len, &got);
}

static int err_link(int err)
{
	switch (-err) {
	case EBADMSG:
		return err_set(EPROTO, "what listens there is no storage service of Penstock");
	case EPROTONOSUPPORT:
		return err_set(-err, "the server speaks another version of the protocol; install "
				     "the same version of Penstock on both machines");
	case ECONNRESET:
	case EPIPE:
		return err_set(-err, "the server closed the connection; it may have as many "
				     "clients as it takes (penstock serve --clients)");
	case ETIMEDOUT:
		return err_set(-err, "the server does not answer");
	default:
		return err_set(-err, "no connection to the server: %s", err_name(err));
	}
}

/* A hello and the request. */
static size_t put_requests(uint8_t *buf, struct wire_request *q, const char *name)
{
	struct wire_request hi = { .len = WIRE_HEAD + WIRE_HELLO_LEN, .op = WIRE_HELLO };
	size_t len = strnlen(name, WIRE_NAME_MAX);
	struct wire_hello h;

	remote_hello(&h, remote_channel(), 1);
	wire_put_request(&hi, buf);
	wire_put_hello(&h, buf + WIRE_HEAD);
	q->len = WIRE_HEAD + (uint32_t)len;
	wire_put_request(q, buf + hi.len);
	memcpy(buf + hi.len + WIRE_HEAD, name, len);
	return hi.len + q->len;
}

static int ask(struct ask *a, struct wire_request *q, const char *name, struct wire_attr *ret_attr)
{
	uint8_t buf[2 * WIRE_HEAD + WIRE_HELLO_LEN + WIRE_NAME_MAX], payload[WIRE_HELLO_MAX];
	size_t len = put_requests(buf, q, name);
	uint32_t n = 0, err = 0;
	struct wire_welcome w;
	int r;

	r = send_all(a, buf, len);
	if (r == 0)
		r = get_reply(a, WIRE_HELLO, payload, &n, &err);
	if (r == 0 && err)
		r = -(int)err;
	if (r == 0)
		r = wire_get_welcome(payload, n, &w);
	/* The disk may have to wake up. */
	a->deadline_ns += REMOTE_CONNECT_NS;
	if (r == 0)
		r = get_reply(a, q->op, payload, &n, &err);
	if (a->wants_tls)
		return err_set(ENOKEY,
			       "the server takes TLS alone; give psts:// instead of pst://, "
			       "and the file of keys by PST_KEYS");
	if (r < 0)
		return err_link(r);
	if (err)
		return err_set((int)err, "%s", err_name((int)err));
	return wire_get_attr(payload, n, ret_attr) < 0 ? err_link(-EBADMSG) : 0;
}

int remote_ask(const struct remote_server *server, struct wire_request *q, const char *name,
	       struct wire_attr *ret_attr)
{
	struct ask a = { .deadline_ns = now_ns() + REMOTE_CONNECT_NS };
	int r = 0;

	a.fd = connect_to(&server->addr, a.deadline_ns);
	if (a.fd < 0)
		return err_link(a.fd);
	if (server->tls)
		r = handshake(&a, server);
	if (r == 0)
		r = ask(&a, q, name, ret_attr);
	net_tls_end(a.tls);
	(void)close(a.fd);
	return r;
}
