/* SPDX-License-Identifier: MIT */
/*
 * Requests on device memory, one staging slot at a time.
 *
 * A read fills the slot from the file and then copies it to the device, a write the other
 * way round; both halves are asynchronous, and a worker has many slots under way.  In the
 * slot a job part lies as it does in the file, modulo the file's blocks.  So a read can take the
 * blocks around what is wanted by O_DIRECT.  A write is aligned as a whole, or takes no
 * O_DIRECT (plan.c).
 */
#include <string.h>

#include "base/crc32c.h"
#include "base/err.h"
#include "base/log.h"
#include "core/engine/engine.h"
#include "core/path/pagecache.h"
#include "core/path/plan.h"
#include "core/path/staged.h"
#include "core/queue/object.h"
#include "core/queue/queue.h"
#include "core/queue/req.h"

#define REAP_BATCH 64u

/* ----------------------------------------------------------------- copies */

/* Makes the job's checksum of what is in the slot, in piece order, up to the first missing byte. */
static void job_crc(struct job *j)
{
	if (!(j->req->io.flags & PST_IO_CRC32C))
		return;
	for (unsigned i = 0; i < j->nr_job_parts; i++) {
		const struct job_part *job_part = &j->parts[i];

		if (job_part->pos >= j->limit)
			break;
		j->crc = crc32c(j->crc, job_part->data,
				MIN(job_part->len, j->limit - job_part->pos));
	}
	j->crc_len = j->limit - j->pos;
}

/* How many bytes of a span are copied: a read may have met the end of the file. */
static uint64_t span_len(const struct job *j, const struct span *s)
{
	const struct job_part *job_part = &j->parts[s->job_part];
	uint64_t at = (uint64_t)(s->data - job_part->data);

	if (j->mapped || j->req->io.op == PST_OP_WRITE)
		return s->len;
	return job_part->got > at ? MIN(job_part->got - at, s->len) : 0;
}

/* Where the device finds the bytes of a span, or puts them. */
static void *span_source(const struct job *j, const struct span *s)
{
	const struct job_part *job_part = &j->parts[s->job_part];

	if (!j->mapped)
		return s->data;
	return (void *)(uintptr_t)pagecache_at(
		j->req->plan.map, job_part->off + (uint64_t)(s->data - job_part->data));
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
	bool gather = mem_copied_by(w->stream) == PST_PATH_GATHER;

	j->ticket = ticket;
	j->dev_path = j->mapped ? PST_PATH_PAGECACHE : gather ? PST_PATH_GATHER : PST_PATH_STAGED;
	if (gather)
		j->paths |= PST_PATH_BIT(PST_PATH_GATHER);
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

void job_files_done(struct worker *w, struct job *j)
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

/* Note what came out of the page cache: pages that are read again get pinned. */
static void job_seen(const struct job *j)
{
	const struct plan *p = &j->req->plan;

	if (!p->map || j->mapped || j->hop_bytes[PST_PATH_CACHED] != j->len)
		return;
	for (unsigned i = 0; i < j->nr_job_parts; i++)
		pagecache_seen(p->map, j->parts[i].off, j->parts[i].len);
}

/* Through the pool.  Fails if the caller lists device hops and not STAGED. */
static void job_stage(struct worker *w, struct job *j)
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

static void job_copied(struct worker *w, struct job *j, int err)
{
	if (!err && j->req->io.op == PST_OP_WRITE)
		err = -engine_job_touches(j, false);
	if (err) {
		job_copy_failed(w, j, err);
		return;
	}
	if (j->mapped && !pagecache_still(j->req->plan.map)) {
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

/* Are the bytes of every job part pinned in the page cache? */
static bool job_is_pinned(const struct job *j)
{
	const struct plan *p = &j->req->plan;

	for (unsigned i = 0; i < j->nr_job_parts; i++)
		if (!pagecache_ready(p->map, j->parts[i].off, j->parts[i].len, p->pin_now))
			return false;
	return pagecache_still(p->map);
}

void job_start(struct worker *w, struct job *j)
{
	const struct plan *p = &j->req->plan;

	if (j->req->io.op == PST_OP_WRITE) {
		job_copy(w, j);
	} else if (p->map && job_is_pinned(j)) {
		int r = engine_job_touches(j, true);

		j->mapped = true;
		if (r < 0)
			job_copy_failed(w, j, -r);
		else if (j->grouped)
			list_add_tail(&w->group, &j->link);
		else
			job_copy(w, j);
	} else {
		if (p->pin_now)
			job_reason(j, PST_WHY_NOT_RESIDENT, 0);
		job_stage(w, j);
	}
}

/* --------------------------------------------------------------- progress */

static bool progress_files(struct worker *w)
{
	struct io_op *ops[REAP_BATCH];
	unsigned n = w->engine->backend->reap(w->ctx, ops, REAP_BATCH);

	for (unsigned i = 0; i < n; i++)
		job_part_op_done(w, container_of(ops[i], struct job_part, op));
	return n > 0;
}

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
			/* Others' copies may be what failed. */
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

static void queue_blocked(struct worker *w)
{
	struct job_part *job_part = w->blocked, *next;

	w->blocked = NULL;
	for (; job_part; job_part = next) {
		next = job_part->next;
		job_part_queue(w, job_part);
	}
}

/* Writes that had to wait for others of their file; not those of requests that were stopped. */
static bool queue_parked(struct worker *w)
{
	struct job_part *job_part, *next;
	bool moved = false;

	/* A close(2) that hangs must not take the worker along. */
	registry_progress(NULL);
	job_part = TAKE_PTR(w->parked);
	for (; job_part; job_part = next) {
		struct job *j = job_part->job;
		int err = engine_job_touches(j, j->touches);

		next = job_part->next;
		if (err < 0) {
			io_op_begin(&job_part->op);
			job_part->op.res = err;
			job_part_op_done(w, job_part);
		} else {
			job_part_queue(w, job_part);
		}
		moved |= w->parked != job_part;
	}
	return moved;
}

bool worker_progress(struct worker *w)
{
	bool moved = progress_files(w);

	moved |= progress_copies(w);
	if (unlikely(w->parked))
		moved |= queue_parked(w);
	if (moved && w->blocked)
		queue_blocked(w);
	w->flush_again = w->ctx->nr_ops && w->engine->backend->flush(w->ctx) < 0;
	return moved;
}
