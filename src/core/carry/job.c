/* SPDX-License-Identifier: MIT */
/*
 * Jobs: requests on device memory, one staging slot at a time.
 *
 * A read fills the slot from the file and then copies it to the device; a write does the reverse.
 * Both steps are asynchronous, and a worker has many slots in flight.  A part begins in the slot at
 * the same offset modulo the file's block size as in the file, so O_DIRECT can read the whole
 * blocks around its bytes.  A write is aligned as a whole, or does not use O_DIRECT (plan.c).
 */
#include <string.h>

#include "base/crc32c.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/carry/job.h"
#include "core/queue/object.h"
#include "core/queue/queue.h"
#include "core/queue/req.h"
#include "core/sched/engine.h"
#include "core/sched/turns.h"
#include "core/stream/feed.h"
#include "core/ways/path.h"
#include "core/ways/plan.h"
#include "core/ways/source.h"
#include "core/ways/way.h"

/* From this many reads in a job on, the I/O context is cheaper than system calls. */
#define READS_MANY 4u
#define READS_OWN 16u  /* from this many reads in a job on, a private descriptor is cheaper */
#define MANY_SPANS 16u /* from this many spans on, a worker makes a list of the job's copies */

static void job_reason(struct job *j, uint32_t why, int detail)
{
	if (reason_wanted(j->why)) {
		j->why = why;
		j->detail = detail;
	}
}

/* Record that the job's bytes from pos on are not valid. */
static void job_settle(struct job *j, uint64_t pos, int err)
{
	j->limit = MIN(j->limit, pos);
	if (err && pos <= j->err_pos) {
		j->err_pos = pos;
		j->err = err;
	}
}

/* ----------------------------------------------------------------- copies */

/* Compute the job's checksum of the bytes in the slot, in piece order, up to the first missing
 * byte.  With PST_IO_CRC32C_MEM, a read's checksum is computed later from memory (check.c) and not
 * here; for a write both are computed and compared. */
static void job_crc(struct job *j)
{
	const struct pst_io *io = &j->req->io;

	if (!(io->flags & PST_IO_CRC32C))
		return;
	if (io->flags & PST_IO_CRC32C_MEM && io->op == PST_OP_READ)
		return;
	for (unsigned i = 0; i < j->nr_parts; i++) {
		const struct part *part = &j->parts[i];

		if (part->pos >= j->limit)
			break;
		j->crc = crc32c(j->crc, part->data, MIN(part->len, j->limit - part->pos));
	}
	j->crc_len = j->limit - j->pos;
}

/* Return how many bytes of a span to copy: fewer than its length if a read met the end of the
 * file. */
static uint64_t span_len(const struct job *j, const struct span *s)
{
	const struct part *part = &j->parts[s->part];
	uint64_t at = (uint64_t)(s->data - part->data);

	if (j->mapped || j->req->io.op == PST_OP_WRITE)
		return s->len;
	return part->got > at ? MIN(part->got - at, s->len) : 0;
}

/* Set the host side of a span's copy: the source, or the slot. */
static void span_aim(const struct job *j, const struct span *s, struct mem_copy *c)
{
	const struct part *part = &j->parts[s->part];
	const struct source *from = req_plan(j->req)->from;

	if (j->mapped)
		from->ops->aim(from, part->off + (uint64_t)(s->data - part->data), c);
	else
		c->host = s->data;
}

/* Tell the source that the device no longer touches the source's bytes. */
static void source_end(struct job *j)
{
	struct source *from = req_plan(j->req)->from;

	if (unlikely(j->source_used))
		from->ops->end(from);
	j->source_used = false;
}

static void job_copy_failed(struct job *j, int err)
{
	source_end(j);
	job_settle(j, j->pos, err);
	j->crc_len = 0;
	engine_job_done(j);
}

unsigned job_copies(const struct job *j, struct mem_copy *v, unsigned nr)
{
	for (unsigned i = 0; i < j->nr_spans; i++) {
		const struct span *s = &j->spans[i];
		uint64_t len = span_len(j, s);

		if (!len)
			continue;
		v[nr] = (struct mem_copy){ .alloc = req_mem(j->req)->region->alloc,
					   .off = s->mem_off,
					   .len = len };
		span_aim(j, s, &v[nr++]);
	}
	return nr;
}

void job_copying(struct job *j, uint32_t by)
{
	j->dev_path = j->mapped ? req_plan(j->req)->from->ops->path : by;
	if (by != path_base())
		j->paths |= PST_PATH_BIT(by);
}

static int worker_stream(struct worker *w)
{
	return w->stream ? 0 : mem_stream_new(w->engine->ops, w->engine->device, &w->stream);
}

/* Start the job's copies on the worker's stream. */
static void job_copy(struct worker *w, struct job *j)
{
	bool write = j->req->io.op == PST_OP_WRITE;
	struct mem_copy v[JOB_PIECES];
	unsigned nr = job_copies(j, v, 0);
	int r = worker_stream(w);

	if (r == 0)
		r = mem_copy(w->stream, write ? MEM_FROM_DEVICE : MEM_TO_DEVICE, v, nr, &j->ticket);
	if (r == -EAGAIN) {
		list_add_tail(&w->to_copy, &j->link);
		return;
	}
	if (r < 0) {
		job_copy_failed(j, -r);
		return;
	}
	job_copying(j, mem_copied_by(w->stream));
	if (list_empty(&w->copying))
		w->copying_since = now_ns();
	list_add_tail(&w->copying, &j->link);
}

/* Return true if a read found the end of the file before its first byte. */
static bool job_is_empty(const struct job *j)
{
	for (unsigned i = 0; i < j->nr_spans; i++)
		if (span_len(j, &j->spans[i]))
			return false;
	return true;
}

static bool has_sgl(struct job *j)
{
	struct mem_copy v[JOB_PIECES];
	const struct engine *e = j->engine;

	return j->sgl_room && mem_sgl_write(e->ops, e->device, MEM_TO_DEVICE, v,
					    job_copies(j, v, 0), j->sgl_room, &j->sgl) == 1;
}

/* Return true if a CPU copied most of the job's bytes, or the device copies them from their source.
 * "Most", because O_DIRECT leaves the edges of a piece to other hops. */
static bool is_warm(const struct job *j)
{
	const struct plan *p = req_plan(j->req);
	uint64_t by_cpu = 0, all = 0;

	for (unsigned i = 0; i < p->nr_hops; i++) {
		all += j->hop_bytes[i];
		if (path_ops_of(p->hop[i])->copies)
			by_cpu += j->hop_bytes[i];
	}
	return j->mapped || 2 * by_cpu > all;
}

/* Let the stream's next copy move the bytes of a read for which the stream waits. */
static void job_feed(struct job *j)
{
	bool empty = job_is_empty(j);
	struct mem_copy v[JOB_PIECES];
	int r = engine_job_touches(j, !empty);

	if (!j->mapped)
		job_crc(j);
	if (r == 0 && !empty)
		r = feed_list(j, v, job_copies(j, v, 0));
	if (r == 0 && !empty)
		r = engine_job_sent(j);
	if (r < 0) {
		job_copy_failed(j, -r);
	} else if (empty) {
		engine_job_done(j);
	} else {
		job_copying(j, feed_path(j));
		list_add_tail(&j->worker->copying, &j->link);
	}
}

/*
 * Pass a read on, now that the device can reach its bytes.  Usually the copier takes it.  If there
 * are many copies, the worker first writes their list, in parallel with other workers; if the
 * device reads no lists, the worker starts these copies on its own stream.
 */
static void job_filled(struct job *j)
{
	bool empty = job_is_empty(j), many = !empty && j->nr_spans >= MANY_SPANS;
	/* Count the job as touching memory first: a list names memory that its owner may free once
	 * the request is stopped. */
	int r = many ? engine_job_touches(j, true) : 0;
	bool own = many && r == 0 && !has_sgl(j);

	if (!j->mapped)
		job_crc(j);
	j->warm = is_warm(j);
	if (r == 0)
		r = empty ? engine_job_touches(j, false) : engine_job_filled(j, own);
	if (r < 0)
		job_copy_failed(j, -r);
	else if (empty)
		engine_job_done(j);
	else if (own)
		job_copy(j->worker, j);
}

/* -------------------------------------------------------------------- file */

static void job_files_done(struct job *j)
{
	if (j->fed) {
		job_feed(j);
		return;
	}
	if (j->req->io.op == PST_OP_READ) {
		job_filled(j);
		return;
	}
	if (j->err)
		j->crc_len = 0;
	engine_job_done(j);
}

static int slot_stopped(const struct part *p)
{
	return engine_job_touches(p->job, p->job->touches);
}

/* Add the part's results to its job. */
static void slot_done(struct part *p)
{
	struct job *j = p->job;

	if (p->why)
		job_reason(j, p->why, p->detail);
	/* PST_DONE_PINNED would describe the slot and not the request's memory. */
	j->flags |= p->flags & ~(uint32_t)PST_DONE_PINNED;
	for (unsigned i = 0; i < req_plan(j->req)->nr_hops; i++) {
		if (!p->bytes[i])
			continue;
		j->paths |= PST_PATH_BIT(req_plan(j->req)->hop[i]);
		j->hop_bytes[i] += p->bytes[i];
	}
	if (p->left)
		p->err = EOPNOTSUPP;
	if (p->err || p->got < p->len)
		job_settle(j, p->pos + p->got, p->err);
	if (--j->nr_moving == 0)
		job_files_done(j);
}

static const struct part_user slot = {
	.stopped = slot_stopped,
	.done = slot_done,
	.roomy = true,
};

/* Return true if memory holds the file's bytes, so that the worker reads without the I/O
 * context. */
static bool reads_now(const struct job *j)
{
	const struct path_ops *ops = path_ops_of(req_plan(j->req)->hop[0]);

	return j->req->io.op == PST_OP_READ && ops->now && ops->now(req_file(j->req)) &&
	       !fault_active;
}

/* Read bytes that memory holds, by the descriptor fd if it is not -1.  Return true if all bytes
 * were read. */
static bool read_now(struct part *p, int fd)
{
	const struct file *f = req_file(p->req);
	int64_t n = fd >= 0 ? own_file_read(fd, p->data, p->off, p->len)
			    : file_read_now(f, p->data, p->off, p->len);

	p->got = p->bytes[0] = n > 0 ? (uint64_t)n : 0;
	return p->got == p->len;
}

static _inline_ void job_files(struct worker *w, struct job *j)
{
	bool resident = req_file(j->req)->caps & FILE_RESIDENT;
	/* For many reads of a file on a disk, the I/O context is cheaper. */
	bool now = reads_now(j) && (resident || j->nr_parts < READS_MANY);
	int fd = now && j->nr_parts >= READS_OWN ? own_files_get(&w->files, req_file(j->req)) : -1;

	/* Set the count before the first part starts, because parts may end at once. */
	j->nr_moving = j->nr_parts;
	for (unsigned i = 0, n = j->nr_parts; i < n; i++) {
		struct part *p = &j->parts[i];

		part_init(p, j->req, &w->mover, &slot);
		if (now && read_now(p, fd))
			slot_done(p);
		else
			part_start(p);
	}
}

/* Tell the source that all bytes of the job were staged: the source may offer them to the next
 * read. */
static void job_seen(const struct job *j)
{
	const struct plan *p = req_plan(j->req);
	uint32_t hops = 0;

	if (!p->from || j->mapped || j->limit != j->pos + j->len)
		return;
	for (unsigned i = 0; i < p->nr_hops; i++)
		if (j->hop_bytes[i])
			hops |= PST_PATH_BIT(p->hop[i]);
	for (unsigned i = 0; i < j->nr_parts; i++)
		p->from->ops->seen(p->from, j->parts[i].off, j->parts[i].len, hops);
}

/* Stage the job's bytes through its slot.  Fail if the caller lists device paths without STAGED. */
static _inline_ void job_stage(struct worker *w, struct job *j)
{
	int err = 0;

	source_end(j);
	j->mapped = false;
	j->dev_path = 0;
	j->paths = 0;
	if (!req_plan(j->req)->staged)
		err = EOPNOTSUPP;
	else if (unlikely(j->beyond_slot)) /* source_ops.job_max promises that this cannot happen */
		err = EIO;
	else if (unlikely(j->touches)) /* part of the job was already copied from the source */
		err = -engine_job_touches(j, false);
	if (unlikely(err))
		job_copy_failed(j, err);
	else
		job_files(w, j);
}

static bool source_still(const struct req *r)
{
	return req_plan(r)->from->ops->still(req_plan(r)->from);
}

/* Continue a write after its device copies, which went to the slot or straight to the source. */
static void job_fetched(struct worker *w, struct job *j, int err)
{
	if (!err && j->mapped) {
		j->paths |= PST_PATH_BIT(j->dev_path);
		source_end(j);
		engine_job_done(j);
		return;
	}
	if (!err)
		err = -engine_job_touches(j, false);
	if (err) {
		job_copy_failed(j, err);
		return;
	}
	j->paths |= PST_PATH_BIT(j->dev_path);
	job_crc(j);
	job_files(w, j);
}

/* Handle the end of a read's copies.  Return false if the job must be staged instead. */
static bool read_copied(struct job *j, int err)
{
	if (!err && j->mapped && !source_still(j->req))
		return false; /* the copied bytes may not be the file's any more */
	if (err) {
		job_settle(j, j->pos, err);
		j->crc_len = 0;
	} else {
		j->paths |= PST_PATH_BIT(j->dev_path);
		job_seen(j);
	}
	source_end(j);
	return true;
}

/* Handle the end of a read's copies on the worker's stream. */
static void job_sent(struct worker *w, struct job *j, int err)
{
	if (read_copied(j, err))
		engine_job_done(j);
	else
		job_stage(w, j);
}

void jobs_copied(struct worker *w, struct list *jobs)
{
	struct list *el, *n;

	list_for_each_safe (el, n, jobs) {
		struct job *j = list_entry(el, struct job, link);

		if (read_copied(j, j->copy_err))
			continue;
		list_del(&j->link);
		engine_job_move(w, j);
		job_stage(w, j);
	}
	engine_jobs_done(w, jobs);
}

/* Return true if the device can copy every part of the job from the source. */
static bool job_is_ready(const struct job *j)
{
	const struct plan *p = req_plan(j->req);
	struct source *s = p->from;

	for (unsigned i = 0; i < j->nr_parts; i++)
		if (!s->ops->ready(s, j->parts[i].off, j->parts[i].len, p->source_now))
			return false;
	return source_still(j->req);
}

/* Start a job whose bytes the device copies directly from or to the source. */
static void job_map(struct worker *w, struct job *j)
{
	struct source *s = req_plan(j->req)->from;
	int r = s->ops->begin ? s->ops->begin(s) : 0;

	if (r < 0) {
		job_copy_failed(j, -r);
		return;
	}
	j->mapped = true;
	j->source_used = s->ops->end != NULL;
	if (j->req->io.op == PST_OP_WRITE)
		job_copy(w, j);
	else
		job_files_done(j);
}

void job_start(struct worker *w, struct job *j)
{
	const struct plan *p = req_plan(j->req);

	if (unlikely(!j->nr_parts)) {
		job_copy_failed(j, EINVAL); /* the caller changed the segments, which is not
					     * allowed */
	} else if (p->from && job_is_ready(j)) {
		job_map(w, j);
	} else if (j->req->io.op == PST_OP_WRITE && !j->beyond_slot) {
		job_copy(w, j);
	} else {
		if (p->source_now)
			job_reason(j, PST_WHY_NOT_RESIDENT, 0);
		job_stage(w, j);
	}
}

/* ---------------------------------------------------------------- progress */

bool jobs_progress(struct worker *w)
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
		w->copying_since = now_ns();
		moved = true;
		if (j->req->io.op == PST_OP_WRITE)
			job_fetched(w, j, r < 0 ? -r : 0);
		else
			job_sent(w, j, r < 0 ? -r : 0);
	}
	while (moved && !list_empty(&w->to_copy)) {
		j = list_first(&w->to_copy, struct job, link);
		list_del(&j->link);
		job_copy(w, j);
		/* If j is at the end of the list again, the stream is still full.  Compare only the
		 * address of j: if its copy failed, j may already serve another request. */
		if (w->to_copy.prev == &j->link)
			break;
	}
	return moved;
}

/* Poll every sent copy: their streams run independently of each other. */
bool jobs_progress_fed(struct worker *w)
{
	struct list *el, *n;
	bool moved = false;

	list_for_each_safe (el, n, &w->copying) {
		struct job *j = list_entry(el, struct job, link);
		int r = feed_poll(j);

		if (!r)
			continue;
		list_del(&j->link);
		job_sent(w, j, r < 0 ? -r : 0);
		moved = true;
	}
	return moved;
}
