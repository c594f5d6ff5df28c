/* SPDX-License-Identifier: MIT */
#include "core/engine/engine.h"
#include "core/engine/share.h"
#include "core/engine/transfer.h"

/* The path moves nothing more of the request. */
static void give_up(struct req *r, int err)
{
	r->plan.left = true;
	req_reason(r, r->plan.pieces->why, err);
	if (r->plan.staged)
		return;
	req_settle(r, r->cur.pos, r->total - r->cur.pos, 0, EOPNOTSUPP);
	r->cur.seg = r->cur.nr;
}

enum transfers_turn transfers_start(struct req *r)
{
	const struct path_pieces *by = r->plan.pieces;
	struct transfer *t;
	struct piece pc;
	uint64_t skip, n;
	int err;

	while (!r->plan.left && cursor_peek(&r->cur, &pc)) {
		n = by->fit(r, &pc, &skip);
		if (!n || skip)
			return TRANSFERS_SLOT;
		err = by->start(r, &pc, n, &t);
		if (err == 0)
			return TRANSFERS_LATER;
		if (err < 0) {
			give_up(r, -err);
			break;
		}
		r->eng.nr_jobs++;
		r->eng.nr_touch++;
		cursor_skip(&r->cur, t->pc.len);
	}
	return r->plan.left ? TRANSFERS_SLOT : TRANSFERS_LATER;
}

uint64_t transfers_leave(const struct req *r, const struct piece *pc)
{
	uint64_t skip;

	return !r->plan.left && r->plan.pieces->fit(r, pc, &skip) ? skip : pc->len;
}

struct piece *transfers_redo(struct req *r)
{
	return r->eng.redo ? &r->eng.redo->pc : NULL;
}

void transfers_redo_skip(struct req *r, uint64_t len)
{
	struct transfer *t = r->eng.redo;

	t->pc.file_off += len;
	t->pc.mem_off += len;
	t->pc.pos += len;
	t->pc.len -= len;
	if (t->pc.len)
		return;
	r->eng.redo = t->next;
	r->plan.pieces->free(t);
}

void transfers_redo_drop(struct req *r)
{
	while (r->eng.redo) {
		const struct piece *pc = &r->eng.redo->pc;

		if (!r->eng.dead)
			req_settle(r, pc->pos, pc->len, 0, r->stop ? r->end_err : r->res.err);
		transfers_redo_skip(r, pc->len);
	}
}

/* Give the result to the request.  True: the piece has to be staged. */
static bool transfer_results(struct transfer *t)
{
	struct req *r = t->req;
	const struct piece *pc = &t->pc;

	if (!t->why) {
		req_moved(r, r->plan.pieces->path, t->got);
		req_settle(r, pc->pos, pc->len, t->got, 0);
		r->res.flags |= t->flags;
		/* Nothing of a request of one piece is behind the end of the file. */
		if (t->got < pc->len && r->one_piece)
			r->cur.seg = r->cur.nr;
		return false;
	}
	req_reason(r, t->why, t->detail);
	if (!r->stop && r->plan.staged)
		return true;
	req_settle(r, pc->pos, pc->len, 0, r->stop ? r->end_err : EOPNOTSUPP);
	return false;
}

void transfer_done(struct transfer *t)
{
	struct req *r = t->req;
	struct engine *e = r->eng.share->engine;
	const struct path_pieces *by = r->plan.pieces;
	bool again;

	pthread_mutex_lock(&e->lock);
	again = !r->eng.dead && transfer_results(t);
	if (again) {
		t->next = r->eng.redo;
		r->eng.redo = t;
	}
	engine_transfer_done(r);
	pthread_mutex_unlock(&e->lock);
	if (!again)
		by->free(t);
}
