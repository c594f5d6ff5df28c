/* SPDX-License-Identifier: MIT */
/* Calls that wait for their requests, on a cached or a new queue. */
#include <inttypes.h>
#include <stdio.h>

#include "api/guard.h"
#include "api/ranges.h"
#include "base/err.h"
#include "base/opts.h"
#include "core/carry/now.h"
#include "core/queue/idle.h"

/* Bytes per second that a call without a deadline must reach. */
#define RATE_MIN (10 * 1000 * 1000u)
#define TIMEOUT_NS (TIMEOUT_DEFAULT_MS * NSEC_PER_MSEC)

struct call {
	struct pst_io io; /* fields of all requests, except memory and ranges */
	const struct pst_vec *vecs;
	struct ranges ranges;
	unsigned next;  /* index of the first group that was not prepared */
	int unmet;      /* positive errno that kept further requests from starting; 0: none */
	char text[512]; /* sentence of unmet */
};

static int sync_reap(struct call *c, struct pst_queue *q)
{
	struct pst_done done[32];
	int n = pst_queue_reap(q, done, 1, ARRAY_SIZE(done), PST_NO_DEADLINE);

	for (int i = 0; i < n; i++) {
		struct group *g = &c->ranges.groups[done[i].user_data];

		g->done = done[i];
		g->ended = true;
	}
	return n;
}

static int sync_prep(const struct call *c, struct pst_queue *q, unsigned idx)
{
	const struct group *g = &c->ranges.groups[idx];
	struct pst_io io = c->io;

	io.mem = g->mem;
	io.segs = &c->ranges.segs[g->first];
	io.nr_segs = g->nr;
	io.user_data = idx;
	return pst_queue_prep(q, &io);
}

static void unmet(struct call *c, int err)
{
	c->unmet = -err;
	(void)snprintf(c->text, sizeof(c->text), "%s", err_text());
}

/* Start the requests that were not started yet, and wait until all have ended. */
static void sync_move(struct call *c, struct pst_queue *q)
{
	unsigned nr = c->ranges.nr_groups, under_way = 0;
	int r = 0, n;

	c->unmet = 0;
	do {
		while (r == 0 && c->next < nr) {
			r = sync_prep(c, q, c->next);
			if (r == 0) {
				c->next++;
				under_way++;
			}
		}
		if (r == -EAGAIN && under_way)
			r = 0; /* the queue is full: reap first */
		if (r < 0 && !c->unmet)
			unmet(c, r);
		(void)pst_queue_submit(q);
		n = under_way ? sync_reap(c, q) : 0;
		under_way -= (unsigned)MAX(n, 0);
	} while (under_way || (r == 0 && c->next < nr));
}

static int move_all(struct call *c, struct pst_queue **q)
{
	int r = idle_take(q);

	if (r < 0)
		return r;
	sync_move(c, *q);
	if (c->unmet != EBUSY || now_ns() >= c->io.deadline_ns)
		return 0;
	/* Other calls have used the queue, so the queue may hold staging memory of another device.
	 * Retry with another queue. */
	queue_free(TAKE_PTR(*q));
	r = idle_take(q);
	if (r == 0)
		sync_move(c, *q);
	else
		unmet(c, r); /* keep the completions of requests that have run */
	return 0;
}

/* Return advice about memory that no path reaches, for a sentence; "" if that is not the cause. */
static const char *sync_cure(const struct call *c, const struct pst_done *done)
{
	const struct pst_mem *m = done->user_data < c->ranges.nr ? c->vecs[done->user_data].mem
								 : NULL;
	const struct mem_ops *ops = m ? m->region->alloc->ops : NULL;

	if (done->res != -EOPNOTSUPP || !ops || mem_copies(ops) || !ops->reach)
		return "";
	return ops->reach;
}

/* Set the sentence of a call that failed. */
static void sync_say(const struct call *c, const struct group *g, const struct pst_done *done)
{
	const char *cure = sync_cure(c, done);
	char text[512];

	if (!g)
		(void)err_set((int)done->res, "%s", c->text);
	else if (c->ranges.nr == 1)
		(void)err_set((int)done->res, "%s%s%s", pst_done_text(&g->done, text, sizeof(text)),
			      *cure ? "; " : "", cure);
	else
		(void)err_set((int)done->res, "from range %" PRIu64 " on: %s%s%s", done->user_data,
			      pst_done_text(&g->done, text, sizeof(text)), *cure ? "; " : "", cure);
}

static int sync_run(uint32_t op, struct pst_file *file, const struct pst_vec *vecs, unsigned nr,
		    const struct pst_call_opts *opts, struct pst_done *ret)
{
	struct call c = { .io = { .op = op, .file = file }, .vecs = vecs };
	uint64_t now = now_ns();
	struct pst_call_opts o;
	struct pst_queue *q = NULL;
	const struct group *failed = NULL;
	int r = opts_copy(&o, sizeof(o), opts);

	if (r < 0)
		return r;
	if (o.flags & ~(PST_IO_STRICT | PST_IO_STREAM_WAIT))
		return err_set(EINVAL, "flags 0x%x do not go with a call that waits", o.flags);
	if (o.reserved)
		return err_set(EINVAL, "the reserved field of the options is not 0");
	if (!c.io.file)
		return err_set(EINVAL, "no file is given");
	r = ranges_init(&c.ranges, c.io.op, c.vecs, nr);
	if (r == 0) {
		c.io.flags = o.flags;
		c.io.policy = o.policy;
		c.io.stream = o.stream;
		c.io.deadline_ns = o.deadline_ns
					   ? o.deadline_ns
					   : now + TIMEOUT_NS +
						     MIN(c.ranges.total / RATE_MIN, UINT32_MAX) *
							     NSEC_PER_SEC;
		r = move_all(&c, &q);
	}
	if (r == 0) {
		failed = ranges_result(&c.ranges, c.vecs, c.unmet, ret);
		r = (int)MIN(ret->res, 0);
		if (r < 0)
			sync_say(&c, failed, ret);
	}
	/* Release the wrapped memory before another call may use the queue. */
	ranges_done(&c.ranges);
	idle_give(q);
	return r;
}

/* Try to read a cached range without a request.  If the result is false, nothing was done. */
static bool sync_try_one(struct pst_file *file, const struct pst_vec *v, struct pst_done *ret)
{
	const struct pst_io io = {
		.op = PST_OP_READ,
		.file = file,
		.mem = v->mem,
		.file_off = v->file_off,
		.mem_off = v->mem_off,
		.len = v->len,
		.user_data = 1,
		.reserved = { v->reserved },
	};
	struct pst_queue *q = idle_take_used();
	struct pst_done done;
	bool moved;

	if (!q)
		return false;
	queue_lock(q);
	moved = queue_try(q, &io, 1, &done);
	queue_unlock(q);
	idle_give(q);
	if (moved)
		*ret = done;
	return moved;
}

/* Execute pst_read(), pst_write(), pst_readv() or pst_writev(). */
static int64_t sync_call(uint32_t op, struct pst_file *file, const struct pst_vec *vecs,
			 unsigned nr, const struct pst_call_opts *opts, struct pst_done *ret_done)
{
	_cleanup_(errno_restore) int saved = errno;
	struct pst_done done = { .op = op, .user_data = nr };
	int r;

	NO_CANCEL();
	r = fork_guard();
	if (r == 0 &&
	    !(nr == 1 && op == PST_OP_READ && vecs && !opts && sync_try_one(file, vecs, &done)))
		r = sync_run(op, file, vecs, nr, opts, &done);
	if (r < 0)
		done.res = r;
	if (ret_done)
		*ret_done = done;
	return done.res;
}

int64_t pst_readv(struct pst_file *file, const struct pst_vec *vecs, unsigned nr,
		  const struct pst_call_opts *opts, struct pst_done *ret_done)
{
	return sync_call(PST_OP_READ, file, vecs, nr, opts, ret_done);
}

int64_t pst_writev(struct pst_file *file, const struct pst_vec *vecs, unsigned nr,
		   const struct pst_call_opts *opts, struct pst_done *ret_done)
{
	return sync_call(PST_OP_WRITE, file, vecs, nr, opts, ret_done);
}

int64_t pst_read(struct pst_file *file, uint64_t file_off, struct pst_mem *mem, uint64_t mem_off,
		 uint64_t len, struct pst_done *ret_done)
{
	struct pst_vec v = { .mem = mem, .mem_off = mem_off, .file_off = file_off, .len = len };

	return sync_call(PST_OP_READ, file, &v, 1, NULL, ret_done);
}

int64_t pst_write(struct pst_file *file, uint64_t file_off, struct pst_mem *mem, uint64_t mem_off,
		  uint64_t len, struct pst_done *ret_done)
{
	struct pst_vec v = { .mem = mem, .mem_off = mem_off, .file_off = file_off, .len = len };

	return sync_call(PST_OP_WRITE, file, &v, 1, NULL, ret_done);
}

int pst_file_sync(struct pst_file *file)
{
	const struct pst_io io = { .op = PST_OP_SYNC, .file = file };
	struct pst_queue *q = NULL;
	struct pst_done done;
	int r;

	GUARD();
	if (!file)
		return err_set(EINVAL, "no file is given");
	r = idle_take(&q);
	if (r < 0)
		return r;
	r = pst_queue_prep(q, &io);
	if (r == 0)
		r = pst_queue_submit(q);
	if (r > 0)
		r = pst_queue_reap(q, &done, 1, 1, PST_NO_DEADLINE);
	idle_give(q);
	if (r == 1)
		r = done.res < 0 ? err_set((int)-done.res, "the file could not be synced: %s",
					   err_name((int)-done.res))
				 : 0;
	return r;
}
