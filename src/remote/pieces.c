/* SPDX-License-Identifier: MIT */
/* Tasks, and the pieces by which they are sent. */
#include "remote/link.h"

/* ------------------------------------------------------------------- lists */

void pieces_push(struct pieces *q, struct piece *p)
{
	p->next = NULL;
	if (q->head)
		q->tail->next = p;
	else
		q->head = p;
	q->tail = p;
}

struct piece *pieces_pop(struct pieces *q)
{
	struct piece *p = q->head;

	if (p)
		q->head = p->next;
	return p;
}

void pieces_remove(struct pieces *q, struct piece *p)
{
	struct piece *last = NULL;

	for (struct piece **at = &q->head; *at; last = *at, at = &(*at)->next) {
		if (*at != p)
			continue;
		*at = p->next;
		if (q->tail == p)
			q->tail = last;
		return;
	}
}

void opened_push_task(struct opened *of, struct task *t)
{
	t->next = NULL;
	if (of->todo)
		of->todo_last->next = t;
	else
		of->todo = t;
	of->todo_last = t;
	t->queued = true;
}

void opened_remove_task(struct opened *of, struct task *t)
{
	struct task *last = NULL;

	for (struct task **at = &of->todo; *at; last = *at, at = &(*at)->next) {
		if (*at != t)
			continue;
		*at = t->next;
		if (of->todo_last == t)
			of->todo_last = last;
		break;
	}
	t->queued = false;
}

/* ------------------------------------------------------------------ pieces */

struct piece *piece_new(struct link *l, enum piece_kind kind)
{
	struct remote_ctx *c = l->ctx;
	struct piece *p = c->free_pieces;

	if (!p)
		return NULL;
	c->free_pieces = p->next;
	*p = (struct piece){
		.link = l, .kind = (uint8_t)kind, .turn = p->turn + 1, .state = PIECE_WAITS
	};
	return p;
}

void piece_free(struct piece *p)
{
	struct remote_ctx *c = p->link->ctx;

	if (p->task)
		p->task->nr_pieces--;
	p->task = NULL;
	p->state = PIECE_FREE;
	p->next = c->free_pieces;
	c->free_pieces = p;
}

uint64_t piece_id(const struct piece *p)
{
	return (uint64_t)p->turn << 32 | (uint64_t)(p - p->link->ctx->pieces);
}

struct piece *piece_find(const struct link *l, uint64_t id)
{
	uint64_t idx = id & UINT32_MAX;
	struct piece *p = idx < LINK_PIECES ? &l->ctx->pieces[idx] : NULL;

	return p && p->state == PIECE_SENT && p->link == l && p->turn == id >> 32 ? p : NULL;
}

bool piece_is_long(const struct piece *p)
{
	return p->kind == PIECE_TASK && !p->rdma && p->len > LINK_LONG;
}

/* ------------------------------------------------------------------- tasks */

void task_end(struct task *t)
{
	struct opened *of = t->of;
	struct remote_ctx *c = of->link->ctx;
	struct io_op *op = t->op;

	link_rdma_task_end(of->link, t);
	if (t->queued)
		opened_remove_task(of, t);
	op->moved = io_op_is_sync(op) ? 0 : t->limit;
	op->res = t->err ? -t->err : (int64_t)op->moved;
	op->ctx_data = NULL;
	io_fifo_push(&c->done, op);
	c->nr_done++;
	t->next = c->free_tasks;
	c->free_tasks = t;
	of->nr_tasks--;
	of->link->nr_tasks--;
}

bool task_is_issued(const struct task *t)
{
	return t->issued >= MAX(t->limit, UINT64_C(1));
}

void task_check(struct task *t)
{
	if (!t->nr_pieces && (t->err || task_is_issued(t)))
		task_end(t);
}

/* Record that bytes from off on are missing. */
void task_cut(struct task *t, uint64_t off, int err)
{
	if (off < t->limit || (err && !t->err && off == t->limit) || io_op_is_sync(t->op)) {
		t->limit = off;
		t->err = err;
	}
	if (t->queued && (t->err || task_is_issued(t)))
		opened_remove_task(t->of, t);
}

/* The remaining bytes are not needed any more. */
void pieces_drop(struct pieces *q)
{
	struct piece *p;

	while ((p = pieces_pop(q)))
		piece_free(p);
}

void opened_fail(struct opened *of, int err)
{
	struct task *t;
	struct piece *p;

	while ((p = pieces_pop(&of->again))) {
		t = p->task;
		piece_free(p);
		task_cut(t, p->off, err);
		task_check(t);
	}
	while ((t = of->todo)) {
		task_cut(t, MIN(t->issued, t->limit), err);
		if (t->queued)
			opened_remove_task(of, t);
		task_check(t);
	}
}

void link_fail(struct link *l, int err)
{
	for (struct opened *of = l->files; of; of = of->next)
		opened_fail(of, err);
}
