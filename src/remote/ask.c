/* SPDX-License-Identifier: MIT */
/* Blocking requests to a server, each waiting for its answer. */
#include <poll.h>
#include <stdio.h>

#include "base/err.h"
#include "remote/talk.h"

void remote_writes_add(struct remote_writes *w, uint64_t boot)
{
	if (w->dirty && w->boot != boot)
		w->lost = true;
	w->dirty = true;
	w->boot = boot;
	w->nr++;
}

int remote_writes_sync(struct remote_writes *w, uint64_t boot, uint64_t nr)
{
	if (w->dirty && w->boot != boot)
		w->lost = true;
	if (!w->lost && w->nr == nr)
		w->dirty = false;
	return w->lost ? -EIO : 0;
}

/* Wait until the socket is ready.  Return 0, -ETIMEDOUT or another -errno. */
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

struct remote_talk {
	int fd;
	struct net_tls *tls;  /* NULL: plain TCP */
	uint64_t deadline_ns; /* now_ns() deadline of the current answer */
	uint64_t limit_ns;    /* now_ns() deadline of all answers; 0: none */
	bool wants_tls;       /* a TLS alert came although the connection is plain */
	bool welcome;         /* the hello was answered */
	uint64_t features;    /* WIRE_FEATURE_* of the welcome */
	bool broken;          /* a request failed without an answer */
	size_t out_len;
	uint8_t out[2 * WIRE_HEAD + WIRE_HELLO_LEN + 2 * WIRE_NAME_MAX];
};

static ssize_t send_some(struct remote_talk *a, const uint8_t *buf, size_t len)
{
	struct iovec iov = { (void *)buf, len };
	ssize_t n;

	if (a->tls)
		return net_tls_send(a->tls, &iov, 1, NULL);
	n = send(a->fd, buf, len, MSG_NOSIGNAL | MSG_DONTWAIT);
	return n < 0 ? -errno : n;
}

static ssize_t receive_some(struct remote_talk *a, uint8_t *buf, size_t len)
{
	ssize_t n;

	if (a->tls)
		return net_tls_receive(a->tls, buf, len);
	n = recv(a->fd, buf, len, MSG_DONTWAIT);
	return n < 0 ? -errno : n;
}

/* Wait until the socket is readable, or writable if TLS output is pending. */
static int wait_more(struct remote_talk *a, short events)
{
	uint64_t until = a->limit_ns ? MIN(a->limit_ns, a->deadline_ns) : a->deadline_ns;
	bool unsent = a->tls && net_tls_unsent(a->tls);
	int r = wait_for(a->fd, (short)(events | (unsent ? POLLOUT : 0)), until);

	if (r == 0 && unsent) {
		r = net_tls_flush(a->tls);
		r = r == -EAGAIN ? 0 : r;
	}
	return r;
}

static int handshake(struct remote_talk *a, const struct remote_server *s)
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

static int send_all(struct remote_talk *a, const uint8_t *buf, size_t len)
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

static int recv_all(struct remote_talk *a, uint8_t *buf, size_t len, size_t *ret_got)
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

/* Return true if the bytes begin a TLS alert. */
static bool is_alert(const uint8_t *head, size_t got)
{
	return got >= 2 && head[0] == 21 && head[1] == 3;
}

/* Receive a reply with at most room bytes of payload. */
static int get_reply(struct remote_talk *a, uint16_t op, struct wire_reply *ret, uint8_t *payload,
		     uint32_t room)
{
	uint8_t head[WIRE_HEAD];
	size_t got;
	int r = recv_all(a, head, sizeof(head), &got);

	if (!a->tls && r < 0 && is_alert(head, got))
		a->wants_tls = true;
	if (r == 0)
		r = wire_get_reply(head, ret);
	if (r == 0 && (ret->op != op || wire_payload(ret->len) > room))
		r = -EBADMSG;
	return r < 0 ? r : recv_all(a, payload, wire_payload(ret->len), &got);
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

/* Put the hello into the buffer; it is sent together with the first request. */
static void put_hello(struct remote_talk *t, uint64_t channel, uint64_t epoch)
{
	struct wire_request hi = { .len = WIRE_HEAD + WIRE_HELLO_LEN, .op = WIRE_HELLO };
	struct wire_hello h;

	remote_hello(&h, channel, epoch);
	wire_put_request(&hi, t->out);
	wire_put_hello(&h, t->out + WIRE_HEAD);
	t->out_len = hi.len;
}

static int get_welcome(struct remote_talk *t)
{
	uint8_t payload[WIRE_HELLO_MAX];
	struct wire_welcome w;
	struct wire_reply rep;
	int r = get_reply(t, WIRE_HELLO, &rep, payload, sizeof(payload));

	if (r == 0 && rep.err)
		r = -(int)rep.err;
	if (r == 0)
		r = wire_get_welcome(payload, wire_payload(rep.len), &w);
	t->welcome = r == 0;
	t->features = r == 0 ? w.features : 0;
	return r;
}

static int exchange(struct remote_talk *t, struct wire_request *q, const void *bytes, size_t len,
		    struct wire_reply *ret, uint8_t *payload, uint32_t room)
{
	/* Send a small payload together with its header. */
	size_t with = t->out_len + WIRE_HEAD + len <= sizeof(t->out) ? len : 0;
	int r;

	q->len = WIRE_HEAD + (uint32_t)len;
	wire_put_request(q, t->out + t->out_len);
	memcpy(t->out + t->out_len + WIRE_HEAD, bytes, with);
	if (t->welcome)
		t->deadline_ns = now_ns() + REMOTE_CONNECT_NS;
	r = send_all(t, t->out, t->out_len + WIRE_HEAD + with);
	t->out_len = 0;
	if (r == 0 && with < len)
		r = send_all(t, bytes, len);
	if (r == 0 && !t->welcome)
		r = get_welcome(t);
	/* Allow the full time for the answer: the server's disk may have to spin up. */
	t->deadline_ns = now_ns() + REMOTE_CONNECT_NS;
	return r < 0 ? r : get_reply(t, q->op, ret, payload, room);
}

int remote_talk_ask(struct remote_talk *t, struct wire_request *q, const void *bytes, size_t len,
		    struct wire_reply *ret, void *payload, uint32_t room)
{
	int r = exchange(t, q, bytes, len, ret, payload, room);

	t->broken |= r < 0;
	if (t->wants_tls)
		return err_set(ENOKEY,
			       "the server takes TLS alone; give psts:// instead of pst://, "
			       "and the file of keys by PST_KEYS");
	if (r < 0)
		return err_link(r);
	return ret->err ? err_set((int)ret->err, "%s", err_name((int)ret->err)) : 0;
}

void remote_talk_limit(struct remote_talk *t, uint64_t deadline_ns)
{
	t->limit_ns = deadline_ns;
}

void remote_talk_stop(struct remote_talk *t)
{
	(void)shutdown(t->fd, SHUT_RDWR);
}

uint64_t remote_talk_features(const struct remote_talk *t)
{
	return t->features;
}

bool remote_talk_is_broken(const struct remote_talk *t)
{
	return t->broken;
}

int remote_talk_begin(const struct remote_server *server, uint64_t channel, uint64_t epoch,
		      struct remote_talk **ret)
{
	struct remote_talk *t = calloc(1, sizeof(*t));
	int r = 0;

	if (!t)
		return err_set(ENOMEM, "out of memory");
	t->deadline_ns = now_ns() + REMOTE_CONNECT_NS;
	t->fd = connect_to(&server->addr, t->deadline_ns);
	if (t->fd < 0)
		r = err_link(t->fd);
	else if (server->tls)
		r = handshake(t, server);
	if (r < 0) {
		remote_talk_end(t);
		return r;
	}
	put_hello(t, channel, epoch);
	*ret = t;
	return 0;
}

void remote_talk_end(struct remote_talk *t)
{
	if (!t)
		return;
	net_tls_end(t->tls);
	if (t->fd >= 0)
		(void)close(t->fd);
	free(t);
}

int remote_get_attr(const void *payload, const struct wire_reply *rep, struct wire_attr *ret)
{
	return wire_get_attr(payload, wire_payload(rep->len), ret) < 0 ? err_link(-EBADMSG) : 0;
}

int remote_ask(const struct remote_server *server, struct wire_request *q, const char *name,
	       struct wire_attr *ret_attr, uint64_t *ret_features)
{
	uint8_t payload[WIRE_ATTR_LEN];
	struct remote_talk *t = NULL;
	struct wire_reply rep;
	int r = remote_talk_begin(server, remote_channel(), 1, &t);

	if (r == 0)
		r = remote_talk_ask(t, q, name, strlen(name), &rep, payload, sizeof(payload));
	if (r == 0)
		r = remote_get_attr(payload, &rep, ret_attr);
	if (r == 0 && ret_features)
		*ret_features = t->features;
	remote_talk_end(t);
	return r;
}
