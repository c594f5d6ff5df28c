/* SPDX-License-Identifier: MIT */
/*
 * Filling a slot: with pieces of the request, and the file operations that these take.
 */
#include <string.h>

#include "gds/path/gds.h"
#include "core/engine/engine.h"
#include "core/path/plan.h"
#include "core/path/staged.h"
#include "core/queue/cursor.h"
#include "core/queue/req.h"

static uint64_t block(const struct req *r)
{
	return MAX(PAGE, req_local(r)->off_align);
}

static uint64_t slot_end(const struct job *j, const struct job_part *job_part)
{
	return (uint64_t)(job_part->data + job_part->len - j->buf);
}

/* Put up to max bytes of a piece into the slot; how many found room. */
static uint64_t job_add(struct job *j, const struct piece *pc, uint64_t max)
{
	struct job_part *job_part = j->nr_job_parts ? &j->parts[j->nr_job_parts - 1] : NULL;
	struct span *span = j->nr_spans ? &j->spans[j->nr_spans - 1] : NULL;
	uint64_t slot = j->engine->slot_size, blk = block(j->req);
	uint64_t mem_off = req_mem(j->req)->off + pc->mem_off, n = MIN(pc->len, max);
	bool adjacent = job_part && job_part->off + job_part->len == pc->file_off;
	char *data;

	if (adjacent) {
		data = job_part->data + job_part->len;
	} else {
		uint64_t at = job_part ? align_up(slot_end(j, job_part), blk) : 0;

		at += pc->file_off & (blk - 1);
		if (at >= slot || j->nr_job_parts == JOB_PIECES)
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
		job_part = &j->parts[j->nr_job_parts++];
		*job_part = (struct job_part){
			.job = j, .pos = pc->pos, .off = pc->file_off, .data = data
		};
	}
	job_part->len += n;
	span->len += n;
	span->job_part = j->nr_job_parts - 1;
	return n;
}

/* What cuFile did not move after all: one piece. */
static void build_redo(struct job *j)
{
	struct req *r = j->req;

	j->pos = gds_redo(r)->pos;
	j->len = job_add(j, gds_redo(r), j->engine->chunk);
	gds_redo_skip(r, j->len);
}

static void build_next(struct job *j)
{
	struct req *r = j->req;
	uint64_t n, max = engine_part(r);
	struct piece pc;

	while (j->len < max && cursor_peek(&r->cur, &pc)) {
		n = max - j->len;
		if (r->plan.gds)
			n = MIN(n, gds_stage_len(r, &pc));
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
	j->nr_job_parts = j->nr_spans = j->nr_ops = 0;
	j->err = j->detail = 0;
	j->why = j->flags = j->paths = j->crc = 0;
	j->dev_path = 0;
	j->mapped = false;
	memset(j->hop_bytes, 0, sizeof(j->hop_bytes));
	if (gds_redo(r))
		build_redo(j);
	else
		build_next(j);
	j->limit = j->pos + j->len;
	j->err_pos = UINT64_MAX;
}
