/* SPDX-License-Identifier: MIT */
/*
 * Connections: receive requests, and have them answered.  A connection at its limit of requests or
 * bytes in flight is not read until some replies are sent.  So TCP blocks a client that reads no
 * replies, and other clients are not delayed.
 */
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include "serve/server.h"

/* maximum bytes read from one connection before the next one's turn */
#define TURN_MAX MIB(4)
/* maximum reads of one connection that the loop serves in one turn */
#define NOW_MAX 64u
#define INLINE_MAX KIB(64) /* bytes; larger reads are left to workers, which run in parallel */
#define SEND_AT KIB(256)   /* bytes of replies after which they are sent */
#define HELLO_S 10         /* seconds for TLS handshake and hello */

/* ---------------------------------------------------------------- requests */

/* Return the larger of the request's and the reply's payload bytes. */
static uint32_t conn_size_of(const struct wire_request *q)
{
	switch (q->op) {
	case WIRE_READ:
	case WIRE_WRITE:
	case WIRE_LIST:
	case WIRE_READ_RDMA:
	case WIRE_WRITE_RDMA:
		return q->count;
	case WIRE_OPEN:
	case WIRE_STAT:
	case WIRE_HELLO:
	case WIRE_RDMA:
		return WIRE_HELLO_LEN;
	default:
		return 0;
	}
}

/* Return the payload bytes that count for the rate, excluding those counted at the OPEN. */
static uint64_t conn_cost(const struct conn *c, const struct wire_request *q)
{
	struct handle *h = q->op == WIRE_WRITE ? handle_of(c, q->handle) : NULL;
	uint64_t bytes = conn_size_of(q), paid = h ? MIN(h->paid, bytes) : 0;

	if (h)
		h->paid -= paid;
	return bytes - paid;
}

void conn_pulled(struct job *j)
{
	j->conn->nr_pool++;
	pool_put(j->conn->s, j);
}

static void to_pool(struct job *j)
{
	if (j->handle)
		j->handle->refs++;
	if (j->q.op == WIRE_SYNC)
		j->writes = j->handle->nr_writes;
	j->conn->nr_pool++;
	pool_put(j->conn->s, j);
}

static void close_op(struct conn *c, struct job *j)
{
	struct handle *h = handle_of(c, j->q.handle);

	c->handles[j->q.handle - 1] = NULL;
	exec_reply(c->s, j);
	reply_queue(j);
	handle_unref(c, h);
}

void conn_request(struct conn *c, struct job *j, const uint8_t *payload)
{
	int r;

	if (j->q.op == WIRE_HELLO) {
		hello_take(c, j, payload);
		return;
	}
	if (j->q.op == WIRE_RDMA) {
		if (qp_ask(c, j, payload))
			to_pool(j);
		return;
	}
	if (job_has_name(j)) {
		r = job_take_names(j, payload);
		if (r < 0) {
			reply_queue_err(j, -r);
			return;
		}
	} else {
		j->handle = handle_of(c, j->q.handle);
		if (!j->handle) {
			reply_queue_err(j, EBADF);
			return;
		}
	}
	if (j->q.op == WIRE_OPEN && !handle_room(c)) {
		reply_queue_err(j, EMFILE);
		return;
	}
	if (j->q.op == WIRE_OPEN) {
		j->paid = store_new_bytes(c->s, j);
		rate_spend(c, j->paid);
	}
	if (j->q.op == WIRE_CLOSE)
		close_op(c, j);
	else if ((j->q.op == WIRE_READ || j->q.op == WIRE_READ_RDMA) && j->q.count <= INLINE_MAX &&
		 c->nr_now < NOW_MAX && exec_read_now(c->s, j)) {
		c->nr_now++;
		reply_queue(j);
	} else {
		j->quick = (j->q.op == WIRE_READ || j->q.op == WIRE_READ_RDMA) &&
			   j->q.count > INLINE_MAX;
		to_pool(j);
	}
}

/* Return true if the bytes begin a TLS handshake. */
static bool is_tls(const uint8_t *from)
{
	return from[0] == 22 && from[1] == 3;
}

/*
 * Take one message from n bytes.  Return the bytes taken (of a WRITE, those that have arrived), or
 * 0 if more bytes must arrive or the message must wait.
 */
static uint32_t take_one(struct conn *c, const uint8_t *from, uint32_t n)
{
	struct wire_request q;
	uint64_t wait;
	struct job *j;
	uint32_t len;

	if (n < WIRE_HEAD)
		return 0;
	if (wire_get_request(from, &q) < 0 || (q.op == WIRE_HELLO) != !c->greeted) {
		conn_kill(c, !c->greeted && is_tls(from)
				     ? "it speaks TLS, and this address does not; start the server "
				       "with --keys, or let the client open pst://"
				     : "it sends bytes that are no request");
		return 0;
	}
	if (!qp_may(c, &q)) {
		conn_kill(c, "it asks for RDMA that was not agreed on");
		return 0;
	}
	if (q.op != WIRE_WRITE && n < q.len)
		return 0;
	/* Do not delay a hello by the rate: it may have to end an older connection. */
	wait = c->greeted ? rate_wait(c) : 0;
	if (wait) {
		c->full = true;
		c->s->wake_ns = MIN(c->s->wake_ns, wait);
		c->s->counts.slowed++;
		return 0;
	}
	j = c->nr_jobs < c->s->o.requests ? job_new(c, &q, conn_size_of(&q)) : NULL;
	if (!j) {
		c->full = true;
		return 0;
	}
	rate_spend(c, WIRE_HEAD + conn_cost(c, &q));
	if (job_by_rdma(j)) {
		qp_request(j, from + WIRE_HEAD);
		return q.len;
	}
	if (q.op != WIRE_WRITE) {
		conn_request(c, j, from + WIRE_HEAD);
		return q.len;
	}
	len = MIN(n - WIRE_HEAD, q.count);
	memcpy(j->buf + WIRE_HEAD, from + WIRE_HEAD, len);
	if (len == q.count) {
		conn_request(c, j, NULL);
	} else {
		c->payload = j;
		c->got = len;
	}
	return WIRE_HEAD + len;
}

static bool may_read(const struct conn *c)
{
	return c->fd >= 0 && !c->full && !c->hello_job && !c->ends && !c->s->draining;
}

/* Take all messages that can be taken, and keep the remaining bytes for later. */
static void conn_take_all(struct conn *c, uint8_t *from, uint32_t n)
{
	uint32_t at = 0, len = 1;
	uint8_t *kept = NULL;

	while (at < n && len && may_read(c)) {
		len = take_one(c, from + at, n - at);
		at += len;
		/* Send replies while they are in the CPU's caches. */
		if (c->nr_out >= SEND_AT && !reply_send_some(c))
			conn_kill(c, NULL);
	}
	if (c->fd < 0)
		return;
	if (at < n) {
		kept = malloc(n - at);
		if (!kept) {
			conn_kill(c, "there is no memory for what it sends");
			return;
		}
		memcpy(kept, from + at, n - at);
	}
	free(c->kept);
	c->kept = kept;
	c->nr_kept = n - at;
}

/* Take messages that were kept because they had to wait. */
static void take_kept(struct conn *c)
{
	uint32_t n = c->nr_kept;

	if (!n || c->payload || !may_read(c))
		return;
	memcpy(c->s->in, c->kept, n);
	conn_take_all(c, c->s->in, n);
}

/* Receive like recv(2), through TLS if the connection has it. */
static ssize_t conn_receive(struct conn *c, void *buf, size_t len)
{
	ssize_t n;

	if (!c->tls)
		return recv(c->sock, buf, len, MSG_DONTWAIT);
	n = net_tls_receive(c->tls, buf, len);
	if (n >= 0)
		return n;
	errno = (int)-n;
	return -1;
}

/* Read the rest of a payload and, in the same call, the bytes after it.  Return the same as
 * read_some(). */
static ssize_t read_payload(struct conn *c)
{
	struct job *j = c->payload;
	uint32_t left = j->q.count - c->got;
	struct iovec iov[2] = { { j->buf + WIRE_HEAD + c->got, left }, { c->s->in, IN_MAX } };
	ssize_t n = c->tls ? conn_receive(c, iov[0].iov_base, left) : readv(c->fd, iov, 2);

	if (n <= 0)
		return n;
	c->got += (uint32_t)MIN((uint64_t)n, (uint64_t)left);
	if (c->got < j->q.count)
		return n;
	c->payload = NULL;
	conn_request(c, j, NULL);
	if (n > left)
		conn_take_all(c, c->s->in, (uint32_t)n - left);
	return n;
}

static ssize_t read_some(struct conn *c)
{
	uint32_t kept = c->nr_kept;
	ssize_t n;

	if (c->payload)
		return read_payload(c);
	n = conn_receive(c, c->s->in + kept, IN_MAX);
	if (n <= 0)
		return n;
	if (kept)
		memcpy(c->s->in, c->kept, kept);
	conn_take_all(c, c->s->in, kept + (uint32_t)n);
	return n;
}

static void set_again(struct conn *c, bool again)
{
	c->s->nr_again += (unsigned)again - (unsigned)c->again;
	c->again = again;
}

static void conn_read_all(struct conn *c)
{
	for (uint64_t read = 0; may_read(c);) {
		ssize_t n;

		if (read >= TURN_MAX) {
			set_again(c, c->tls);
			return;
		}
		n = read_some(c);

		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
			conn_kill(c, NULL);
			return;
		}
		if (n < 0)
			return;
		/* Receiving alone is no progress: the client must also take its replies. */
		if (reply_all_sent(c))
			c->since_ns = about_now_ns();
		read += (uint64_t)n;
		if (c->fd >= 0 && !reply_send_some(c))
			conn_kill(c, NULL);
	}
}

/* ------------------------------------------------------------------- turns */

static void conn_set_events(struct conn *c)
{
	enum conn_sender who = atomic_load_explicit(&c->sender, memory_order_relaxed);
	bool reads = may_read(c) && !(c->tls && who == SENDER_WORKER);
	uint32_t want = (reads ? EPOLLIN : 0u) |
			(who == SENDER_LOOP && !reply_all_sent(c) ? EPOLLOUT : 0u);
	struct epoll_event ev = { .events = want, .data.ptr = c };

	if (want != c->events && epoll_ctl(c->s->epfd, EPOLL_CTL_MOD, c->fd, &ev) == 0)
		c->events = want;
}

/* Continue the handshake.  Return true when it is complete. */
static bool conn_handshake(struct conn *c)
{
	int r = net_tls_handshake(c->tls);

	if (r == 0) {
		(void)snprintf(c->key, sizeof(c->key), "%s", c->tls->peer);
		if (rate_join(c))
			return true;
		conn_kill(c, "there is no memory for it");
	} else if (r == -EAGAIN) {
		conn_set_events(c);
	} else {
		c->s->counts.handshakes_failed++;
		conn_kill(c, r == -EKEYREJECTED ? c->tls->why : NULL);
	}
	return false;
}

static void conn_go_on(struct conn *c)
{
	uint64_t taken;
	bool freed;

	if (c->tls && !c->tls->ready && !conn_handshake(c))
		return;
	(void)qp_turn(c);
	if (c->fd >= 0 && !reply_send_some(c))
		conn_kill(c, NULL);
	if (c->fd < 0)
		return;
	do {
		taken = c->nr_taken;
		c->full = false;
		take_kept(c);
		conn_read_all(c);
		if (c->fd >= 0 && !reply_send_some(c))
			conn_kill(c, NULL);
		freed = qp_turn(c);
		if (c->fd < 0)
			return;
		/* The connection was full and all replies are sent, so no event would start another
		 * turn. */
	} while (c->full && (freed || (!c->out.head && !c->nr_pool && taken != c->nr_taken)));
	/* A payload that is still arriving does not count as a job: it is not a request yet. */
	if (reply_all_sent(c) && c->nr_jobs == (c->payload != NULL) &&
	    (c->ends || c->s->draining)) {
		conn_kill(c, NULL);
		return;
	}
	conn_set_events(c);
}

void conn_turn(struct conn *c)
{
	if (c->fd < 0)
		return;
	set_again(c, false);
	c->nr_now = 0;
	/* The session cannot receive while a worker sends.  The return of the worker's job begins a
	 * turn. */
	if (c->tls && !reply_loop_sends(c)) {
		conn_set_events(c);
		return;
	}
	conn_go_on(c);
	if (c->fd >= 0)
		reply_end_sending(c);
}

/* Give the client a handle for the opened file.  If there is none, a worker closes the file. */
static void conn_open_done(struct job *j)
{
	struct conn *c = j->conn;
	struct handle *h = malloc(sizeof(*h));
	uint32_t nr = h && c->fd >= 0 ? handle_room(c) : 0;

	if (!h) {
		j->err = ENOMEM;
		return;
	}
	*h = (struct handle){ .fd = TAKE_FD(j->new_fd),
			      .lent = TAKE_PTR(j->lent),
			      .paid = j->paid,
			      .refs = 1,
			      .write = j->q.how & WIRE_O_WRITE,
			      .in_memory = j->in_memory };
	if (nr) {
		c->handles[nr - 1] = h;
		j->count = nr;
	} else {
		j->err = EMFILE;
		handle_unref(c, h);
	}
}

void conn_job_done(struct job *j)
{
	struct conn *c = j->conn;
	struct handle *h = j->handle;

	c->nr_pool--;
	if (j->ends) {
		qp_ended(j->ends);
		return;
	}
	if (j->closes) {
		job_free(j);
		return;
	}
	if (h && !j->err &&
	    (j->q.op == WIRE_WRITE || j->q.op == WIRE_WRITE_RDMA || j->q.op == WIRE_TRUNCATE))
		h->nr_writes++;
	if (h && !j->err && j->q.op == WIRE_SYNC)
		h->nr_synced = j->writes;
	j->handle = NULL;
	handle_unref(c, h);
	if (j->q.op == WIRE_OPEN && !j->err)
		conn_open_done(j);
	if (c->fd < 0) {
		job_free(j);
		return;
	}
	if (j->q.op == WIRE_RDMA)
		qp_join(j);
	if (j->q.op == WIRE_OPEN)
		exec_reply(c->s, j);
	if (j->by_worker)
		reply_take_over(j);
	else
		reply_queue(j);
}

/* --------------------------------------------------------------------- life */

void conn_new(struct server *s, int fd, const struct net_addr *addr)
{
	struct conn *c = calloc(1, sizeof(*c));
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = c };
	bool tls = s->o.tls && addr->sa.ss_family != AF_UNIX;

	if (!c || (tls && s->o.tls->begin(fd, NULL, s->o.keys, &c->tls) < 0) ||
	    epoll_ctl(s->epfd, EPOLL_CTL_ADD, fd, &ev) < 0) {
		if (c)
			net_tls_end(c->tls);
		free(c);
		(void)close(fd);
		return;
	}
	c->s = s;
	c->fd = c->sock = fd;
	c->addr = *addr;
	c->events = EPOLLIN;
	c->since_ns = c->born_ns = about_now_ns();
	list_add_tail(&s->conns, &c->link);
	s->nr_conns++;
	s->counts.accepted++;
	if (!tls && !rate_join(c))
		conn_kill(c, "there is no memory for it");
}

static void conn_forget(struct conn *c, struct job *j)
{
	struct job *next;

	for (; j; j = next) {
		next = j->next;
		if (j->closes) { /* a job that closes a handle must run in any case */
			pool_put(c->s, j);
			continue;
		}
		c->nr_pool--;
		if (j->handle)
			handle_unref(c, j->handle);
		job_free(j);
	}
}

/* Close a connection of which no worker has a request. */
static void conn_close(struct conn *c)
{
	if (c->sock < 0)
		return;
	(void)close(c->sock);
	c->sock = -1;
	net_tls_end(c->tls);
	c->tls = NULL;
}

void conn_kill(struct conn *c, const char *why)
{
	unsigned running;
	struct job *j;
	char text[320], from[NET_ADDR_TEXT_MAX];

	if (c->fd < 0)
		return;
	if (why) {
		c->s->counts.dropped++;
		net_addr_text(&c->addr, from, sizeof(from));
		(void)snprintf(text, sizeof(text), "dropped the client %s: %s", from, why);
		c->s->o.say(text);
	}
	/* A worker may be sending.  The worker's descriptor must not become that of another
	 * client. */
	(void)shutdown(c->sock, SHUT_RDWR);
	(void)epoll_ctl(c->s->epfd, EPOLL_CTL_DEL, c->sock, NULL);
	c->fd = -1;
	set_again(c, false);
	rate_leave(c);
	conn_forget(c, pool_forget(c->s, c, &running));
	if (!running)
		conn_close(c);
	qp_stop(c);
	while ((j = jobs_pop(&c->out)))
		job_free(j);
	if (c->payload)
		job_free(TAKE_PTR(c->payload));
	if (c->hello_job)
		job_free(TAKE_PTR(c->hello_job));
	for (uint32_t i = 0; c->handles && i < c->s->o.files; i++)
		if (c->handles[i])
			handle_unref(c, TAKE_PTR(c->handles[i]));
	list_move_tail(&c->s->dead, &c->link);
	c->s->nr_conns--;
}

void conn_tick(struct conn *c, uint64_t now)
{
	uint64_t age = now > c->since_ns ? now - c->since_ns : 0;

	if (!c->greeted && !c->hello_job && now > c->born_ns + HELLO_S * NSEC_PER_SEC)
		conn_kill(c, c->tls && !c->tls->ready ? "its TLS handshake takes too long"
						      : "it sends no hello");
	else if (reply_is_stalled(c) && age > c->s->o.stall_s * NSEC_PER_SEC)
		conn_kill(c, "it takes no replies");
	else if ((c->full && c->greeted) || qp_is_busy(c))
		conn_turn(c); /* another connection may have freed memory */
}

void conn_sweep(struct server *s)
{
	struct list *e, *n;
	bool freed = false;

	list_for_each_safe (e, n, &s->dead) {
		struct conn *c = list_entry(e, struct conn, link);

		if (c->nr_pool != c->nr_ends)
			continue;
		conn_close(c);
		/* No request of the connection runs now, so a hello may be answered. */
		freed |= !c->is_quiet;
		c->is_quiet = true;
		if (c->nr_pool || !qp_end(c))
			continue;
		list_del(e);
		free(c->kept);
		free(c->handles);
		free(c);
	}
	if (!freed)
		return;
	/* Restart at the head each time: answering a hello may end other connections of the
	 * list. */
	for (e = s->conns.next; e != &s->conns; e = e->next) {
		struct conn *c = list_entry(e, struct conn, link);

		if (!c->hello_job)
			continue;
		hello_continue(c);
		if (c->hello_job)
			continue;
		conn_turn(c);
		e = &s->conns;
	}
}
