/* SPDX-License-Identifier: MIT */
/* The peer's memory over the socket: operations, and the requests that they are sent as. */
#include "base/err.h"
#include "peer/ctx.h"

static void todo_push(struct pst_peer *p, struct peer_task *t)
{
	t->next = NULL;
	if (p->todo)
		p->todo_last->next = t;
	else
		p->todo = t;
	p->todo_last = t;
	t->queued = true;
}

void peer_todo_remove(struct pst_peer *p, struct peer_task *t)
{
	struct peer_task *last = NULL;

	for (struct peer_task **at = &p->todo; *at; last = *at, at = &(*at)->next) {
		if (*at != t)
			continue;
		*at = t->next;
		if (p->todo_last == t)
			p->todo_last = last;
		break;
	}
	t->queued = false;
}

/* End an operation whose requests are all back, or are not waited for.  With the lock. */
static void socket_task_end(struct pst_peer *p, struct peer_task *t)
{
	struct io_op *op = t->op;

	if (t->queued)
		peer_todo_remove(p, t);
	op->moved = t->err ? 0 : t->end;
	op->res = t->err ? t->err : (int64_t)t->end;
	__atomic_store_n(&op->ctx_data, NULL, __ATOMIC_RELAXED);
	io_inbox_push(t->in, op);
	free(t);
}

static void socket_task_check(struct pst_peer *p, struct peer_task *t)
{
	if (!t->nr_requests && (t->err || t->issued == t->end))
		socket_task_end(p, t);
}

int socket_start(struct peer_file *f, struct io_inbox *in, struct io_op *op)
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
	};
	(void)pthread_mutex_lock(&p->lock);
	if (p->err || p->closing) {
		r = -EPIPE;
	} else if (!t->end) {
		socket_task_end(p, TAKE_PTR(t));
	} else {
		op->ctx_data = t;
		todo_push(p, TAKE_PTR(t));
		peer_kick(p);
	}
	(void)pthread_mutex_unlock(&p->lock);
	free(t);
	return r;
}

/* Its requests are not waited for any more: their replies find no task.  With the lock. */
static void task_detach(struct pst_peer *p, struct peer_task *t)
{
	for (unsigned i = 0; i < PEER_REQUESTS_MAX && t->nr_requests; i++) {
		if (p->requests[i].task != t)
			continue;
		p->requests[i].task = NULL;
		t->nr_requests--;
	}
}

void socket_cancel(struct peer_file *f, struct io_op *op)
{
	struct pst_peer *p = f->peer;
	struct peer_task *t;

	(void)pthread_mutex_lock(&p->lock);
	t = op->ctx_data;
	if (t) {
		task_detach(p, t);
		t->err = -ECANCELED;
		socket_task_end(p, t);
	}
	(void)pthread_mutex_unlock(&p->lock);
}

void peer_tasks_fail(struct pst_peer *p, int err)
{
	for (unsigned i = 0; i < PEER_REQUESTS_MAX; i++) {
		struct peer_request *q = &p->requests[i];
		struct peer_task *t = q->task;

		if (t) {
			task_detach(p, t);
			t->err = err;
			socket_task_end(p, t);
		}
		if (q->used && q->opening && !q->opening->done) {
			q->opening->done = true;
			q->opening->err = err;
			q->opening = NULL;
		}
	}
	while (p->todo) {
		p->todo->err = err;
		socket_task_end(p, p->todo);
	}
}

/* ---------------------------------------------------------------- requests */

int peer_request_new(struct pst_peer *p, uint8_t type, struct peer_request **ret, uint64_t *ret_id)
{
	/* One place is for OPEN, which has no turn among operations. */
	if (p->nr_requests + (type != PEER_OPEN && p->requests_max > 1) >= p->requests_max)
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
		/* The rest is for nothing. */
		if (t->queued)
			peer_todo_remove(p, t);
	}
	socket_task_check(p, t);
}

/* The next request, of each operation in turn; NULL: none can be sent now. */
struct peer_request *peer_request_next(struct pst_peer *p, struct peer_msg *ret)
{
	struct peer_task *t = p->todo;
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
	peer_todo_remove(p, t);
	if (t->issued < t->end)
		todo_push(p, t);
	ret->type = get ? PEER_GET : PEER_PUT;
	ret->share = t->share;
	ret->off = t->op->off + q->off;
	ret->count = q->len;
	ret->err = 0;
	ret->len = PEER_HEAD + (get ? 0 : q->len);
	return q;
}
