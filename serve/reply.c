/* SPDX-License-Identifier: MIT */
/*
 * Replies: count and queue them, and send them by the loop or, of a long read, by the worker that
 * has read it.
 */
#include <sys/uio.h>

#include "serve/server.h"

#define OUT_IOVS 64 /* replies sent in one system call */

static void reply_count(const struct job *j)
{
	struct counts *n = &j->conn->s->counts;

	n->op[j->q.op]++;
	if (j->err)
		n->error[j->q.op]++;
	else if (j->q.op == WIRE_READ || j->q.op == WIRE_READ_RDMA)
		n->bytes_read += j->count;
	else if (j->q.op == WIRE_WRITE || j->q.op == WIRE_WRITE_RDMA)
		n->bytes_written += j->count;
}

bool reply_all_sent(const struct conn *c)
{
	switch (atomic_load_explicit(&c->sender, memory_order_acquire)) {
	case SENDER_WORKER:
		return false;
	case SENDER_LOOP:
		return !c->out.head && !(c->tls && net_tls_unsent(c->tls));
	default: /* nothing was begun */
		return !c->out.head;
	}
}

void reply_queue(struct job *j)
{
	reply_count(j);
	if (job_by_rdma(j)) {
		qp_answer(j);
		return;
	}
	/* Restart the client's time limit: while there was nothing to send, the client could take
	 * nothing. */
	if (reply_all_sent(j->conn))
		j->conn->since_ns = about_now_ns();
	jobs_push(&j->conn->out, j);
	j->conn->nr_out += j->len;
}

void reply_queue_err(struct job *j, int err)
{
	j->err = (uint32_t)err;
	exec_reply(j->conn->s, j);
	reply_queue(j);
}

/* Send like sendmsg(2), through TLS if the connection has it.  The sender alone calls this. */
static ssize_t reply_send(struct conn *c, struct msghdr *m)
{
	ssize_t n;

	if (!c->tls)
		return sendmsg(c->sock, m, MSG_DONTWAIT | MSG_NOSIGNAL);
	n = net_tls_send(c->tls, m->msg_iov, m->msg_iovlen, NULL);
	if (n >= 0)
		return n;
	errno = (int)-n;
	return -1;
}

bool reply_is_stalled(const struct conn *c)
{
	return atomic_load_explicit(&c->sender, memory_order_relaxed) == SENDER_LOOP &&
	       !reply_all_sent(c);
}

/* Become the sender.  Return false if another thread is. */
static bool reply_take_sender(struct conn *c, enum conn_sender who)
{
	enum conn_sender none = SENDER_NONE;

	return atomic_compare_exchange_strong(&c->sender, &none, who);
}

bool reply_loop_sends(struct conn *c)
{
	return atomic_load_explicit(&c->sender, memory_order_relaxed) == SENDER_LOOP ||
	       reply_take_sender(c, SENDER_LOOP);
}

void reply_end_sending(struct conn *c)
{
	if (atomic_load_explicit(&c->sender, memory_order_relaxed) == SENDER_LOOP &&
	    reply_all_sent(c))
		atomic_store_explicit(&c->sender, SENDER_NONE, memory_order_release);
}

void reply_send_by_worker(struct job *j)
{
	struct conn *c = j->conn;

	if (!reply_take_sender(c, SENDER_WORKER))
		return;
	j->by_worker = true;
	while (j->sent < j->len) {
		struct iovec iov = { j->buf + j->sent, j->len - j->sent };
		struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
		ssize_t n = reply_send(c, &m);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			/* With TLS, bytes that j->sent does not count may be encrypted already. */
			j->send_failed = errno != EAGAIN;
			return;
		}
		j->sent += (uint32_t)n;
	}
}

/* Send replies; the loop is the sender. Return false if the client is gone. */
static bool reply_send_out(struct conn *c)
{
	if (c->tls && net_tls_unsent(c->tls)) {
		int r = net_tls_flush(c->tls);

		if (r < 0)
			return r == -EAGAIN;
		c->since_ns = about_now_ns();
	}
	while (c->out.head) {
		struct iovec iov[OUT_IOVS];
		struct msghdr m = { .msg_iov = iov };
		uint64_t all = 0;
		ssize_t n;

		for (struct job *j = c->out.head; j && m.msg_iovlen < OUT_IOVS; j = j->next) {
			iov[m.msg_iovlen++] = (struct iovec){ j->buf + j->sent, j->len - j->sent };
			all += j->len - j->sent;
		}
		n = reply_send(c, &m);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR;
		c->since_ns = about_now_ns();
		for (uint64_t left = (uint64_t)n; left;) {
			struct job *j = c->out.head;
			uint32_t part = (uint32_t)MIN(left, (uint64_t)(j->len - j->sent));

			j->sent += part;
			left -= part;
			c->nr_out -= part;
			if (j->sent < j->len)
				break;
			c->out.head = j->next;
			c->nr_jobs--;
			job_free(j);
		}
		if ((uint64_t)n < all)
			return true;
	}
	return true;
}

bool reply_send_some(struct conn *c)
{
	bool lives;

	if ((!c->out.head && !c->tls) || !reply_loop_sends(c))
		return true;
	lives = reply_send_out(c);
	if (!c->tls) /* with TLS, the end of the turn does this, after receiving */
		reply_end_sending(c);
	return lives;
}

void reply_take_over(struct job *j)
{
	struct conn *c = j->conn;
	bool failed = j->send_failed;

	reply_count(j);
	/* The worker became the sender when all earlier replies were sent. */
	c->since_ns = about_now_ns();
	if (failed || j->sent == j->len) {
		c->nr_jobs--;
		job_free(j);
	} else {
		jobs_push_first(&c->out, j);
		c->nr_out += j->len - j->sent;
	}
	atomic_store_explicit(&c->sender, SENDER_LOOP, memory_order_relaxed);
	if (failed)
		conn_kill(c, NULL);
	else
		reply_end_sending(c);
}
