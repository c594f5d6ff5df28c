/* SPDX-License-Identifier: MIT */
/* Establish connections: addresses, keys, the hello. */
#include <poll.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/err.h"
#include "base/log.h"
#include "base/opts.h"
#include "peer/peer.h"

#define GREETS_MAX 64u /* connections per listener that have not sent their hello */
#define BACKLOG 128

/* -------------------------------------------------------------------- keys */

void peer_keys_put(struct peer_keys *k)
{
	if (!k || atomic_fetch_sub(&k->refs, 1) > 1)
		return;
	net_keys_free(&k->keys);
	free(k);
}

static int choose_key(struct peer_keys *k, const struct pst_peer_opts *o)
{
	if (o->key) {
		k->key = net_keys_find(&k->keys, o->key, strlen(o->key));
		return k->key ? 0
			      : err_set(ENOKEY,
					"%s has no key %s; add its line from the file of "
					"the side that listens",
					o->keys, o->key);
	}
	if (k->keys.nr > 1)
		return err_set(ENOKEY, "%s has %u keys; name one of them", o->keys, k->keys.nr);
	k->key = &k->keys.keys[0];
	return 0;
}

static int keys_get(const struct pst_peer_opts *o, bool connects, struct peer_keys **ret)
{
	struct peer_keys *k = calloc(1, sizeof(*k));
	int r;

	if (!k)
		return err_set(ENOMEM, "out of memory");
	atomic_init(&k->refs, 1);
	r = net_keys_read(o->keys, &k->keys);
	if (r == -ENOENT)
		r = err_set(ENOENT, "there is no file of keys %s", o->keys);
	if (r == 0 && !k->keys.nr)
		r = err_set(ENOKEY, "%s has no key; add a line NAME:HEX", o->keys);
	if (r == 0)
		r = net_tls_load(&peer_thread, &k->tls);
	if (r == 0 && connects)
		r = choose_key(k, o);
	if (r < 0)
		peer_keys_put(TAKE_PTR(k));
	else
		*ret = k;
	return r;
}

/* Get the address and the keys; fail if bytes must not go there without keys. */
static int connect_get_ready(const char *text, const struct pst_peer_opts *opts, bool connects,
			     struct net_addr *ret_addr, struct peer_keys **ret_keys)
{
	struct pst_peer_opts o;
	int r = opts_copy(&o, sizeof(o), opts);

	*ret_keys = NULL;
	if (r < 0)
		return r;
	if (o.flags & ~PST_PEER_PLAIN || o.reserved)
		return err_set(EINVAL, "flags 0x%x are not known", o.flags);
	if (o.flags & PST_PEER_PLAIN && o.keys)
		return err_set(EINVAL, "PST_PEER_PLAIN and keys exclude each other");
	if (o.key && !(o.keys && connects))
		return err_set(EINVAL, "a name of a key goes with a file of keys, to connect");
	if (!text)
		return err_set(EINVAL, "no address is given");
	r = net_addr_find(text, !connects, ret_addr);
	if (r < 0)
		return r;
	/* Keys are not needed on AF_UNIX: the kernel identifies the other end. */
	if (o.keys && ret_addr->sa.ss_family == AF_UNIX)
		return err_set(EINVAL, "keys are not used at an AF_UNIX socket; give none");
	if (!o.keys && !(o.flags & PST_PEER_PLAIN) && !net_addr_is_local(ret_addr))
		return err_set(EACCES,
			       "%s is beyond this machine, and without keys everybody on the way "
			       "could read and change the bytes; give a file of keys, or "
			       "PST_PEER_PLAIN if the network is trusted",
			       text);
	return o.keys ? keys_get(&o, connects, ret_keys) : 0;
}

/* ---------------------------------------------------------------- greeting */

void greet_done(struct greet *g)
{
	net_tls_end(TAKE_PTR(g->tls));
	peer_keys_put(TAKE_PTR(g->keys));
	/* Shut down before closing: a forked child may hold the socket, and would keep the
	 * connection open. */
	if (g->fd >= 0)
		(void)shutdown(g->fd, SHUT_RDWR);
	closep(&g->fd);
	g->fd = -1;
}

static int greet_begin(struct greet *g, int fd, bool accepted, struct peer_keys *keys)
{
	int r = 0;

	*g = (struct greet){
		.fd = fd,
		.accepted = accepted,
		.until = now_ns() + PEER_GREET_NS,
		.want = PEER_HEAD,
	};
	if (keys) {
		atomic_fetch_add(&keys->refs, 1);
		g->keys = keys;
		r = keys->tls->begin(fd, accepted ? NULL : keys->key, accepted ? &keys->keys : NULL,
				     &g->tls);
	}
	return r < 0 ? err_set(r, "no TLS session: %s", err_name(r)) : 0;
}

/* Send the hello, for which a new socket always has room. */
static int greet_send(struct greet *g)
{
	uint8_t buf[PEER_HEAD + PEER_HELLO_LEN];
	struct peer_msg m = { .len = sizeof(buf), .type = PEER_HELLO };
	struct peer_hello h = {
		.version = PEER_VERSION,
		.oldest = PEER_VERSION,
		.data_max = PEER_DATA_MAX,
		.inline_max = PST_MESSAGE_INLINE,
		.requests_max = PEER_REQUESTS_MAX,
		.messages_max = PEER_MESSAGES_MAX,
		.features = PEER_KNOWS_RDMA,
	};
	struct iovec iov = { buf, sizeof(buf) };
	ssize_t n;

	peer_put_msg(&m, buf);
	peer_put_hello(&h, buf + PEER_HEAD);
	if (g->tls) {
		n = net_tls_send(g->tls, &iov, 1, NULL);
	} else {
		n = send(g->fd, buf, sizeof(buf), MSG_DONTWAIT | MSG_NOSIGNAL);
		n = n < 0 ? -errno : n;
	}
	if (n < 0)
		return (int)n;
	g->sent = true;
	return n == sizeof(buf) ? 0 : -EPROTO;
}

static ssize_t greet_receive(struct greet *g)
{
	ssize_t n;

	if (g->tls)
		return net_tls_receive(g->tls, g->buf + g->got, g->want - g->got);
	n = recv(g->fd, g->buf + g->got, g->want - g->got, MSG_DONTWAIT);
	return n < 0 ? -errno : n;
}

/* Receive the other side's complete hello, and no byte after it. */
static int receive_hello(struct greet *g)
{
	struct peer_msg m;

	for (;;) {
		ssize_t n;

		if (g->got == PEER_HEAD) {
			if (peer_get_msg(g->buf, &m) < 0 || m.type != PEER_HELLO)
				return -EPROTO;
			g->want = m.len;
		}
		if (g->got == g->want) {
			int r = peer_get_hello(g->buf + PEER_HEAD, g->want - PEER_HEAD, &g->theirs);

			return r == -EBADMSG ? -EPROTO : r;
		}
		n = greet_receive(g);
		if (n == -EINTR)
			continue;
		if (n <= 0)
			return n ? (int)n : -ECONNRESET;
		g->got += (uint32_t)n;
	}
}

static int greet_err(const struct greet *g, int r)
{
	switch (-r) {
	case EKEYREJECTED:
		return err_set(r, "%s", g->tls->why);
	case EPROTO:
		return err_set(r, "%s",
			       g->tls && !g->tls->ready ? g->tls->why
							: "what is at the other end speaks no "
							  "protocol of peers; check the address, "
							  "and that both sides or none use keys");
	case EPROTONOSUPPORT:
		return err_set(r, "the peer speaks another version of the protocol; install the "
				  "same version of Penstock on both sides");
	case ECONNRESET:
	case EPIPE:
		return err_set(r, "the peer closed the connection; check that both sides or none "
				  "use keys, and that one of them listens");
	default:
		return err_set(r, "no connection to the peer: %s", err_name(r));
	}
}

int greet_go_on(struct greet *g, short *ret_events)
{
	int r = 0;

	if (g->tls && !g->tls->ready)
		r = net_tls_handshake(g->tls);
	if (r == 0 && !g->sent)
		r = greet_send(g);
	if (r == 0)
		r = receive_hello(g);
	if (r == -EAGAIN) {
		bool unsent = g->tls && net_tls_unsent(g->tls);

		*ret_events = (short)(POLLIN | (unsent ? POLLOUT : 0));
		if (unsent && g->tls->ready)
			(void)net_tls_flush(g->tls);
		return -EAGAIN;
	}
	return r < 0 ? greet_err(g, r) : 0;
}

/* Wait until the socket is ready.  Return 0, or -errno without a sentence. */
static int connect_wait_for(int fd, short events, uint64_t deadline_ns)
{
	for (;;) {
		struct pollfd p = { .fd = fd, .events = events };
		uint64_t now = now_ns();
		int n;

		if (now >= deadline_ns)
			return -ETIMEDOUT;
		n = poll(&p, 1, (int)MIN((deadline_ns - now) / NSEC_PER_MSEC + 1, UINT64_C(60000)));
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
	}
}

static int connect_socket(const struct net_addr *addr, uint64_t deadline_ns)
{
	int fd = net_socket(addr), err = 0, r;
	socklen_t len = sizeof(err);

	if (fd < 0)
		return fd;
	/* If a listener's queue is full, connect() to an AF_UNIX socket gives EAGAIN, which cannot
	 * be polled for. */
	while (connect(fd, (const struct sockaddr *)&addr->sa, addr->len) < 0) {
		struct timespec ts = { .tv_nsec = 1000000 };

		err = errno;
		if (err == EINPROGRESS || err == EISCONN) {
			r = connect_wait_for(fd, POLLOUT, deadline_ns);
			err = -r;
			if (r == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
				err = errno;
			break;
		}
		if (err != EAGAIN && err != EINTR)
			break;
		if (now_ns() >= deadline_ns) {
			err = ETIMEDOUT;
			break;
		}
		(void)nanosleep(&ts, NULL);
		err = 0;
	}
	if (!err)
		return fd;
	(void)close(fd);
	return -err;
}

int peer_connect(const char *text, const struct pst_peer_opts *opts, uint64_t deadline_ns,
		 struct pst_peer **ret)
{
	struct peer_keys *keys;
	struct net_addr addr;
	struct greet g;
	short events;
	int fd, r;

	r = connect_get_ready(text, opts, true, &addr, &keys);
	if (r < 0)
		return r;
	fd = connect_socket(&addr, deadline_ns);
	if (fd < 0) {
		peer_keys_put(keys);
		return err_set(fd, "%s: no connection: %s", text, err_name(fd));
	}
	r = greet_begin(&g, fd, false, keys);
	peer_keys_put(keys);
	while (r == 0) {
		r = greet_go_on(&g, &events);
		if (r == 0)
			break;
		if (r == -EAGAIN)
			r = connect_wait_for(fd, events, deadline_ns);
		if (r == -ETIMEDOUT)
			r = err_set(r, "the peer does not answer; check that it accepts, and that "
				       "both sides or none use keys");
	}
	if (r == 0)
		r = peer_start(&g, ret);
	if (r < 0) {
		greet_done(&g);
		return err_set(r, "%s: %s", text, err_text());
	}
	return 0;
}

/* --------------------------------------------------------------- listening */

struct pst_listener {
	int fd;
	struct net_addr addr; /* address that the listener is bound to */
	struct peer_keys *keys;
	dev_t dev; /* device and inode of the AF_UNIX socket, which is unlinked at the end */
	ino_t ino;
	unsigned nr;
	struct greet *greets[GREETS_MAX];
	uint64_t left; /* now_ns() when the last peer_accept() returned, or 0 */
};

/* Return true if the socket was left behind by a dead process, so nobody listens. */
static bool unix_is_dead(const struct sockaddr_un *un)
{
	/* Non-blocking: a stuck listener with a full queue must not block this process. */
	_cleanup_(closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct stat st;

	return fd >= 0 && lstat(un->sun_path, &st) == 0 && S_ISSOCK(st.st_mode) &&
	       connect(fd, (const struct sockaddr *)un, sizeof(*un)) < 0 && errno == ECONNREFUSED;
}

/* Make up a random name in the directory of the socket. */
static int unix_other_name(const struct sockaddr_un *un, struct sockaddr_un *ret)
{
	const char *slash = strrchr(un->sun_path, '/');
	int dir = slash ? (int)(slash + 1 - un->sun_path) : 0, n;
	uint32_t number;

	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		return -EIO;
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	n = snprintf(ret->sun_path, sizeof(ret->sun_path), "%.*s.p%06x", dir, un->sun_path,
		     number & 0xffffff);
	return n < (int)sizeof(ret->sun_path) ? 0 : -ENAMETOOLONG;
}

/*
 * Remove a dead socket.  Return true if the path may be free now.  Another process may do the same
 * at this moment and listen there already, so check again after renaming the socket.
 */
static bool unix_remove_dead(const struct sockaddr_un *un)
{
	struct sockaddr_un away;

	if (!unix_is_dead(un) || unix_other_name(un, &away) < 0 ||
	    rename(un->sun_path, away.sun_path) < 0)
		return false;
	if (!unix_is_dead(&away) && link(away.sun_path, un->sun_path) < 0)
		log_warn("nobody can connect to %s any more: another process listened there",
			 un->sun_path);
	(void)unlink(away.sun_path);
	return true;
}

/*
 * Listen at a path.  The socket is linked to the path only once it listens, so no other process
 * takes it for a dead one.
 */
static int unix_listen(int fd, const struct sockaddr_un *un)
{
	struct sockaddr_un fresh;
	int r = unix_other_name(un, &fresh);

	if (r < 0)
		return r;
	/* Set the mode of the socket file that bind() creates. */
	(void)fchmod(fd, 0600);
	if (bind(fd, (const struct sockaddr *)&fresh, sizeof(fresh)) < 0)
		return -errno;
	if (listen(fd, BACKLOG) < 0)
		r = -errno;
	while (r == 0 && link(fresh.sun_path, un->sun_path) < 0) {
		r = -errno;
		if (r == -EEXIST)
			r = unix_remove_dead(un) ? 0 : -EADDRINUSE;
	}
	(void)unlink(fresh.sun_path);
	return r;
}

static const char *unix_path(const struct pst_listener *l)
{
	return ((const struct sockaddr_un *)&l->addr.sa)->sun_path;
}

static int listener_bind(struct pst_listener *l)
{
	struct net_addr bound = { .len = sizeof(bound.sa) };
	struct stat st;
	int on = 1;

	l->fd = net_socket(&l->addr);
	if (l->fd < 0)
		return l->fd;
	if (l->addr.sa.ss_family == AF_UNIX) {
		int r = unix_listen(l->fd, (const struct sockaddr_un *)&l->addr.sa);

		if (r < 0)
			return r;
		if (lstat(unix_path(l), &st) < 0)
			return -errno;
		l->dev = st.st_dev;
		l->ino = st.st_ino;
		return 0;
	}
	(void)setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(l->fd, (const struct sockaddr *)&l->addr.sa, l->addr.len) < 0 ||
	    listen(l->fd, BACKLOG) < 0)
		return -errno;
	if (getsockname(l->fd, (struct sockaddr *)&bound.sa, &bound.len) == 0)
		l->addr = bound;
	return 0;
}

int peer_listen(const char *text, const struct pst_peer_opts *opts, struct pst_listener **ret)
{
	struct pst_listener *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return err_set(ENOMEM, "out of memory");
	l->fd = -1;
	r = connect_get_ready(text, opts, false, &l->addr, &l->keys);
	if (r == 0) {
		r = listener_bind(l);
		if (r < 0)
			r = err_set(r, "cannot listen at %s: %s", text, err_name(r));
	}
	if (r < 0)
		peer_listener_free(l);
	else
		*ret = l;
	return r;
}

void peer_listener_text(const struct pst_listener *l, char *buf, size_t len)
{
	net_addr_text(&l->addr, buf, len);
}

static void listener_drop(struct pst_listener *l, unsigned i)
{
	greet_done(l->greets[i]);
	free(l->greets[i]);
	l->nr--;
	memmove(&l->greets[i], &l->greets[i + 1], (l->nr - i) * sizeof(l->greets[0]));
}

void peer_listener_free(struct pst_listener *l)
{
	struct stat st;

	if (!l)
		return;
	while (l->nr)
		listener_drop(l, l->nr - 1);
	/* Another listener may own the path by now. */
	if (l->ino && lstat(unix_path(l), &st) == 0 && st.st_dev == l->dev && st.st_ino == l->ino)
		(void)unlink(unix_path(l));
	closep(&l->fd);
	peer_keys_put(l->keys);
	free(l);
}

/* Accept the next connection.  Return 0; -EAGAIN if there is none; -errno. */
static int connect_take_connection(struct pst_listener *l)
{
	int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), r;
	struct greet *g;

	if (fd < 0) {
		switch (errno) {
		case EMFILE:
		case ENFILE:
		case ENOMEM:
		case ENOBUFS:
			return err_set(errno, "no connection can be taken: %s", err_name(errno));
		case EAGAIN:
			return -EAGAIN;
		default: /* the connection has ended already */
			return 0;
		}
	}
	net_socket_tune(fd, l->addr.sa.ss_family);
	g = calloc(1, sizeof(*g));
	r = g ? greet_begin(g, fd, true, l->keys) : err_set(ENOMEM, "out of memory");
	if (!g)
		(void)close(fd);
	if (r < 0) {
		if (g)
			greet_done(g);
		free(g);
		return r;
	}
	l->greets[l->nr++] = g;
	return 0;
}

/* Continue all handshakes.  Return 1 and the peer when one is complete; 0; -errno. */
static int listener_go_on(struct pst_listener *l, struct pollfd *fds, uint64_t *ret_until,
			  struct pst_peer **ret)
{
	uint64_t now = now_ns();

	*ret_until = UINT64_MAX;
	for (unsigned i = 0; i < l->nr;) {
		struct greet *g = l->greets[i];
		short events = 0;
		int r = greet_go_on(g, &events);

		if (r == 0) {
			/* If there is no descriptor or thread for the peer, retry in the next
			 * call. */
			r = peer_start(g, ret);
			if (r < 0)
				return r;
			listener_drop(l, i);
			return 1;
		}
		if (r != -EAGAIN || now >= g->until) {
			log_info("a connection ended before it was a peer's: %s",
				 r == -EAGAIN ? "it is silent" : err_text());
			listener_drop(l, i);
			continue;
		}
		*ret_until = MIN(*ret_until, g->until);
		fds[i] = (struct pollfd){ .fd = g->fd, .events = events };
		i++;
	}
	return 0;
}

/* Drop the oldest silent connection if all places are taken and another connection waits. */
static bool listener_make_room(struct pst_listener *l)
{
	struct pollfd p = { .fd = l->fd, .events = POLLIN };

	if (l->nr < GREETS_MAX || poll(&p, 1, 0) <= 0)
		return false;
	log_info("a connection ended before it was a peer's: others wait for its place");
	listener_drop(l, 0);
	return true;
}

static int accept_until(struct pst_listener *l, uint64_t deadline_ns, struct pst_peer **ret)
{
	unsigned dropped = 0;

	for (;;) {
		struct pollfd fds[GREETS_MAX + 1];
		uint64_t until, now;
		int r = 0;

		for (unsigned i = 0; i < GREETS_MAX && l->nr < GREETS_MAX && r == 0; i++)
			r = connect_take_connection(l);
		if (r != -EAGAIN && r < 0)
			return r;
		r = listener_go_on(l, fds, &until, ret);
		if (r)
			return r < 0 ? r : 0;
		/* All places are taken by connections that sent no hello. */
		if (dropped < GREETS_MAX && listener_make_room(l)) {
			dropped++;
			continue;
		}
		dropped = 0;
		now = now_ns();
		if (now >= deadline_ns)
			return err_set(ETIMEDOUT, "no peer connected before the deadline");
		until = MIN(until, deadline_ns);
		fds[l->nr] = (struct pollfd){ .fd = l->fd, .events = POLLIN };
		if (poll(fds, l->nr + 1,
			 until <= now ? 0
				      : (int)MIN((until - now) / NSEC_PER_MSEC + 1,
						 UINT64_C(60000))) < 0 &&
		    errno != EINTR)
			return err_set(errno, "cannot wait for peers: %s", err_name(errno));
	}
}

int peer_accept(struct pst_listener *l, uint64_t deadline_ns, struct pst_peer **ret)
{
	uint64_t pause = l->left ? now_ns() - l->left : 0;
	int r;

	/* Extend the time limits of handshakes by the time since the last call, because handshakes
	 * proceed only within calls. */
	for (unsigned i = 0; i < l->nr; i++)
		l->greets[i]->until += pause;
	r = accept_until(l, deadline_ns, ret);
	l->left = now_ns();
	return r;
}
