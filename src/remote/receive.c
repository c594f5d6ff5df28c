/* SPDX-License-Identifier: MIT */
/* Receive replies on a link. */
#include <sys/uio.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "base/uaccess.h"
#include "remote/link.h"

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
	l->max_sent = MIN(w.requests_max, LINK_SENT);
	l->data_max = MIN(w.data_max, (uint32_t)WIRE_DATA_MAX);
	l->features = w.features;
	l->down_since = 0;
	l->nr_tries = l->nr_refused = 0;
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
		/* The file existed when it was first opened. */
		opened_fail(of, l->rep.err == ENOENT ? ESTALE : (int)l->rep.err);
		return;
	}
	if (!remote_is_same(&a, &of->ref->attr)) {
		opened_fail(of, ESTALE);
		/* If no piece is free, end the connection, which also closes the file. */
		if (!link_send_close(l, l->rep.count))
			link_drop(l, ECONNRESET);
		return;
	}
	of->handle = l->rep.count;
	of->state = OPENED_YES;
}

/* Retry a piece on another connection after its bytes were damaged. */
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
		if (link_crc(p) && l->rep.count && !l->crc_good) {
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

/* Handle a reply whose payload is complete. */
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
	case PIECE_RDMA:
		link_rdma_joined(l);
		break;
	case PIECE_TASK:
		if (t)
			task_done(l, p);
		break;
	default:
		break;
	}
	/* If the connection was dropped, the piece was freed or will be sent again. */
	if ((p->state != PIECE_SENT && p->state != PIECE_TAKEN) || p->turn != turn)
		return;
	if (p->kind == PIECE_TASK) {
		l->nr_sent--;
		l->nr_long -= piece_is_long(p);
		link_rdma_unsend(l, p);
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
		[PIECE_RDMA] = WIRE_RDMA,
	};

	if (p->kind != PIECE_TASK)
		return r->op == ops[p->kind];
	return r->op == p->op && (r->op == WIRE_SYNC || r->count <= p->len);
}

void link_message(struct link *l, const uint8_t head[WIRE_HEAD])
{
	/* Save the reply that is partly received from the socket. */
	uint32_t body = l->body, body_done = l->body_done;
	struct wire_reply rep = l->rep;
	struct piece *cur = l->cur, *p = NULL;

	if (wire_get_reply(head, &l->rep) == 0)
		p = piece_find(l, l->rep.id);
	if (!p || !p->rdma || !reply_fits(p, &l->rep)) {
		link_drop(l, EBADMSG);
		return;
	}
	l->boot = l->rep.boot;
	l->cur = p;
	l->body = l->body_done = 0;
	reply_done(l);
	if (l->fd < 0)
		return;
	l->cur = cur;
	l->rep = rep;
	l->body = body;
	l->body_done = body_done;
}

/* Handle a reply's header. */
static void reply_head(struct link *l, const uint8_t *head)
{
	struct piece *p;

	if (wire_get_reply(head, &l->rep) < 0) {
		link_drop(l, EBADMSG);
		return;
	}
	p = piece_find(l, l->rep.id);
	if (!p || p->rdma || !reply_fits(p, &l->rep)) {
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

/* Return where the rest of the payload goes; NULL: skip it. */
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

	/* Skip the rest of the payload. */
	p->task = NULL;
	t->nr_pieces--;
	task_cut(t, p->off, EFAULT);
	task_check(t);
}

/* Take payload bytes from the buffer. */
static void body_from_buffer(struct link *l)
{
	uint32_t n = MIN(l->in_len - l->in_at, l->body - l->body_done);
	const uint8_t *from = l->in + l->in_at;
	char *to = body_at(l);

	if (to && l->cur->kind != PIECE_TASK)
		memcpy(to, from, n);
	else if (to && io_op_store(l->cur->task->op, to, from, n) < 0)
		body_fault(l);
	l->in_at += n;
	l->body_done += n;
}

/* Copy the payloads of the batch.  Return false if some may not be copied. */
static bool batch_copy(const struct link *l)
{
	bool registered = true;

	for (unsigned i = 0; i < l->nr_batch; i++)
		registered = registered && l->batch[i].piece->task->op->reg;
	if (!registered)
		return uaccess_write_all(l->batch_to, l->batch_from, l->nr_batch) == 0;
	for (unsigned i = 0; i < l->nr_batch; i++)
		memcpy(l->batch_to[i].iov_base, l->batch_from[i].iov_base, l->batch_to[i].iov_len);
	return true;
}

/* Copy the payloads of the batch, and complete its pieces. */
static void batch_end(struct link *l)
{
	unsigned nr = l->nr_batch;
	bool copied = nr && batch_copy(l);
	/* Save the reply that is partly in the buffer: it is newer than the batch. */
	uint32_t body = l->body, body_done = l->body_done;
	struct wire_reply rep = l->rep;
	struct piece *cur = l->cur;

	if (!nr)
		return;
	l->nr_batch = 0;
	/* If the connection is dropped, the remaining pieces will be sent again. */
	for (unsigned i = 0; i < nr && l->fd >= 0; i++) {
		struct piece *p = l->batch[i].piece;

		l->cur = p;
		l->rep = l->batch[i].rep;
		l->body = l->body_done = (uint32_t)l->batch_to[i].iov_len;
		if (!copied &&
		    uaccess_write(l->batch_to[i].iov_base, l->batch_from[i].iov_base, l->body) < 0)
			body_fault(l);
		l->crc_good = true;
		reply_done(l);
		l->crc_good = false;
	}
	if (l->fd < 0)
		return;
	l->cur = cur;
	l->rep = rep;
	l->body = body;
	l->body_done = body_done;
}

/* Add the payload to the batch if it is completely in the buffer, and its checksum is right. */
static bool receive_batch_add(struct link *l)
{
	struct piece *p = l->cur;
	const uint8_t *from = l->in + l->in_at;

	if (p->kind != PIECE_TASK || !p->task || p->op != WIRE_READ || l->rep.err || l->body_done ||
	    l->in_len - l->in_at < l->body)
		return false;
	if (p->of->ref->crc &&
	    (!(l->rep.flags & WIRE_F_CRC) || crc32c(0, from, l->body) != l->rep.crc))
		return false;
	l->batch[l->nr_batch].piece = p;
	l->batch[l->nr_batch].rep = l->rep;
	l->batch_to[l->nr_batch] = (struct iovec){ body_at(l), l->body };
	l->batch_from[l->nr_batch] = (struct iovec){ (void *)from, l->body };
	l->nr_batch++;
	l->in_at += l->body;
	l->cur = NULL;
	/* Do not let a second reply match the piece. */
	p->state = PIECE_TAKEN;
	return true;
}

static void take_all(struct link *l)
{
	while (l->fd >= 0) {
		if (l->nr_batch == LINK_BATCH)
			batch_end(l);
		else if (l->cur && receive_batch_add(l))
			continue;
		if (l->fd < 0)
			return;
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

/* Handle everything in the buffer. */
static void take_buffer(struct link *l)
{
	take_all(l);
	batch_end(l);
}

/* Receive the payload straight to its destination, and the next header in the same call. */
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
	/* Read only a header, so that long payloads bypass the buffer. */
	ask = (l->nr_long ? WIRE_HEAD : LINK_IN_MAX) - have;
	n = recv(l->fd, l->in + have, ask, MSG_DONTWAIT);
	if (n > 0)
		l->in_len += (uint32_t)n;
	*ret_asked = ask;
	return n;
}

/* Decrypt a payload to its place, if the buffer is empty and the place stays mapped. */
static bool receive_tls_body(struct link *l, ssize_t *ret)
{
	char *to;

	if (!l->cur || l->in_at < l->in_len || l->cur->kind != PIECE_TASK || !l->cur->task ||
	    !l->cur->task->op->reg)
		return false;
	to = body_at(l);
	*ret = net_tls_receive(l->tls, to, l->body - l->body_done);
	if (*ret > 0)
		l->body_done += (uint32_t)*ret;
	return true;
}

/* Fill the buffer with as many records as are there.  An error after the first record is returned
 * by the next call. */
static ssize_t receive_tls_buffer(struct link *l)
{
	/* If long payloads are due, take only one record: such a payload follows the next header,
	 * and need not pass through the buffer. */
	bool more = l->cur || !l->nr_long;
	uint32_t have = l->in_len - l->in_at;
	ssize_t n, all = 0;

	memmove(l->in, l->in + l->in_at, have);
	l->in_at = 0;
	l->in_len = have;
	do {
		n = net_tls_receive(l->tls, l->in + l->in_len, LINK_IN_MAX - l->in_len);
		if (n > 0) {
			l->in_len += (uint32_t)n;
			all += n;
		}
	} while (n > 0 && LINK_IN_MAX - l->in_len >= NET_TLS_RECORD && more);
	return all ? all : n;
}

static ssize_t receive_tls(struct link *l, size_t *ret_asked)
{
	ssize_t n;

	if (!receive_tls_body(l, &n))
		n = receive_tls_buffer(l);
	if (n < 0) {
		errno = (int)-n;
		return -1;
	}
	*ret_asked = (size_t)n; /* there may be more */
	return n;
}

void link_receive(struct link *l)
{
	size_t asked;
	ssize_t n;

	while (l->fd >= 0) {
		if (l->tls)
			n = receive_tls(l, &asked);
		else
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
