/* SPDX-License-Identifier: MIT */
/*
 * pst_queue_try(): cached reads without requests.
 *
 * For a single read, one system call is cheapest, even into device memory that the CPU can use.
 * Several reads into host memory use the queue's I/O context, whose flush completes such
 * operations.  If operations of requests end during that time, the requests continue as in
 * pst_queue_reap().
 */
#include "base/cancel.h"
#include "base/fault.h"
#include "base/probe.h"
#include "core/carry/now.h"
#include "core/queue/lower.h"
#include "core/queue/object.h"
#include "core/queue/plain.h"
#include "core/queue/queue.h"
#include "core/ways/part.h"
#include "core/ways/path.h"
#include "core/ways/plan.h"
#include "core/ways/way.h"
#include "window/copy.h"

#define MANY 4u       /* from this many reads on, the I/O context is cheaper than system calls */
#define BATCH 32u     /* maximum operations in the I/O context at a time */
#define LATE_NS 50000 /* ns to wait for an operation that has not ended */

/* Return true if the read may be tried.  Injected faults (fault_active) must only hit requests. */
static inline bool now_may_try(const struct pst_queue *q, const struct pst_io *io)
{
	return is_usual(q, io) && likely(io->op == PST_OP_READ && io->len <= SUBMIT_COPY_MAX) &&
	       likely(!io->deadline_ns && io->len && !fault_active);
}

/* Return the plan of a read that may be tried, or NULL. */
static const struct plan *plan_now(const struct pst_queue *q, const struct pst_io *io)
{
	const struct plan *plan = plan_of_read(q, io);
	const struct path_ops *ops = plan ? path_ops_of(plan->hop[0]) : NULL;

	return ops && ops->now && ops->now(io->file->file) ? plan : NULL;
}

static const struct plan *try_plan(const struct pst_queue *q, const struct pst_io *io)
{
	return likely(now_may_try(q, io)) ? plan_now(q, io) : NULL;
}

/* Count a read that has all of its bytes, as a request would be counted.  dev is its device path,
 * or 0. */
static void moved(struct pst_queue *q, const struct pst_io *io, const struct plan *plan,
		  uint32_t dev, struct pst_done *ret)
{
	struct counters *st = &q->st;
	uint8_t path = plan->hop[0];

	*ret = (struct pst_done){
		.user_data = io->user_data,
		.res = (int64_t)io->len,
		.prefix = io->len,
		.paths = PST_PATH_BIT(path) | (dev ? PST_PATH_BIT(dev) : 0),
		.why = plan->why,
		.detail = plan->detail,
		.op = io->op,
	};
	PROBE4(read__now, q, io->len, ret->paths, io->user_data);
	count(&st->requests, 1);
	count(&st->bytes[path], io->len);
	if (dev)
		count(&st->bytes[dev], io->len);
	count_reason(st, plan->why);
}

static void not_moved(const struct pst_io *io, struct pst_done *ret)
{
	*ret = (struct pst_done){ .user_data = io->user_data, .res = -EAGAIN, .op = io->op };
}

static bool now_read_piece(const struct pst_io *io, char *at)
{
	return file_read_now(io->file->file, at, io->file_off, io->len) == (int64_t)io->len;
}

/* Let the kernel copy into device memory.  Return the device path that was used, or 0. */
static uint32_t read_into_device(struct pst_queue *q, const struct pst_io *io,
				 const struct plan *plan)
{
	uint32_t path = 0;

	/* Opening a window or a vendor's library may reach a cancellation point, and
	 * pst_queue_try() does not disable cancellation. */
	NO_CANCEL();
	if (plan->pieces)
		return 0;
	q->holder.now = about_now_ns();
	for (const struct path_ops **ops = path_list; *ops && !path; ops++) {
		struct hold *hold = NULL;
		char *at = (*ops)->reach_now ? (*ops)->reach_now(&q->holder, io, &hold) : NULL;

		if (at && now_read_piece(io, at)) {
			copy_fence_stores(); /* wait for the kernel's stores */
			path = (*ops)->path;
		}
		hold_put(&q->holder, &hold);
	}
	return path;
}

static bool try_plan_of(struct pst_queue *q, const struct pst_io *io, const struct plan *plan,
			struct pst_done *ret)
{
	uint32_t dev = 0;
	bool done;

	if (plan && plan->dev) {
		dev = read_into_device(q, io, plan);
		done = dev != 0;
	} else {
		done = plan && now_read_piece(io, mem_host(io->mem, io->mem_off));
	}
	if (done)
		moved(q, io, plan, dev, ret);
	else
		not_moved(io, ret);
	return done;
}

/* Try a read, for which now_may_try() returned true, on the file's lower file. */
static _noinline_ bool try_beneath(struct pst_queue *q, const struct pst_io *io,
				   struct pst_done *ret)
{
	struct pst_io below = *io;
	bool done;

	NO_CANCEL(); /* pst_queue_try() does not disable thread cancellation */
	if (lower_look(io->file, io->op, &below.file) < 0) {
		not_moved(io, ret);
		return false;
	}
	done = try_plan_of(q, &below, plan_now(q, &below), ret);
	lower_drop(io->file, io->op, below.file);
	return done;
}

static bool now_try_one(struct pst_queue *q, const struct pst_io *io, struct pst_done *ret)
{
	bool may = now_may_try(q, io);

	if (may && unlikely(io->file->file->ops->lower))
		return try_beneath(q, io, ret);
	return try_plan_of(q, io, likely(may) ? plan_now(q, io) : NULL, ret);
}

static bool queue_op(struct pst_queue *q, const struct pst_io *io, struct io_op *op)
{
	op->file = io->file->file;
	op->reg = io->mem->region->reg;
	op->buf = mem_host(io->mem, io->mem_off);
	op->off = io->file_off;
	op->len = io->len;
	op->kind = IO_READ;
	op->flags = IO_OP_NOWAIT;
	op->claim = WRITERS_NONE;
	return q->backend->queue(q->ctx, op) == 0;
}

/* Wait until all operations have ended, usually without delay.  Requests may make progress during
 * the wait. */
static void now_finish(struct pst_queue *q, const struct io_op *ops, unsigned nr)
{
	uintptr_t first = (uintptr_t)ops, size = BATCH * sizeof(*ops);
	struct io_op *got[BATCH];
	bool others = false;

	for (;;) {
		unsigned n;

		(void)q->backend->flush(q->ctx);
		n = q->backend->reap(q->ctx, got, BATCH);
		for (unsigned i = 0; i < n; i++) {
			if (likely((uintptr_t)got[i] - first < size)) {
				nr--;
			} else {
				part_op_done(container_of(got[i], struct part, op));
				others = true;
			}
		}
		if (likely(!nr))
			break;
		if (!n)
			(void)q->backend->wait(q->ctx, 1, now_ns() + LATE_NS);
	}
	if (likely(!others))
		return;
	queue_progress(q);
	if (q->armed)
		queue_notify(q);
}

static unsigned try_batch(struct pst_queue *q, const struct pst_io *ios, unsigned nr,
			  struct pst_done *ret)
{
	const struct plan *plan = NULL;
	struct io_op ops[BATCH];
	uint8_t of[BATCH];
	unsigned n = 0, good = 0;

	NO_CANCEL(); /* pst_queue_try() does not disable thread cancellation */
	for (unsigned i = 0; i < nr; i++) {
		const struct pst_io *io = &ios[i];
		bool same = plan && io->policy == ios[of[0]].policy;

		/* All reads of a batch must have the queue's last plan, file and memory. */
		if (unlikely(!(likely(same) ? now_may_try(q, io) : try_plan(q, io) != NULL) ||
			     !mem_on_host(io->mem) || !queue_op(q, io, &ops[n]))) {
			not_moved(io, &ret[i]);
			continue;
		}
		plan = &queue_way(q)->memo.plan;
		of[n++] = (uint8_t)i;
	}
	if (n)
		now_finish(q, ops, n);
	for (unsigned i = 0; i < n; i++) {
		const struct pst_io *io = &ios[of[i]];

		if (likely(ops[i].res == (int64_t)io->len)) {
			moved(q, io, plan, 0, &ret[of[i]]);
			good++;
		} else {
			not_moved(io, &ret[of[i]]);
		}
	}
	return good;
}

/* Return true if the queue's last requests were on device memory. */
static bool on_device(const struct pst_queue *q)
{
	return q->last_mem && !mem_on_host(container_of(q->last_mem->obj, struct pst_mem, obj));
}

unsigned queue_try(struct pst_queue *q, const struct pst_io *ios, unsigned nr, struct pst_done *ret)
{
	unsigned good = 0, n;

	if (nr < MANY || !q->backend->now || on_device(q)) {
		for (unsigned i = 0; i < nr; i++)
			good += now_try_one(q, &ios[i], &ret[i]);
		return good;
	}
	for (unsigned i = 0; i < nr; i += n) {
		n = MIN(nr - i, BATCH);
		good += try_batch(q, &ios[i], n, &ret[i]);
	}
	return good;
}
