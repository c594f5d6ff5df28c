/* SPDX-License-Identifier: MIT */
/* Send requests on a link. */
#include <sys/uio.h>

#include "base/uaccess.h"
#include "remote/link.h"

#define IOVS 64u        /* buffers of one system call */
#define SEND_MAX MIB(4) /* bytes of one system call */

static void send_open(struct link *l, struct opened *of)
{
	struct wire_request q = { .op = WIRE_OPEN, .how = of->ref->how };
	struct piece *p = piece_new(l, PIECE_OPEN);

	if (!p)
		return;
	p->of = of;
	q.id = piece_id(p);
	q.len = WIRE_HEAD + (uint32_t)strlen(of->ref->path);
	wire_put_request(&q, p->head);
	pieces_push(&l->tx, p);
	of->state = OPENED_ASKED;
}

bool link_send_close(struct link *l, uint32_t handle)
{
	struct wire_request q = { .len = WIRE_HEAD, .op = WIRE_CLOSE, .handle = handle };
	struct piece *p = piece_new(l, PIECE_CLOSE);

	if (!p)
		return false;
	q.id = piece_id(p);
	wire_put_request(&q, p->head);
	pieces_push(&l->tx, p);
	return true;
}

/* End a task at off, because RDMA cannot move the bytes from there on; another hop may. */
static void task_not_by_rdma(struct task *t, uint64_t off, int err)
{
	t->op->rdma_err = err;
	task_cut(t, off, err);
	if (t->queued)
		opened_remove_task(t->of, t);
	task_check(t);
}

/* Send a piece of a task.  Return false if the piece's memory vanished, which ends the task. */
static bool send_piece(struct link *l, struct piece *p)
{
	const struct io_op *op = p->task->op;
	struct wire_request q = {
		.len = WIRE_HEAD,
		.id = piece_id(p),
		.handle = p->of->handle,
		.off = op->off + p->off,
		.count = (uint32_t)p->len,
		.flags = link_crc(p) ? WIRE_F_CRC : 0,
	};

	if (op->flags & IO_OP_RDMA) {
		int r = link_rdma_key(l, p);

		if (r < 0) {
			struct task *t = p->task;
			uint64_t off = p->off;

			piece_free(p);
			t->op->rdma_mem_err = -r;
			task_not_by_rdma(t, off, -r);
			return false;
		}
		q.len += WIRE_RDMA_KEY_LEN;
	}
	switch (op->kind) {
	case IO_READ:
		q.op = p->rdma ? WIRE_READ_RDMA : WIRE_READ;
		break;
	case IO_WRITE:
		q.op = p->rdma ? WIRE_WRITE_RDMA : WIRE_WRITE;
		q.len += p->rdma ? 0 : q.count;
		break;
	default:
		q.op = WIRE_SYNC;
		q.flags = op->kind == IO_FDATASYNC ? WIRE_F_DATA : 0;
		q.off = q.count = 0;
	}
	if (op->kind == IO_WRITE && q.flags & WIRE_F_CRC &&
	    uaccess_crc32c(&q.crc, (char *)op->buf + p->off, p->len) < 0) {
		struct task *t = p->task;

		link_rdma_unsend(l, p);
		piece_free(p);
		task_cut(t, p->off, EFAULT);
		task_check(t);
		return false;
	}
	p->waits_again = false;
	p->op = q.op;
	wire_put_request(&q, p->head);
	pieces_push(&l->tx, p);
	l->nr_sent++;
	l->nr_long += piece_is_long(p);
	return true;
}

/* Cut the next piece from a task. */
static struct piece *cut_piece(struct link *l, struct task *t)
{
	struct piece *p = piece_new(l, PIECE_TASK);
	bool sync = io_op_is_sync(t->op);

	if (!p)
		return NULL;
	p->task = t;
	p->of = t->of;
	p->off = t->issued;
	p->len = sync ? 0 : MIN(t->limit - t->issued, (uint64_t)l->data_max);
	t->issued += sync ? 1 : p->len;
	t->nr_pieces++;
	if (task_is_issued(t))
		opened_remove_task(t->of, t);
	return p;
}

/* Send one piece of a file; return false if there was none to send. */
static bool fill_one(struct link *l, struct opened *of)
{
	struct task *t = of->again.head ? of->again.head->task : of->todo;
	int room = t && t->op->flags & IO_OP_RDMA ? link_rdma_room(l) : 1;
	struct piece *p;

	if (!t || !room)
		return false;
	p = pieces_pop(&of->again);
	if (room < 0) {
		uint64_t off = p ? p->off : t->issued;

		if (p)
			piece_free(p);
		task_not_by_rdma(t, off, -room);
		return true;
	}
	if (!p)
		p = cut_piece(l, t);
	if (!p)
		return false;
	(void)send_piece(l, p);
	return true;
}

/* Create pieces for waiting tasks, taking the files in turn. */
void link_fill(struct link *l)
{
	bool more = true;

	while (more) {
		more = false;
		for (struct opened *of = l->files; of; of = of->next) {
			if (!of->todo && !of->again.head)
				continue;
			if (of->state == OPENED_NO)
				send_open(l, of);
			else if (of->state == OPENED_YES && l->nr_sent < l->max_sent)
				more |= fill_one(l, of);
		}
	}
}

_Static_assert(WIRE_HELLO_LEN == WIRE_RDMA_BLOB_LEN, "payload_of() gives both one size");

static uint64_t payload_of(const struct piece *p, const void **ret)
{
	switch (p->kind) {
	case PIECE_HELLO:
	case PIECE_RDMA:
		*ret = p->payload;
		return WIRE_HELLO_LEN;
	case PIECE_OPEN:
		*ret = p->of->ref->path;
		return strlen(p->of->ref->path);
	case PIECE_TASK:
		if (p->rdma) {
			*ret = p->payload;
			return WIRE_RDMA_KEY_LEN;
		}
		if (p->task && p->task->op->kind == IO_WRITE) {
			*ret = (char *)p->task->op->buf + p->off;
			return p->len;
		}
		return 0;
	default:
		return 0;
	}
}

static void add_iov(struct msghdr *m, const void *base, uint64_t len, size_t *skip)
{
	size_t cut = MIN(*skip, (size_t)len);

	*skip -= cut;
	if (len > cut)
		m->msg_iov[m->msg_iovlen++] = (struct iovec){ (char *)base + cut, len - cut };
}

static void sent_some(struct link *l, uint64_t n)
{
	while (n) {
		const void *payload;
		struct piece *p = l->tx.head;
		uint64_t all = WIRE_HEAD + payload_of(p, &payload), part;

		part = MIN(n, all - l->tx_done);
		l->tx_done += part;
		n -= part;
		if (l->tx_done < all)
			return;
		l->tx_done = 0;
		p->state = PIECE_SENT;
		(void)pieces_pop(&l->tx);
	}
}

/* End the writes whose memory vanished.  Drop the connection, because part of a message may have
 * been sent. */
static void send_fault(struct link *l)
{
	for (struct piece *p = l->tx.head; p; p = p->next) {
		struct task *t = p->task;
		uint32_t crc = 0;

		/* Skip RDMA pieces: no bytes of theirs are sent, and the CPU may be unable to read
		 * them. */
		if (t && t->op->kind == IO_WRITE && !p->rdma &&
		    uaccess_crc32c(&crc, (char *)t->op->buf + p->off, p->len) < 0)
			task_cut(t, p->off, EFAULT);
	}
	link_drop(l, EFAULT);
	l->at = 0;
	for (struct opened *of = l->files; of; of = of->next) {
		struct pieces all = of->again;
		struct piece *p;

		of->again = (struct pieces){ 0 };
		while ((p = pieces_pop(&all))) {
			struct task *t = p->task;

			if (t->err != EFAULT) {
				pieces_push(&of->again, p);
				continue;
			}
			piece_free(p);
			task_check(t);
		}
	}
}

/* Send like sendmsg(2), through TLS if the link uses it. */
static ssize_t send_message(struct link *l, struct msghdr *m)
{
	ssize_t n;

	if (!l->tls)
		return sendmsg(l->fd, m, MSG_DONTWAIT | MSG_NOSIGNAL);
	n = net_tls_send(l->tls, m->msg_iov, m->msg_iovlen, uaccess_read);
	if (n >= 0)
		return n;
	errno = (int)-n;
	return -1;
}

/* Return false if the connection ended. */
static bool send_rest(struct link *l)
{
	int r = l->tls ? net_tls_flush(l->tls) : 0;

	if (r == 0 || r == -EAGAIN)
		return true;
	link_drop(l, -r);
	return false;
}

void link_send(struct link *l)
{
	if (!send_rest(l))
		return;
	while (l->tx.head) {
		struct iovec iov[IOVS];
		struct msghdr m = { .msg_iov = iov };
		size_t skip = l->tx_done;
		uint64_t all = 0;
		ssize_t n;

		for (struct piece *p = l->tx.head; p && m.msg_iovlen + 2 <= IOVS && all < SEND_MAX;
		     p = p->next) {
			const void *payload;
			uint64_t len = payload_of(p, &payload);

			add_iov(&m, p->head, WIRE_HEAD, &skip);
			if (len)
				add_iov(&m, payload, len, &skip);
			all += WIRE_HEAD + len;
		}
		all -= l->tx_done;
		n = send_message(l, &m);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) {
			if (errno == EFAULT)
				send_fault(l);
			else
				link_drop(l, errno);
			return;
		}
		sent_some(l, (uint64_t)n);
		if ((uint64_t)n < all)
			break;
	}
	link_poll(l, link_wants_out(l));
}
