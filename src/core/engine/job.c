/* SPDX-License-Identifier: MIT */
/*
 * Jobs: requests on device memory, one staging slot at a time.
 *
 * A read fills the slot from the file and then copies it to the device, a write the other
 * way round; both halves are asynchronous, and a worker has many slots under way.  In the
 * slot a job part lies as it does in the file, modulo the file's blocks.  So a read can take the
 * blocks around its bytes by O_DIRECT.  A write is aligned as a whole, or takes no
 * O_DIRECT (plan.c).
 */
#include <string.h>

#include "base/crc32c.h"
#include "base/err.h"
#include "base/log.h"
#include "core/engine/engine.h"
#include "core/engine/job.h"
#include "core/path/path.h"
#include "core/path/plan.h"
#include "core/path/source.h"
#include "core/queue/object.h"
#include "core/queue/queue.h"
#include "core/queue/req.h"

static void job_reason(struct job *j, uint32_t why, int detail)
{
	if (reason_wanted(j->why)) {
		j->why = why;
		j->detail = detail;
	}
}

/* Of the job's range nothing holds from pos on. */
static void job_settle(struct job *j, uint64_t pos, int err)
{
	j->limit = MIN(j->limit, pos);
	if (err && pos <= j->err_pos) {
		j->err_pos = pos;
		j->err = err;
	}
}

/* ----------------------------------------------------------------- copies */

/* Makes the job's checksum of what is in the slot, in piece order, up to the first missing byte. */
static void job_crc(struct job *j)
{
	if (!(j->req->io.flags & PST_IO_CRC32C))
		return;
	for (unsigned i = 0; i < j->nr_parts; i++) {
		const struct part *part = &j->parts[i];

		if (part->pos >= j->limit)
			break;
		j->crc = crc32c(j->crc, part->data, MIN(part->len, j->limit - part->pos));
	}
	j->crc_len = j->limit - j->pos;
}

/* How many bytes of a span are copied: a read may have met the end of the file. */
static uint64_t span_len(const struct job *j, const struct span *s)
{
	const struct part *part = &j->parts[s->part];
	uint64_t at = (uint64_t)(s->data - part->data);

	if (j->mapped || j->req->io.op == PST_OP_WRITE)
		return s->len;
	return part->got > at ? MIN(part->got - at, s->len) : 0;
}

/* Where the device finds the bytes of a span, or puts them. */
static void *span_source(const struct job *j, const struct span *s)
{
	const struct part *part = &j->parts[s->part];
	const struct source *from = j->req->plan.from;

	if (!j->mapped)
		return s->data;
	return (void *)(uintptr_t)from->ops->at(from, part->off + (uint64_t)(s->data - part->data));
}

static void job_copy_failed(struct worker *w, struct job *j, int err)
{
	job_settle(j, j->pos, err);
	j->crc_len = 0;
	engine_job_done(w, j);
}

/* Put the job's copies behind the first nr of v; how many there are then. */
static unsigned job_pieces(const struct job *j, struct mem_copy *v, unsigned nr)
{
	for (unsigned i = 0; i < j->nr_spans; i++) {
		const struct span *s = &j->spans[i];
		uint64_t len = span_len(j, s);

		if (len)
			v[nr++] = (struct mem_copy){ .alloc = req_mem(j->req)->region->alloc,
						     .off = s->mem_off,
						     .host = span_source(j, s),
						     .len = len };
	}
	return nr;
}

/* Its copies were started, as part of the batch that the ticket names. */
static void job_copying(struct worker *w, struct job *j, uint64_t ticket)
{
	uint32_t by = mem_copied_by(w->stream);

	j->ticket = ticket;
	j->dev_path = j->mapped ? j->req->plan.from->ops->path : by;
	if (by != path_base())
		j->paths |= PST_PATH_BIT(by);
	list_add_tail(&w->copying, &j->link);
}

static void job_copy(struct worker *w, struct job *j)
{
	bool write = j->req->io.op == PST_OP_WRITE;
	struct mem_copy v[JOB_PIECES];
	unsigned nr = job_pieces(j, v, 0);
	uint64_t ticket;
	int r;

	if (!nr) {
		engine_job_done(w, j);
		return;
	}
	r = mem_copy(w->stream, write ? MEM_FROM_DEVICE : MEM_TO_DEVICE, v, nr, &ticket);
	if (r == -EAGAIN) {
		list_add_tail(&w->to_copy, &j->link);
		return;
	}
	if (r < 0) {
		job_copy_failed(w, j, -r);
		return;
	}
	job_copying(w, j, ticket);
	if (!write)
		job_crc(j); /* while the copies are under way */
}

/* Copy them as one batch.  If that cannot be started, each job is copied by itself. */
static void jobs_copy(struct worker *w, struct list *jobs, const struct mem_copy *v, unsigned nr)
{
	uint64_t ticket;
	int r = nr ? mem_copy(w->stream, MEM_TO_DEVICE, v, nr, &ticket) : -EAGAIN;

	while (!list_empty(jobs)) {
		struct job *j = list_first(jobs, struct job, link);

		list_del(&j->link);
		if (r < 0) {
			j->grouped = false;
			job_copy(w, j);
		} else {
			job_copying(w, j, ticket);
		}
	}
}

void group_start(struct worker *w)
{
	struct mem_copy v[JOB_PIECES];
	struct list jobs = LIST_INIT(jobs);
	unsigned nr = 0;

	w->nr_group = 0;
	while (!list_empty(&w->group)) {
		struct job *j = list_first(&w->group, struct job, link);

		if (nr + j->nr_spans > JOB_PIECES) {
			jobs_copy(w, &jobs, v, nr);
			nr = 0;
		}
		list_del(&j->link);
		list_add_tail(&jobs, &j->link);
		nr = job_pieces(j, v, nr);
	}
	jobs_copy(w, &jobs, v, nr);
}

/* -------------------------------------------------------------------- file */

static void job_files_done(struct worker *w, struct job *j)
{
	int r;

	if (j->req->io.op == PST_OP_WRITE) {
		if (j->err)
			j->crc_len = 0;
		engine_job_done(w, j);
		return;
	}
	r = engine_job_touches(j, true);
	if (r < 0)
		job_copy_failed(w, j, -r);
	else
		job_copy(w, j);
}

static int slot_stopped(const struct part *p)
{
	return engine_job_touches(p->job, p->job->touches);
}

/* Give the part's results to its job. */
static void slot_done(struct part *p)
{
	struct job *j = p->job;

	if (p->why)
		job_reason(j, p->why, p->detail);
	/* The flag would tell of the slot, and not of the memory. */
	j->flags |= p->flags & ~(uint32_t)PST_DONE_PINNED;
	for (unsigned i = 0; i < j->req->plan.nr_hops; i++) {
		if (!p->bytes[i])
			continue;
		j->paths |= PST_PATH_BIT(j->req->plan.hop[i]);
		j->hop_bytes[i] += p->bytes[i];
	}
	if (p->left)
		p->err = EOPNOTSUPP;
	if (p->err || p->got < p->len)
		job_settle(j, p->pos + p->got, p->err);
	if (--j->nr_moving == 0)
		job_files_done(j->worker, j);
}

static const struct part_user slot = {
	.stopped = slot_stopped,
	.done = slot_done,
	.roomy = true,
};

static _inline_ void job_files(struct worker *w, struct job *j)
{
	/* Counted before the first starts, so that the last to end is the last. */
	j->nr_moving = j->nr_parts;
	for (unsigned i = 0, n = j->nr_parts; i < n; i++) {
		part_init(&j->parts[i], j->req, &w->mover, &slot);
		part_start(&j->parts[i]);
	}
}

/* All of it was staged, and there is a source: that may serve the bytes at the next read. */
static void job_seen(const struct job *j)
{
	const struct plan *p = &j->req->plan;
	uint32_t hops = 0;

	if (!p->from || j->mapped || j->limit != j->pos + j->len)
		return;
	for (unsigned i = 0; i < p->nr_hops; i++)
		if (j->hop_bytes[i])
			hops |= PST_PATH_BIT(p->hop[i]);
	for (unsigned i = 0; i < j->nr_parts; i++)
		p->from->ops->seen(p->from, j->parts[i].off, j->parts[i].len, hops);
}

/* Through the pool.  Fails if the caller lists device hops and not STAGED. */
static _inline_ void job_stage(struct worker *w, struct job *j)
{
	j->mapped = false;
	j->dev_path = 0;
	j->paths = 0;
	if (!j->req->plan.staged) {
		job_copy_failed(w, j, EOPNOTSUPP);
		return;
	}
	(void)engine_job_touches(j, false);
	job_files(w, j);
}

static bool source_still(const struct req *r)
{
	return r->plan.from->ops->still(r->plan.from);
}

static void job_copied(struct worker *w, struct job *j, int err)
{
	if (!err && j->req->io.op == PST_OP_WRITE)
		err = -engine_job_touches(j, false);
	if (err) {
		job_copy_failed(w, j, err);
		return;
	}
	if (j->mapped && !source_still(j->req)) {
		/* The pages may be of another file by now. */
		job_stage(w, j);
		return;
	}
	j->paths |= PST_PATH_BIT(j->dev_path);
	if (j->req->io.op == PST_OP_READ)
		job_seen(j);
	if (j->req->io.op == PST_OP_WRITE) {
		job_crc(j);
		job_files(w, j);
	} else {
		engine_job_done(w, j);
	}
}

/* Can the device copy every job part from the source? */
static bool job_is_ready(const struct job *j)
{
	const struct plan *p = &j->req->plan;
	struct source *s = p->from;

	for (unsigned i = 0; i < j->nr_parts; i++)
		if (!s->ops->ready(s, j->parts[i].off, j->parts[i].len, p->source_now))
			return false;
	return source_still(j->req);
}

void job_start(struct worker *w, struct job *j)
{
	const struct plan *p = &j->req->plan;

	if (j->req->io.op == PST_OP_WRITE) {
		job_copy(w, j);
	} else if (p->from && job_is_ready(j)) {
		int r = engine_job_touches(j, true);

		j->mapped = true;
		if (r < 0)
			job_copy_failed(w, j, -r);
		else if (j->grouped)
			list_add_tail(&w->group, &j->link);
		else
			job_copy(w, j);
	} else {
		if (p->source_now)
			job_reason(j, PST_WHY_NOT_RESIDENT, 0);
		job_stage(w, j);
	}
}

/* --------------------------------------------------------------- progress */

static bool progress_copies(struct worker *w)
{
	bool moved = false;
	struct job *j;
	int r;

	while (!list_empty(&w->copying)) {
		j = list_first(&w->copying, struct job, link);
		r = mem_poll(w->stream, j->ticket);
		if (!r)
			break;
		list_del(&j->link);
		moved = true;
		if (r < 0 && j->grouped) {
			/* Perhaps copies of others failed. */
			j->grouped = false;
			job_copy(w, j);
			continue;
		}
		job_copied(w, j, r < 0 ? -r : 0);
	}
	while (moved && !list_empty(&w->to_copy)) {
		j = list_first(&w->to_copy, struct job, link);
		list_del(&j->link);
		job_copy(w, j);
		/* There is still no room if j is back at the end of the list.  If its copy failed,
		 * j may be another request's job by now, so only its address is compared. */
		if (w->to_copy.prev == &j->link)
			break;
	}
	return moved;
}

bool worker_progress(struct worker *w)
{
	bool moved = mover_reap(&w->mover) > 0;

	moved |= progress_copies(w);
	if (unlikely(w->mover.parked)) {
		/* A close(2) that hangs must not take the worker along. */
		registry_progress(NULL);
		moved |= mover_unpark(&w->mover);
	}
	if (unlikely(w->mover.blocked))
		mover_unblock(&w->mover);
	w->flush_again = w->ctx->nr_ops && w->engine->backend->flush(w->ctx) < 0;
	if (io_others_flush(&w->others) < 0)
		w->flush_again = true;
	return moved;
}
