/* SPDX-License-Identifier: MIT */
/* The part of TLS sessions that needs no OpenSSL. */
#include "net/tls.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/socket.h>

#include "base/beside.h"
#include "base/err.h"

#define MODULE "libpenstock-tls.so"

static int load_tls_module(const void *near, const struct net_tls_ops **ret)
{
	const struct net_tls_ops *ops;
	char path[PATH_MAX];
	void *lib;
	int r;

	r = beside_path(near, MODULE, "TLS", path);
	if (r < 0)
		return r;
	/* Never unload: sessions may be open. */
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!lib)
		return err_set(ELIBACC,
			       "TLS needs %s, which cannot be loaded: %s; "
			       "install the library that is missing",
			       path, dlerror());
	ops = dlsym(lib, NET_TLS_SYMBOL);
	if (!ops || strncmp(ops->version, NET_TLS_VERSION, sizeof(ops->version)) != 0 ||
	    ops->size != sizeof(*ops))
		return err_set(ELIBBAD,
			       "%s is of another version; install module and library from "
			       "one release",
			       path);
	*ret = ops;
	return 0;
}

int net_tls_load(const void *near, const struct net_tls_ops **ret)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static const struct net_tls_ops *ops;
	int r = 0;

	(void)pthread_mutex_lock(&lock);
	if (!ops)
		r = load_tls_module(near, &ops);
	if (r == 0)
		*ret = ops;
	(void)pthread_mutex_unlock(&lock);
	return r;
}

int net_tls_flush(struct net_tls *t)
{
	while (net_tls_unsent(t)) {
		ssize_t n = send(t->fd, t->out + t->out_at, t->out_len - t->out_at,
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		t->out_at += (size_t)n;
	}
	t->out_at = t->out_len = 0;
	return 0;
}

int net_tls_handshake(struct net_tls *t)
{
	int r = t->ops->handshake(t), sent = net_tls_flush(t);

	/* Prefer the handshake's error: the peer's alert says more than the socket's errno. */
	if (r == 0 || r == -EAGAIN)
		return sent < 0 && sent != -EAGAIN ? sent : r;
	return r;
}

/* Bytes to send, and the position up to which records have taken them. */
struct outgoing {
	const struct iovec *iov;
	size_t nr;
	size_t at; /* offset in the first vector */
	int (*copy)(void *to, const void *from, uint64_t len);
};

static void outgoing_take(struct outgoing *o, size_t n)
{
	o->at += n;
	if (o->at == o->iov->iov_len) {
		o->iov++;
		o->nr--;
		o->at = 0;
	}
}

static int outgoing_copy(const struct outgoing *o, void *to, size_t n)
{
	const char *from = (char *)o->iov->iov_base + o->at;

	if (o->copy)
		return o->copy(to, from, n);
	memcpy(to, from, n);
	return 0;
}

/*
 * Take the bytes of the next record.  A whole record in memory that stays mapped is used in place;
 * other bytes are gathered in buf, which holds NET_TLS_RECORD bytes.
 *
 * Return: bytes of the record; -errno of the copy.
 */
static ssize_t outgoing_record(struct outgoing *o, uint8_t *buf, const void **ret)
{
	size_t n = 0;

	*ret = buf;
	if (!o->copy && o->iov->iov_len - o->at >= NET_TLS_RECORD) {
		*ret = (char *)o->iov->iov_base + o->at;
		outgoing_take(o, NET_TLS_RECORD);
		return NET_TLS_RECORD;
	}
	while (o->nr && n < NET_TLS_RECORD) {
		size_t part = MIN((size_t)NET_TLS_RECORD - n, o->iov->iov_len - o->at);
		int r = outgoing_copy(o, buf + n, part);

		if (r < 0)
			return r;
		n += part;
		outgoing_take(o, part);
	}
	return (ssize_t)n;
}

ssize_t net_tls_send(struct net_tls *t, const struct iovec *iov, size_t nr,
		     int (*copy)(void *to, const void *from, uint64_t len))
{
	struct outgoing o = { .iov = iov, .nr = nr, .copy = copy };
	uint8_t buf[NET_TLS_RECORD];
	ssize_t all = 0;
	int r = 0;

	while (o.nr && r == 0) {
		const void *record;
		ssize_t n;

		if (NET_TLS_OUT_MAX - t->out_len < NET_TLS_RECORD_MAX) {
			r = net_tls_flush(t);
			continue;
		}
		n = outgoing_record(&o, buf, &record);
		r = n < 0 ? (int)n : t->ops->put(t, record, (size_t)n);
		if (r == 0)
			all += n;
	}
	if (r == 0)
		r = net_tls_flush(t);
	if (r < 0 && r != -EAGAIN)
		return r;
	return all ? all : -EAGAIN;
}
