/* SPDX-License-Identifier: MIT */
/* Requests that wait for their answer: to open a file, and to ask for its size. */
#include <poll.h>
#include <stdio.h>

#include "base/crc32c.h"
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

static int send_all(int fd, const uint8_t *buf, size_t len, uint64_t deadline_ns)
{
	while (len) {
		ssize_t n = send(fd, buf, len, MSG_NOSIGNAL | MSG_DONTWAIT);
		int r;

		if (n >= 0) {
			buf += n;
			len -= (size_t)n;
			continue;
		}
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		r = wait_for(fd, POLLOUT, deadline_ns);
		if (r < 0)
			return r;
	}
	return 0;
}

static int recv_all(int fd, uint8_t *buf, size_t len, uint64_t deadline_ns)
{
	while (len) {
		ssize_t n = recv(fd, buf, len, MSG_DONTWAIT);
		int r;

		if (n == 0)
			return -ECONNRESET;
		if (n > 0) {
			buf += n;
			len -= (size_t)n;
			continue;
		}
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		r = wait_for(fd, POLLIN, deadline_ns);
		if (r < 0)
			return r;
	}
	return 0;
}

/* A reply of at most sizeof(payload) bytes: its error, 0, or -errno. */
static int get_reply(int fd, uint16_t op, uint8_t payload[WIRE_HELLO_MAX], uint32_t *ret_len,
		     uint32_t *ret_err, uint64_t deadline_ns)
{
	uint8_t head[WIRE_HEAD];
	struct wire_reply rep;
	int r = recv_all(fd, head, sizeof(head), deadline_ns);

	if (r == 0)
		r = wire_get_reply(head, &rep);
	if (r == 0 && (rep.op != op || wire_payload(rep.len) > WIRE_HELLO_MAX))
		r = -EBADMSG;
	if (r < 0)
		return r;
	*ret_err = rep.err;
	*ret_len = wire_payload(rep.len);
	return recv_all(fd, payload, *ret_len, deadline_ns);
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

int remote_ask(const struct net_addr *addr, struct wire_request *q, const char *name,
	       struct wire_attr *ret_attr)
{
	uint64_t deadline = now_ns() + REMOTE_CONNECT_NS;
	uint8_t buf[2 * WIRE_HEAD + WIRE_HELLO_LEN + WIRE_NAME_MAX], payload[WIRE_HELLO_MAX];
	struct wire_request hi = { .len = WIRE_HEAD + WIRE_HELLO_LEN, .op = WIRE_HELLO };
	_cleanup_(closep) int fd = connect_to(addr, deadline);
	size_t at = 0, len = strnlen(name, WIRE_NAME_MAX);
	struct wire_welcome w;
	struct wire_hello h;
	uint32_t n = 0, err = 0;
	int r;

	if (fd < 0)
		return err_link(fd);
	remote_hello(&h, remote_channel(), 1);
	wire_put_request(&hi, buf);
	wire_put_hello(&h, buf + WIRE_HEAD);
	at = hi.len;
	q->len = WIRE_HEAD + (uint32_t)len;
	wire_put_request(q, buf + at);
	memcpy(buf + at + WIRE_HEAD, name, len);
	at += q->len;
	r = send_all(fd, buf, at, deadline);
	if (r == 0)
		r = get_reply(fd, WIRE_HELLO, payload, &n, &err, deadline);
	if (r == 0 && err)
		r = -(int)err;
	if (r == 0)
		r = wire_get_welcome(payload, n, &w);
	/* The disk may have to wake up. */
	deadline += REMOTE_CONNECT_NS;
	if (r == 0)
		r = get_reply(fd, q->op, payload, &n, &err, deadline);
	if (r < 0)
		return err_link(r);
	if (err)
		return err_set((int)err, "%s", err_name((int)err));
	return wire_get_attr(payload, n, ret_attr) < 0 ? err_link(-EBADMSG) : 0;
}
