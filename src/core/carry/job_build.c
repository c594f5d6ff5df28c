/* SPDX-License-Identifier: MIT */
/*
 * Fill a job with pieces of the request and with their file operations.
 *
 * Reading hundreds of segments takes microseconds, and all workers want the engine's lock for their
 * next job.  So pieces of equal length are only claimed under the lock: the number that fits is
 * known without reading the segments.
 */
#include <string.h>

#include "core/carry/transfer.h"
#include "core/queue/cursor.h"
#include "core/queue/req.h"
#include "core/sched/above.h"
#include "core/sched/engine.h"
#include "core/sched/job_size.h"
#include "core/ways/plan.h"
#include "core/ways/way.h"

static uint64_t slot_end(const struct job *j, const struct part *part)
{
	return (uint64_t)(part->data + part->len - j->buf);
}

/* Put up to max bytes of a piece into the job.  Return how many bytes fit. */
static uint64_t job_add(struct job *j, const struct piece *pc, uint64_t max)
{
	struct part *part = j->nr_parts ? &j->parts[j->nr_parts - 1] : NULL;
	struct span *span = j->nr_spans ? &j->spans[j->nr_spans - 1] : NULL;
	uint64_t slot = j->beyond_slot ? UINT64_MAX : j->engine->slot_size;
	uint64_t blk = req_block(j->req);
	uint64_t mem_off = req_mem(j->req)->off + pc->mem_off, n = MIN(pc->len, max);
	bool adjacent = part && part->off + part->len == pc->file_off;
	char *data;

	if (adjacent) {
		data = part->data + part->len;
	} else {
		uint64_t at = part ? align_up(slot_end(j, part), blk) : 0;

		at += pc->file_off & (blk - 1);
		if (at >= slot || j->nr_parts == JOB_PIECES)
			return 0;
		data = j->buf + at;
	}
	n = MIN(n, slot - (uint64_t)(data - j->buf));
	if (n < pc->len) {
		/* A cut piece must end at a block of the file, so that only the request's own ends
		 * are unaligned. */
		uint64_t end = align_down(pc->file_off + n, blk);

		if (end <= pc->file_off)
			return 0;
		n = end - pc->file_off;
	}
	if (!span || !adjacent || span->mem_off + span->len != mem_off) {
		if (j->nr_spans == JOB_PIECES)
			return 0;
		span = &j->spans[j->nr_spans++];
		*span = (struct span){ .mem_off = mem_off, .data = data };
	}
	if (!adjacent) {
		part = &j->parts[j->nr_parts++];
		part->job = j;
		part->pos = pc->pos;
		part->off = pc->file_off;
		part->len = part->got = 0;
		part->data = data;
		part->reg = j->reg;
	}
	part->len += n;
	span->len += n;
	span->part = j->nr_parts - 1;
	return n;
}

/* Build a job from one piece that a path without slots did not move. */
static void build_redo(struct job *j)
{
	struct req *r = j->req;
	struct piece *pc = transfers_redo(r);

	j->pos = pc->pos;
	j->len = job_add(j, pc, j->engine->slot_size);
	transfers_redo_skip(r, j->len);
}

/* Put up to max bytes of the pieces at the cursor into the job. Return how many bytes fit. */
static uint64_t build_from(struct job *j, struct cursor *from, uint64_t max)
{
	const struct req *r = j->req;
	uint64_t n, len = 0;
	struct piece pc;

	while (len < max && cursor_peek(from, &pc)) {
		n = max - len;
		if (unlikely(req_plan(r)->pieces))
			n = MIN(n, transfers_leave(r, &pc));
		if (n)
			n = job_add(j, &pc, n);
		if (!n)
			break;
		cursor_skip(from, n);
		len += n;
	}
	return len;
}

/* Return how many whole pieces of equal length the job may claim; 0: read the segments now. */
static uint64_t even_pieces(const struct job *j, uint64_t max)
{
	const struct req *r = j->req;
	const struct cursor *c = &r->cur;
	uint64_t nr, most = job_even_pieces(r);

	/* Do not claim pieces of requests with streams: the clock may stop these, and does not wait
	 * for a thread that reads segments. */
	if (!most || c->off || req_engine(r)->order || req_engine(r)->feed)
		return 0;
	nr = MIN(max / r->shape.even, c->nr - c->seg);
	return MIN(nr, most);
}

/* Build a job from bytes of one piece that do not go through the slot. */
static void build_beyond_slot(struct job *j, uint64_t max)
{
	struct req *r = j->req;
	struct piece pc;

	j->beyond_slot = true;
	if (cursor_peek(&r->cur, &pc))
		j->len = job_add(j, &pc, max);
	cursor_skip(&r->cur, j->len);
}

static void build_next(struct job *j)
{
	struct req *r = j->req;
	uint64_t beyond = engine_part_beyond_slot(r), max = engine_part(r);
	uint64_t nr = even_pieces(j, max);

	if (unlikely(beyond)) {
		build_beyond_slot(j, beyond);
		return;
	}
	j->claimed = nr > 1;
	if (j->claimed) {
		j->from = r->cur;
		j->len = nr * r->shape.even;
		cursor_skip_even(&r->cur, nr, r->shape.even);
	} else {
		j->len = build_from(j, &r->cur, max);
	}
}

void job_build_claimed(struct job *j)
{
	/* If the caller has changed the segments, fewer bytes fit: see job_start(). */
	j->limit = j->pos + build_from(j, &j->from, j->len);
}

void job_build(struct job *j)
{
	struct req *r = j->req;

	j->pos = r->cur.pos;
	j->len = j->crc_len = 0;
	j->nr_parts = j->nr_spans = j->nr_moving = 0;
	j->err = j->detail = 0;
	j->why = j->flags = j->paths = j->crc = 0;
	j->dev_path = 0;
	j->mapped = j->source_used = j->beyond_slot = j->alone = j->at_copier = j->claimed = false;
	j->copy_err = 0;
	j->sgl.nr = 0;
	memset(j->hop_bytes, 0, sizeof(j->hop_bytes));
	if (unlikely(req_engine(r)->redo))
		build_redo(j);
	else
		build_next(j);
	j->limit = j->pos + j->len;
	j->err_pos = UINT64_MAX;
}
