/* SPDX-License-Identifier: MIT */
/* Access to the peer's memory over the socket: operations, and the requests by which they are
 * sent. */
#include "base/err.h"
#include "peer/ctx.h"

void peer_tasks_push(struct peer_tasks *q, struct peer_task *t)
{
	t->next = NULL;
	if (q->head)
		q->last->next = t;
	else
		q->head = t;
	q->last = t;
	t->queue = q;
}

void peer_task_unqueue(struct peer_task *t)
{
	struct peer_tasks *q = t->queue;
	struct peer_task *last = NULL;

	if (!q)
		return;
	for (struct peer_task **at = &q->head; *at; last = *at, at = &(*at)->next) {
		if (*at != t)
			continue;
		*at = t->next;
		if (q->last == t)
			q->last = last;
		break;
	}
	t->queue = NULL;
}

/* End an operation that waits for no more replies.  The lock is held. */
static void socket_task_end(struct peer_task *t)
{
	struct io_op *op = t->op;

	peer_task_unqueue(t);
	op->moved = t->err ? 0 : t->end;
	op->res = t->err ? t->err : (int64_t)t->end;
	__atomic_store_n(&op->ctx_data, NULL, __ATOMIC_RELAXED);
	io_inbox_push(t->in, op);
	free(t);
}

void peer_task_check(struct pst_peer *p, struct peer_task *t)
{
	(void)p;
	if (!t->nr_requests && (t->err || t->issued == t->end))
		socket_task_end(t);
}

/* Put an operation into the queue of the socket or of RDMA. */
static int task_start(struct peer_file *f, struct io_inbox *in, struct io_op *op,
		      struct peer_reach *reach)
{
	struct pst_peer *p = f->peer;
	struct peer_task *t = calloc(1, sizeof(*t));
	int r = 0;

	if (!t)
		return -ENOMEM;
	*t = (struct peer_task){
		.op = op,
		.in = in,
		.share = f->share,
		.end = op->off < f->len ? MIN(op->len, f->len - op->off) : 0,
		.reach = reach,
	};
	(void)pthread_mutex_lock(&p->lock);
	if (p->err || p->closing) {
		r = -EPIPE;
	} else if (reach && reach->revoked) {
		r = -ESTALE;
	} else if (reach && p->rdma.state != PEER_RDMA_READY) {
		r = -atomic_load(&p->rdma.err);
	} else if (!t->end) {
		socket_task_end(TAKE_PTR(t));
	} else {
		op->ctx_data = t;
		peer_tasks_push(reach ? &p->rdma.todo : &p->todo, TAKE_PTR(t));
		peer_kick(p);
	}
	(void)pthread_mutex_unlock(&p->lock);
	free(t);
	return r;
}

int socket_start(struct peer_file *f, struct io_inbox *in, struct io_op *op)
{
	return task_start(f, in, op, NULL);
}

int rdma_start(struct peer_file *f, struct io_inbox *in, struct io_op *op)
{
	return f->reach ? task_start(f, in, op, f->reach) : -f->rdma_err;
}

/* Stop waiting for the task's requests: their replies find no task.  The lock is held. */
static void task_detach(struct pst_peer *p, struct peer_task *t)
{
	for (unsigned i = 0; i < PEER_REQUESTS_MAX && t->nr_requests; i++) {
		if (p->requests[i].task != t)
			continue;
		p->requests[i].task = NULL;
		t->nr_requests--;
	}
	rdma_detach(p, t);
}

void peer_task_fail(struct pst_peer *p, struct peer_task *t, int err)
{
	task_detach(p, t);
	t->err = err;
	socket_task_end(t);
}

void socket_cancel(struct peer_file *f, struct io_op *op)
{
	struct pst_peer *p = f->peer;
	struct peer_task *t;

	(void)pthread_mutex_lock(&p->lock);
	t = op->ctx_data;
	if (t)
		peer_task_fail(p, t, -ECANCELED);
	(void)pthread_mutex_unlock(&p->lock);
}

void peer_tasks_fail(struct pst_peer *p, int err)
{
	for (unsigned i = 0; i < PEER_REQUESTS_MAX; i++) {
		struct peer_request *q = &p->requests[i];
		struct peer_task *t = q->task;

		if (t)
			peer_task_fail(p, t, err);
		if (q->used && q->opening && !q->opening->done) {
			q->opening->done = true;
			q->opening->err = err;
			q->opening = NULL;
		}
	}
	for (unsigned i = 0; i < PEER_SLOTS; i++)
		if (p->rdma.slots[i].task)
			peer_task_fail(p, p->rdma.slots[i].task, err);
	while (p->todo.head)
		peer_task_fail(p, p->todo.head, err);
	while (p->rdma.todo.head)
		peer_task_fail(p, p->rdma.todo.head, err);
}

/* ---------------------------------------------------------------- requests */

int peer_request_new(struct pst_peer *p, uint8_t type, struct peer_request **ret, uint64_t *ret_id)
{
	bool opens = type == PEER_OPEN || type == PEER_REACH;

	/* Reserve one slot for OPEN and REACH, which would otherwise compete with operations. */
	if (p->nr_requests + (!opens && p->requests_max > 1) >= p->requests_max)
		return -EAGAIN;
	for (unsigned i = 0; i < PEER_REQUESTS_MAX; i++) {
		struct peer_request *q = &p->requests[i];

		if (q->used)
			continue;
		*q = (struct peer_request){ .used = true, .type = type, .turn = q->turn + 1 };
		p->nr_requests++;
		*ret = q;
		*ret_id = (uint64_t)q->turn << 32 | i;
		return 0;
	}
	return -EAGAIN;
}

struct peer_request *peer_request_find(struct pst_peer *p, uint64_t id, uint8_t type)
{
	uint64_t idx = id & UINT32_MAX;
	struct peer_request *q = idx < PEER_REQUESTS_MAX ? &p->requests[idx] : NULL;

	return q && q->used && q->turn == id >> 32 && q->type == type ? q : NULL;
}

void peer_request_end(struct pst_peer *p, struct peer_request *q, int err)
{
	struct peer_task *t = q->task;

	q->used = false;
	q->task = NULL;
	q->opening = NULL;
	p->nr_requests--;
	if (!t)
		return;
	t->nr_requests--;
	if (err && !t->err) {
		t->err = err;
		/* Send no more requests of a failed task. */
		peer_task_unqueue(t);
	}
	peer_task_check(p, t);
}

/* Take operations in turn; return NULL if no request can be sent now. */
struct peer_request *peer_request_next(struct pst_peer *p, struct peer_msg *ret)
{
	struct peer_task *t = p->todo.head;
	struct peer_request *q;
	bool get;

	if (!t)
		return NULL;
	get = t->op->kind == IO_READ;
	if (peer_request_new(p, get ? PEER_GET : PEER_PUT, &q, &ret->id) < 0)
		return NULL;
	q->task = t;
	q->off = t->issued;
	q->len = (uint32_t)MIN(t->end - t->issued, (uint64_t)p->data_max);
	t->issued += q->len;
	t->nr_requests++;
	peer_task_unqueue(t);
	if (t->issued < t->end)
		peer_tasks_push(&p->todo, t);
	ret->type = get ? PEER_GET : PEER_PUT;
	ret->share = t->share;
	ret->off = t->op->off + q->off;
	ret->count = q->len;
	ret->err = 0;
	ret->len = PEER_HEAD + (get ? 0 : q->len);
	return q;
}
