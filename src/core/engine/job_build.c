/* SPDX-License-Identifier: MIT */
/*
 * Filling a slot: with pieces of the request, and the file operations that these take.
 */
#include <string.h>

#include "core/engine/engine.h"
#include "core/engine/job.h"
#include "core/engine/transfer.h"
#include "core/path/plan.h"
#include "core/queue/cursor.h"
#include "core/queue/req.h"

static uint64_t block(const struct req *r)
{
	return MAX(PAGE, req_file(r)->off_align);
}

static uint64_t slot_end(const struct job *j, const struct part *part)
{
	return (uint64_t)(part->data + part->len - j->buf);
}

/* Put up to max bytes of a piece into the slot; how many found room. */
static uint64_t job_add(struct job *j, const struct piece *pc, uint64_t max)
{
	struct part *part = j->nr_parts ? &j->parts[j->nr_parts - 1] : NULL;
	struct span *span = j->nr_spans ? &j->spans[j->nr_spans - 1] : NULL;
	uint64_t slot = j->engine->slot_size, blk = block(j->req);
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
		/* Jobs of one piece meet on the file's blocks, so that only the request's own
		 * edges are edges. */
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

/* A path without slots left bytes behind: the job takes one piece of them. */
static void build_redo(struct job *j)
{
	struct req *r = j->req;
	struct piece *pc = transfers_redo(r);

	j->pos = pc->pos;
	j->len = job_add(j, pc, j->engine->slot_size);
	transfers_redo_skip(r, j->len);
}

static void build_next(struct job *j)
{
	struct req *r = j->req;
	uint64_t n, max = engine_part(r);
	struct piece pc;

	while (j->len < max && cursor_peek(&r->cur, &pc)) {
		n = max - j->len;
		if (unlikely(r->plan.pieces))
			n = MIN(n, transfers_leave(r, &pc));
		if (n)
			n = job_add(j, &pc, n);
		if (!n)
			break;
		cursor_skip(&r->cur, n);
		j->len += n;
	}
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
	j->mapped = j->alone = j->at_copier = false;
	j->copy_err = 0;
	memset(j->hop_bytes, 0, sizeof(j->hop_bytes));
	if (unlikely(r->eng.redo))
		build_redo(j);
	else
		build_next(j);
	j->limit = j->pos + j->len;
	j->err_pos = UINT64_MAX;
}
