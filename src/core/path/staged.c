// SPDX-License-Identifier: MIT
/*
 * Requests on device memory, one staging slot at a time.
 *
 * A read fills the slot from the file and then copies it to the device, a write the other
 * way round; both halves are asynchronous, and a worker has many slots under way.  In the
 * slot a run lies as it does in the file, modulo its blocks.  So a read can take the
 * blocks around what is wanted by O_DIRECT.  A write is aligned as a whole, or takes no
 * O_DIRECT (plan.c).
 */
#include <string.h>

#include "base/crc32c.h"
#include "base/err.h"
#include "base/log.h"
#include "gds/path/gds.h"
#include "core/engine/engine.h"
#include "core/path/pagecache.h"
#include "core/path/plan.h"
#include "core/path/proof.h"
#include "core/queue/cursor.h"
#include "core/queue/object.h"
#include "core/queue/queue.h"
#include "core/queue/req.h"

#define REAP_BATCH 64u

/* ------------------------------------------------------------------ build */

static uint64_t block(const struct req *r)
{
	return MAX(PAGE, req_sf(r)->off_align);
}

static uint64_t slot_end(const struct job *j, const struct run *run)
{
	return (uint64_t)(run->data + run->len - j->buf);
}

/* Put up to max bytes of a piece into the slot; how many found room. */
static uint64_t job_add(struct job *j, const struct piece *pc, uint64_t max)
{
	struct run *run = j->nr_runs ? &j->runs[j->nr_runs - 1] : NULL;
	struct span *span = j->nr_spans ? &j->spans[j->nr_spans - 1] : NULL;
	uint64_t slot = j->engine->slot_size, blk = block(j->req);
	uint64_t mem_off = req_mem(j->req)->off + pc->mem_off, n = MIN(pc->len, max);
	bool adjacent = run && run->off + run->len == pc->file_off;
	char *data;

	if (adjacent) {
		data = run->data + run->len;
	} else {
		uint64_t at = run ? align_up(slot_end(j, run), blk) : 0;

		at += pc->file_off & (blk - 1);
		if (at >= slot || j->nr_runs == JOB_PIECES)
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
		run = &j->runs[j->nr_runs++];
		*run = (struct run){ .job = j, .pos = pc->pos, .off = pc->file_off, .data = data };
	}
	run->len += n;
	span->len += n;
	span->run = j->nr_runs - 1;
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
	j->nr_runs = j->nr_spans = j->nr_ops = 0;
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

/* ------------------------------------------------------------------ files */

void job_why(struct job *j, uint32_t why, int detail)
{
	if (!j->why) {
		j->why = why;
		j->detail = detail;
	}
}

static void job_settle(struct job *j, uint64_t pos, int err)
{
	j->limit = MIN(j->limit, pos);
	if (err && pos <= j->err_pos) {
		j->err_pos = pos;
		j->err = err;
	}
}

static void job_files_done(struct worker *w, struct job *j);

/* May the run's write start?  If not by O_DIRECT, then perhaps through the page cache. */
static bool run_may_write(struct run *run)
{
	const struct req *r = run->job->req;
	uint8_t last = (uint8_t)(r->plan.nr_hops - 1);

	if (likely(store_write_begin(&run->op)))
		return true;
	if (!(run->op.flags & STORE_OP_DIRECT) || r->plan.hop[last] != PST_PATH_BUFFERED ||
	    (r->io.flags & PST_IO_STRICT))
		return false;
	job_why(run->job, PST_WHY_MIXED, 0);
	run->hop = last;
	run->op.flags = 0;
	return store_write_begin(&run->op);
}

void run_queue(struct worker *w, struct run *run)
{
	int r;

	if (run->op.kind == STORE_WRITE && unlikely(!run_may_write(run))) {
		store_write_wait(&run->op);
		run->next = w->parked;
		w->parked = run;
		return;
	}
	r = w->engine->store->queue(w->lane, &run->op);
	if (r == -EAGAIN) {
		run->next = w->blocked;
		w->blocked = run;
	}
}

static void run_op(struct worker *w, struct run *run, uint8_t flags, uint64_t off, uint64_t len)
{
	struct job *j = run->job;

	run->op.file = req_sf(j->req);
	run->op.sbuf = j->sbuf;
	run->op.kind = j->req->io.op == PST_OP_WRITE ? STORE_WRITE : STORE_READ;
	run->op.flags = flags;
	run->op.off = off;
	run->op.len = len;
	run->op.buf = run->data + (int64_t)(off - run->off);
	run_queue(w, run);
}

/* Start the body of a run by the first hop from the given one on that can. */
void run_start(struct worker *w, struct run *run, unsigned hop)
{
	struct job *j = run->job;
	struct req *r = j->req;
	struct store_file *sf = req_sf(r);
	bool write = r->io.op == PST_OP_WRITE;

	run->step = RUN_BODY;
	for (; hop < r->plan.nr_hops; hop++) {
		uint64_t start = run->off, end = run->off + run->len;

		run->hop = (uint8_t)hop;
		switch (r->plan.hop[hop]) {
		case PST_PATH_CACHED:
			if (plan_try_cached(r, run->off, run->len)) {
				run_op(w, run, plan_nowait(sf) ? STORE_OP_NOWAIT : 0, start,
				       end - start);
				return;
			}
			if (r->plan.listed)
				job_why(j, PST_WHY_NOT_RESIDENT, 0);
			continue;
		case PST_PATH_DIRECT:
			if (proof_is_bad(run_proof(run))) {
				job_why(j, PST_WHY_NOT_PROVEN, 0);
				continue;
			}
			if (sf->direct_bad) {
				job_why(j, PST_WHY_DIRECT_ERROR, 0);
				continue;
			}
			if (!write) {
				start = align_down(start, sf->off_align);
				end = align_up(end, sf->off_align);
				if (end > INT64_MAX)
					continue;
			}
			run_op(w, run, STORE_OP_DIRECT, start, end - start);
			return;
		default:
			run_op(w, run, 0, start, end - start);
			return;
		}
	}
	run->err = EOPNOTSUPP;
	run_end(w, run);
}

/* The body came back whole or short; what of it was wanted? */
static void run_body_done(struct worker *w, struct run *run)
{
	struct job *j = run->job;
	struct req *r = j->req;
	struct store_op *op = &run->op;
	bool write = r->io.op == PST_OP_WRITE;
	int err = op->res < 0 ? (int)-op->res : 0;

	if (op->pin_err)
		job_why(j, PST_WHY_MEMLOCK, op->pin_err);
	if (op->flags & STORE_OP_NOWAIT) {
		bool miss = err == EAGAIN || err == EOPNOTSUPP ||
			    (!err && op->moved < op->len &&
			     !plan_at_end(op->file, op->off + op->moved));

		plan_cached(r, !miss && !err);
		if (miss) {
			if (r->plan.listed)
				job_why(j, PST_WHY_NOT_RESIDENT, 0);
			run_start(w, run, run->hop + 1u);
			return;
		}
	}
	if ((op->flags & STORE_OP_DIRECT) &&
	    (err == EINVAL || err == EOPNOTSUPP || err == ENOTBLK)) {
		atomic_store(&op->file->direct_bad, true);
		job_why(j, PST_WHY_DIRECT_ERROR, err);
		log_info("O_DIRECT refused with %s, going on without", err_name(err));
		run_start(w, run, run->hop + 1u);
		return;
	}
	run->err = err;
	if (write) {
		run->got = op->moved;
	} else {
		uint64_t lead = run->off - op->off;

		run->got = op->moved > lead ? MIN(op->moved - lead, run->len) : 0;
		if (run->got == run->len)
			run->err = err = 0; /* what failed was not asked for */
	}
	j->paths |= PST_PATH_BIT(r->plan.hop[run->hop]);
	j->hop_bytes[r->plan.hop[run->hop]] += write ? op->moved : run->got;
	if (err) {
		run_end(w, run);
		return;
	}
	if ((op->flags & STORE_OP_DIRECT) && op->moved &&
	    proof_state(run_proof(run)) != PST_STATE_PROVEN) {
		if (!run_prove(w, run))
			run_again(w, run);
		return;
	}
	run_end(w, run);
}

static void run_op_done(struct worker *w, struct run *run)
{
	store_write_end(&run->op);
	if (run->step == RUN_TRIAL)
		run_tried(w, run);
	else if (run->step == RUN_PROOF)
		run_proof_done(w, run);
	else
		run_body_done(w, run);
}

void run_end(struct worker *w, struct run *run)
{
	struct job *j = run->job;

	run_proof_free(run);
	if (run->err || run->got < run->len)
		job_settle(j, run->pos + run->got, run->err);
	if (--j->nr_ops == 0)
		job_files_done(w, j);
}

static void job_files(struct worker *w, struct job *j)
{
	/* Counted before the first starts, so that the last to end is the last. */
	j->nr_ops = j->nr_runs;
	for (unsigned i = 0, n = j->nr_runs; i < n; i++)
		run_start(w, &j->runs[i], 0);
}

/* ----------------------------------------------------------------- copies */

/* Over what is in the slot, in piece order, up to the first byte that is missing. */
static void job_crc(struct job *j)
{
	if (!(j->req->io.flags & PST_IO_CRC32C))
		return;
	for (unsigned i = 0; i < j->nr_runs; i++) {
		const struct run *run = &j->runs[i];

		if (run->pos >= j->limit)
			break;
		j->crc = crc32c(j->crc, run->data, MIN(run->len, j->limit - run->pos));
	}
	j->crc_len = j->limit - j->pos;
}

/* What of a span there is to copy: a read may have met the end of the file. */
static uint64_t span_len(const struct job *j, const struct span *s)
{
	const struct run *run = &j->runs[s->run];
	uint64_t at = (uint64_t)(s->data - run->data);

	if (j->mapped || j->req->io.op == PST_OP_WRITE)
		return s->len;
	return run->got > at ? MIN(run->got - at, s->len) : 0;
}

/* Where the device finds the bytes of a span, or puts them. */
static void *span_source(const struct job *j, const struct span *s)
{
	const struct run *run = &j->runs[s->run];

	if (!j->mapped)
		return s->data;
	return (void *)(uintptr_t)pagecache_at(j->req->plan.map,
					       run->off + (uint64_t)(s->data - run->data));
}

static void job_copy_failed(struct worker *w, struct job *j, int err)
{
	job_settle(j, j->pos, err);
	j->crc_len = 0;
	engine_job_done(w, j);
}

/* What the job has to copy goes behind the first nr of v; how many there are then. */
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

/* As one batch; what goes wrong in it is found out by copying each job by itself. */
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

/* What came out of the page cache is worth pinning for the next time. */
static void job_seen(const struct job *j)
{
	const struct plan *p = &j->req->plan;

	if (!p->map || j->mapped || j->hop_bytes[PST_PATH_CACHED] != j->len)
		return;
	for (unsigned i = 0; i < j->nr_runs; i++)
		pagecache_seen(p->map, j->runs[i].off, j->runs[i].len);
}

/* Through the pool, if the caller's list has it. */
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

/* Are the bytes of every run pinned in the page cache? */
static bool job_is_pinned(const struct job *j)
{
	const struct plan *p = &j->req->plan;

	for (unsigned i = 0; i < j->nr_runs; i++)
		if (!pagecache_ready(p->map, j->runs[i].off, j->runs[i].len, p->pin_now))
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
			job_why(j, PST_WHY_NOT_RESIDENT, 0);
		job_stage(w, j);
	}
}

/* --------------------------------------------------------------- progress */

static bool progress_files(struct worker *w)
{
	struct store_op *ops[REAP_BATCH];
	unsigned n = w->engine->store->reap(w->lane, ops, REAP_BATCH);

	for (unsigned i = 0; i < n; i++)
		run_op_done(w, container_of(ops[i], struct run, op));
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
		/* Still no room.  If its copy failed j may be somebody else's by now. */
		if (w->to_copy.prev == &j->link)
			break;
	}
	return moved;
}

static void queue_blocked(struct worker *w)
{
	struct run *run = w->blocked, *next;

	w->blocked = NULL;
	for (; run; run = next) {
		next = run->next;
		run_queue(w, run);
	}
}

/* Writes that had to wait for others of their file; not those of requests that were stopped. */
static bool queue_parked(struct worker *w)
{
	struct run *run, *next;
	bool moved = false;

	/* A close(2) that hangs must not take the worker along. */
	registry_progress(NULL);
	run = TAKE_PTR(w->parked);
	for (; run; run = next) {
		struct job *j = run->job;
		int err = engine_job_touches(j, j->touches);

		next = run->next;
		if (err < 0) {
			store_op_begin(&run->op);
			run->op.res = err;
			run_op_done(w, run);
		} else {
			run_queue(w, run);
		}
		moved |= w->parked != run;
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
	w->flush_again = w->lane->nr_ops && w->engine->store->flush(w->lane) < 0;
	return moved;
}
