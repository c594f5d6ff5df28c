/* SPDX-License-Identifier: MIT */
#include "core/carry/transfer.h"
#include "core/sched/above.h"
#include "core/sched/engine.h"
#include "core/sched/share.h"
#include "core/sched/turns.h"
#include "core/ways/way.h"

/* Stop using the transfers' path for the request. */
static void transfer_give_up(struct req *r, int err)
{
	req_plan(r)->left = true;
	req_reason(r, req_plan(r)->pieces->why, err);
	if (req_plan(r)->staged)
		return;
	req_settle(r, r->cur.pos, r->total - r->cur.pos, 0, EOPNOTSUPP);
	r->cur.seg = r->cur.nr;
}

bool transfers_start(struct req *r)
{
	const struct path_pieces *by = req_plan(r)->pieces;
	struct transfer *t;
	struct piece pc;
	uint64_t skip, n;
	int err;

	while (!req_plan(r)->left && cursor_peek(&r->cur, &pc)) {
		n = by->fit(r, &pc, &skip);
		if (!n || skip)
			return true;
		err = by->start(r, &pc, n, &t);
		if (err == 0)
			return false;
		if (err < 0) {
			transfer_give_up(r, -err);
			break;
		}
		req_engine(r)->nr_jobs++;
		req_engine(r)->nr_touch++;
		cursor_skip(&r->cur, t->pc.len);
	}
	return req_plan(r)->left;
}

uint64_t transfers_leave(const struct req *r, const struct piece *pc)
{
	uint64_t skip;

	return !req_plan(r)->left && req_plan(r)->pieces->fit(r, pc, &skip) ? skip : pc->len;
}

struct piece *transfers_redo(struct req *r)
{
	return req_engine(r)->redo ? &req_engine(r)->redo->pc : NULL;
}

void transfers_redo_skip(struct req *r, uint64_t len)
{
	struct transfer *t = req_engine(r)->redo;

	t->pc.file_off += len;
	t->pc.mem_off += len;
	t->pc.pos += len;
	t->pc.len -= len;
	if (t->pc.len)
		return;
	req_engine(r)->redo = t->next;
	req_plan(r)->pieces->free(t);
}

void transfers_redo_drop(struct req *r)
{
	while (req_engine(r)->redo) {
		const struct piece *pc = &req_engine(r)->redo->pc;

		if (!req_engine(r)->dead)
			req_settle(r, pc->pos, pc->len, 0, r->stop ? r->end_err : r->res.err);
		transfers_redo_skip(r, pc->len);
	}
}

/* Add a transfer's result to its request.  Return true if the piece must be staged. */
static bool transfer_results(struct transfer *t)
{
	struct req *r = t->req;
	const struct piece *pc = &t->pc;

	if (!t->why) {
		req_moved(r, req_plan(r)->pieces->path, t->got);
		req_settle(r, pc->pos, pc->len, t->got, 0);
		r->res.flags |= t->flags;
		/* Nothing follows the end of the file, so a request of one piece reads no
		 * further. */
		if (t->got < pc->len && r->one_piece)
			r->cur.seg = r->cur.nr;
		return false;
	}
	req_reason(r, t->why, t->detail);
	if (!r->stop && req_plan(r)->staged)
		return true;
	req_settle(r, pc->pos, pc->len, 0, r->stop ? r->end_err : EOPNOTSUPP);
	return false;
}

void transfer_done(struct transfer *t)
{
	struct req *r = t->req;
	struct engine *e = req_engine(r)->share->engine;
	const struct path_pieces *by = req_plan(r)->pieces;
	bool again;

	pthread_mutex_lock(&e->lock);
	again = !req_engine(r)->dead && transfer_results(t);
	if (again) {
		t->next = req_engine(r)->redo;
		req_engine(r)->redo = t;
	}
	engine_transfer_done(r);
	pthread_mutex_unlock(&e->lock);
	if (!again)
		by->free(t);
}
