/* SPDX-License-Identifier: MIT */
/*
 * RDMA on a link.
 *
 * The first RDMA operation makes the link ask the server for a queue pair, which lives as long as
 * the connection.  An operation's memory is registered for that server's connection only: exactly
 * its bytes, and only for the needed direction.  The server's NIC moves the bytes, and the server
 * then sends the reply as a message; once the message has arrived, so have the bytes.
 *
 * The registration ends before the operation completes, so no server can access memory that was
 * returned to the program.  Cancelling an operation before its reply destroys the queue pair and
 * ends the connection.
 */
#include <sys/epoll.h>

#include "base/err.h"
#include "base/log.h"
#include "net/verbs/endpoint.h"
#include "remote/link.h"

#define NR WIRE_RDMA_REQUESTS
#define IN_LEN 64u /* bytes of a buffer for a reply */
#define DEADLINE_MS 10000u

struct link_rdma {
	struct nic *nic;
	struct nic_domain *domain;
	struct endpoint *ep;
	uint8_t *in; /* NR buffers of IN_LEN bytes for replies */
	struct mem_reg *in_reg;
	bool ready;     /* both this side and the server are connected */
	bool armed;     /* an event may come */
	uint64_t since; /* now_ns() when the queue pair was begun */
	uint64_t until; /* now_ns() by which the server must have answered */
	unsigned nr_sent;
};

/* -------------------------------------------------------------- begin, end */

static void link_rdma_free(struct link_rdma *d)
{
	/* Destroy the queue pair first, so that the NIC writes nothing more. */
	endpoint_free(d->ep);
	if (d->in_reg)
		mr_dereg(d->domain, d->in_reg);
	(void)nic_domain_free(d->domain);
	nics_put(d->nic);
	free(d->in);
	free(d);
}

static int link_rdma_give(struct link_rdma *d, uint64_t i)
{
	return endpoint_recv(d->ep, d->in_reg->addr + i * IN_LEN, d->in_reg->lkey, IN_LEN, i);
}

static int link_rdma_make(struct reach *reach, struct link_rdma *d)
{
	struct endpoint_opts o = {
		.send_slots = 1, .recv_slots = NR, .deadline_ms = DEADLINE_MS, .events = true
	};
	int r = reach_nic(reach, &d->nic);

	if (r == 0)
		r = nic_domain_new(d->nic, &d->domain);
	if (r == 0)
		r = endpoint_new(d->domain, &o, &d->ep);
	if (r < 0)
		return r;
	d->in = aligned_alloc(KIB(4), align_up(NR * IN_LEN, KIB(4)));
	r = d->in ? mr_reg_host(d->domain, d->in, NR * IN_LEN, 0, &d->in_reg) : -ENOMEM;
	for (unsigned i = 0; i < NR && r == 0; i++)
		r = link_rdma_give(d, i);
	return r;
}

/* Ask the server for a queue pair.  Return 1 if asked; 0 if no piece is free; -errno. */
static int link_rdma_begin(struct link *l)
{
	struct wire_request q = { .len = WIRE_HEAD + WIRE_RDMA_BLOB_LEN, .op = WIRE_RDMA };
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = l };
	struct piece *p = piece_new(l, PIECE_RDMA);
	uint64_t now = now_ns();
	struct link_rdma *d;
	int r;

	if (!p)
		return 0;
	d = calloc(1, sizeof(*d));
	r = d ? link_rdma_make(l->reach, d) : -ENOMEM;
	if (r == 0 && epoll_ctl(l->ctx->epfd, EPOLL_CTL_ADD, endpoint_fd(d->ep), &ev) < 0)
		r = -errno;
	if (r < 0) {
		piece_free(p);
		if (d)
			link_rdma_free(d);
		return r;
	}
	l->rdma = d;
	d->since = now;
	d->until = now_ns() + DEADLINE_MS * NSEC_PER_MSEC;
	endpoint_blob(d->ep, p->payload);
	q.id = piece_id(p);
	wire_put_request(&q, p->head);
	pieces_push(&l->tx, p);
	return 1;
}

void link_rdma_joined(struct link *l)
{
	struct link_rdma *d = l->rdma;
	int r;

	if (!d)
		return;
	/* Ask only once per connection.  Other connections of this process may still get RDMA. */
	if (l->rep.err) {
		l->rdma_no = (int)l->rep.err;
		link_rdma_end(l, 0);
		return;
	}
	r = endpoint_connect(d->ep, l->small, l->body);
	if (r == 0) {
		d->ready = true;
		return;
	}
	reach_failed(l->reach, -r, now_ns());
	/* End the connection: the server keeps its useless end of the queue pair until then. */
	link_drop(l, -r);
}

uint64_t link_rdma_next(const struct link *l)
{
	const struct link_rdma *d = l->rdma;

	return d && !d->ready ? d->until : UINT64_MAX;
}

void link_rdma_end(struct link *l, int err)
{
	struct remote_ctx *c = l->ctx;
	struct link_rdma *d = TAKE_PTR(l->rdma);

	if (!d)
		return;
	endpoint_free(TAKE_PTR(d->ep));
	for (unsigned i = 0; i < c->base.depth; i++) {
		struct task *t = &c->tasks[i];

		if (t->reg && t->of->link == l)
			mr_registrar_ops.dereg(&d->domain->reg, TAKE_PTR(t->reg));
	}
	/* Blame RDMA unless the cause is on this side: a cancelled request, the end of the context,
	 * or memory of a socket request that vanished.  Otherwise, a server that ends the
	 * connection because of RDMA would be asked again and again. */
	if ((d->nr_sent || !d->ready) && err && err != ECANCELED && err != ESHUTDOWN &&
	    err != EFAULT)
		reach_failed(l->reach, EREMOTEIO, now_ns());
	link_rdma_free(d);
}

/* ----------------------------------------------------------------- requests */

int link_rdma_room(struct link *l)
{
	struct link_rdma *d = l->rdma;
	int err = d ? 0 : reach_err(l->reach, now_ns()), r;

	if (d)
		return d->ready && d->nr_sent < NR;
	if (l->rdma_no || err)
		return -(l->rdma_no ? l->rdma_no : err);
	r = l->features & WIRE_FEATURE_RDMA ? link_rdma_begin(l) : -EPROTONOSUPPORT;
	if (r < 0)
		reach_failed(l->reach, -r, now_ns());
	return MIN(r, 0);
}

int link_rdma_key(struct link *l, struct piece *p)
{
	struct link_rdma *d = l->rdma;
	struct task *t = p->task;
	const struct io_op *op = t->op;
	uint32_t rights = op->kind == IO_READ ? MEM_REG_REMOTE_WRITE : MEM_REG_REMOTE_READ;
	struct wire_rdma_key k;
	int r = 0;

	if (!t->reg && op->flags & IO_OP_DEVICE)
		r = mr_registrar_ops.reg(&d->domain->reg, op->device, op->device_off, op->len,
					 rights, &t->reg);
	else if (!t->reg)
		r = mr_reg_program(d->domain, op->buf, op->len, rights, &t->reg);
	if (r < 0)
		return r;
	k = (struct wire_rdma_key){ .addr = t->reg->addr + p->off, .rkey = t->reg->rkey };
	wire_put_rdma_key(&k, p->payload);
	p->rdma = true;
	d->nr_sent++;
	return 0;
}

void link_rdma_unsend(struct link *l, struct piece *p)
{
	if (p->rdma && l->rdma)
		l->rdma->nr_sent--;
	p->rdma = false;
}

void link_rdma_task_end(struct link *l, struct task *t)
{
	if (t->reg)
		mr_registrar_ops.dereg(&l->rdma->domain->reg, TAKE_PTR(t->reg));
}

/* ------------------------------------------------------------------ replies */

/* Handle a message.  Return false if the connection ended. */
static bool link_rdma_take(struct link *l, const struct endpoint_done *done)
{
	struct link_rdma *d = l->rdma;
	uint8_t head[WIRE_HEAD];

	if (done->res != (int)WIRE_HEAD) {
		link_drop(l, done->res < 0 ? -done->res : EBADMSG);
		return false;
	}
	memcpy(head, d->in + done->id * IN_LEN, WIRE_HEAD);
	reach_worked(l->reach, d->since);
	if (link_rdma_give(d, done->id) < 0)
		link_drop(l, EIO);
	else
		link_message(l, head);
	return l->fd >= 0;
}

static bool link_rdma_poll(struct link *l)
{
	struct endpoint_done done[NR];
	bool any = false;
	int n = 1;

	while (n > 0 && l->rdma) {
		n = endpoint_poll(l->rdma->ep, done, NR);
		any |= n > 0;
		for (int i = 0; i < n; i++)
			if (!link_rdma_take(l, &done[i]))
				return true;
	}
	return any;
}

bool link_rdma_turn(struct link *l)
{
	return l->rdma && l->rdma->ready && link_rdma_poll(l);
}

bool link_rdma_wait(struct link *l)
{
	struct link_rdma *d = l->rdma;

	if (!d || !d->ready || !(d->nr_sent || d->armed))
		return false;
	d->armed = true;
	/* This also consumes old events, which would wake the user again and again. */
	if (endpoint_arm(d->ep) < 0) {
		link_drop(l, EIO);
		return false;
	}
	return link_rdma_poll(l) && l->state == LINK_UP;
}
