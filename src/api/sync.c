/* SPDX-License-Identifier: MIT */
/*
 * Calls that wait for what they start.
 *
 * A call takes an idle queue, or makes one, and puts it back.  Ranges are grouped by the memory
 * that they lie in: each group is one request, and its ranges are the segments.  Addresses are
 * wrapped allocation by allocation, because frameworks cut many tensors out of few.
 */
#include <stdlib.h>
#include <string.h>

#include "api/guard.h"
#include "base/work.h"
#include "base/err.h"
#include "core/queue/clock.h"
#include "core/queue/object.h"
#include "core/queue/queue.h"

#define QUEUES_IDLE_MAX 4u
#define IDLE_NS NSEC_PER_SEC
#define RATE_MIN (10 * 1000 * 1000u) /* bytes a second that a call is given time for */
#define TIMEOUT_NS (TIMEOUT_DEFAULT_MS * NSEC_PER_MSEC)

/* ------------------------------------------------------------ idle queues */

/*
 * Queues between two calls, the last one used first.  A queue keeps staging memory and the
 * device's threads, so it ends when nobody asked for it in IDLE_NS.
 */
static struct {
	pthread_mutex_t lock; /* before the clock's */
	struct {
		struct pst_queue *q;
		uint64_t since;
	} of[QUEUES_IDLE_MAX];
	unsigned nr;
	struct alarm alarm;
	struct work end;
} idle = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Take the queue that was idle for longest out of the table, if that was long enough. */
static struct pst_queue *idle_expired(uint64_t now)
{
	struct pst_queue *q = NULL;

	pthread_mutex_lock(&idle.lock);
	if (idle.nr && idle.of[0].since + IDLE_NS <= now) {
		q = idle.of[0].q;
		idle.nr--;
		memmove(&idle.of[0], &idle.of[1], idle.nr * sizeof(idle.of[0]));
	}
	if (!q && idle.nr)
		clock_set(&idle.alarm, idle.of[0].since + IDLE_NS);
	if (!idle.nr)
		clock_del(&idle.alarm);
	pthread_mutex_unlock(&idle.lock);
	return q;
}

static void idle_end(struct work *w)
{
	struct pst_queue *q;

	(void)w;
	while ((q = idle_expired(now_ns())))
		(void)pst_queue_free(q);
}

static void idle_ring(struct alarm *a)
{
	/* Without a thread for it they stay until the next call. */
	(void)a;
	(void)work_queue(&idle.end, WORK_LOW);
}

static void idle_init(void)
{
	alarm_init(&idle.alarm, idle_ring);
	work_init(&idle.end, idle_end);
}

static int idle_take(struct pst_queue **ret)
{
	struct pst_queue *q = NULL;

	pthread_mutex_lock(&idle.lock);
	if (idle.nr)
		q = idle.of[--idle.nr].q;
	pthread_mutex_unlock(&idle.lock);
	if (!q)
		return pst_queue_new(NULL, ret);
	*ret = q;
	return 0;
}

/* A queue in which something still runs is ended: what runs is looked after there. */
static void idle_give(struct pst_queue *q, bool quiet)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, idle_init);
	pthread_mutex_lock(&idle.lock);
	if (quiet && idle.nr < QUEUES_IDLE_MAX && clock_add(&idle.alarm) == 0) {
		idle.of[idle.nr].q = q;
		idle.of[idle.nr++].since = now_ns();
		clock_set(&idle.alarm, idle.of[0].since + IDLE_NS);
		q = NULL;
	}
	pthread_mutex_unlock(&idle.lock);
	(void)pst_queue_free(q);
}

/* ------------------------------------------------------------------ groups */

/* Ranges in one piece of memory: one request. */
struct group {
	struct pst_mem *mem;
	uint64_t base;  /* the address of its first byte; 0: ranges have offsets in mem */
	unsigned first; /* of its ranges, in call.order and call.segs */
	unsigned nr;
	bool wrapped; /* mem is ours */
	bool ended;
	struct pst_done done;
};

struct call {
	struct pst_file *file;
	uint32_t op;
	const struct pst_vec *vecs;
	unsigned nr;
	uint64_t total;
	unsigned *order; /* ranges by memory, and in the caller's order within one */
	struct pst_seg *segs;
	struct group *groups;
	unsigned nr_groups;
};

static void call_done(struct call *c)
{
	for (unsigned i = 0; i < c->nr_groups; i++)
		if (c->groups[i].wrapped)
			(void)pst_mem_free(c->groups[i].mem);
	free(c->order);
	free(c->segs);
	free(c->groups);
}

static int check_vec(const struct pst_vec *v, unsigned i, uint64_t *total)
{
	if (!v->len)
		return err_set(EINVAL, "the length of range %u is zero", i);
	if (!v->mem && !v->mem_off)
		return err_set(EINVAL, "range %u has neither memory nor an address", i);
	if (__builtin_add_overflow(*total, v->len, total) || *total > INT64_MAX)
		return err_set(EOVERFLOW, "the lengths add up to more than INT64_MAX");
	return 0;
}

static int compare(const void *a, const void *b, void *arg)
{
	const struct pst_vec *vecs = arg;
	unsigned i = *(const unsigned *)a, k = *(const unsigned *)b;
	const struct pst_vec *v = &vecs[i], *w = &vecs[k];

	if (v->mem != w->mem)
		return (uintptr_t)v->mem < (uintptr_t)w->mem ? -1 : 1;
	if (!v->mem && v->mem_off != w->mem_off)
		return v->mem_off < w->mem_off ? -1 : 1;
	return i < k ? -1 : 1;
}

static int compare_index(const void *a, const void *b)
{
	return *(const unsigned *)a < *(const unsigned *)b ? -1 : 1;
}

/* Is the range in the memory of the group that was begun last? */
static bool belongs(const struct group *g, const struct pst_vec *v)
{
	if (v->mem || !g->wrapped)
		return v->mem == g->mem;
	return v->mem_off >= g->base && v->mem_off - g->base <= g->mem->len &&
	       v->len <= g->mem->len - (v->mem_off - g->base);
}

/* All of an allocation that the range lies in; of the host's memory just the range. */
static int wrap(const struct pst_vec *v, struct group *g)
{
	struct pst_mem_opts o = { .sz = sizeof(o) };
	struct mem_alloc *a;
	struct region *region;
	uint64_t end;
	int r;

	if (__builtin_add_overflow(v->mem_off, v->len, &end))
		return err_set(EINVAL, "the range wraps around the end of the address space");
	r = mem_wrap(v->mem_off, v->len, o.kind, o.flags, &a);
	if (r < 0)
		return r;
	g->base = a->base.va;
	g->wrapped = true;
	r = region_get(a, &region);
	if (r == 0)
		r = object_new_mem(region, 0, region->alloc->size, &g->mem);
	return r;
}

static int group_begin(struct call *c, const struct pst_vec *v, unsigned first)
{
	struct group *g = &c->groups[c->nr_groups];
	int r = 0;

	*g = (struct group){ .mem = v->mem, .first = first };
	if (!v->mem)
		r = wrap(v, g);
	if (r == 0)
		c->nr_groups++;
	return r;
}

static int call_group(struct call *c)
{
	int r;

	for (unsigned i = 0; i < c->nr; i++)
		c->order[i] = i;
	qsort_r(c->order, c->nr, sizeof(*c->order), compare, (void *)(uintptr_t)c->vecs);
	for (unsigned i = 0; i < c->nr; i++) {
		const struct pst_vec *v = &c->vecs[c->order[i]];

		if (!c->nr_groups || !belongs(&c->groups[c->nr_groups - 1], v)) {
			r = group_begin(c, v, i);
			if (r < 0)
				return r;
		}
		c->groups[c->nr_groups - 1].nr++;
	}
	for (unsigned i = 0; i < c->nr_groups; i++) {
		const struct group *g = &c->groups[i];

		/* A completion counts in the order of segments: make it the caller's. */
		qsort(&c->order[g->first], g->nr, sizeof(*c->order), compare_index);
		for (unsigned k = g->first; k < g->first + g->nr; k++) {
			const struct pst_vec *v = &c->vecs[c->order[k]];

			c->segs[k] = (struct pst_seg){ .file_off = v->file_off,
						       .mem_off = v->mem_off - g->base,
						       .len = v->len };
		}
	}
	return 0;
}

static int call_init(struct call *c)
{
	if (!c->file || !c->vecs)
		return err_set(EINVAL, "no %s is given", c->file ? "range" : "file");
	if (!c->nr || c->nr > PST_VECS_MAX)
		return err_set(EINVAL, "%u ranges are not within 1 and %u", c->nr, PST_VECS_MAX);
	for (unsigned i = 0; i < c->nr; i++) {
		int r = check_vec(&c->vecs[i], i, &c->total);

		if (r < 0)
			return r;
	}
	c->order = calloc(c->nr, sizeof(*c->order));
	c->segs = calloc(c->nr, sizeof(*c->segs));
	c->groups = calloc(c->nr, sizeof(*c->groups));
	if (!c->order || !c->segs || !c->groups)
		return err_set(ENOMEM, "out of memory");
	return call_group(c);
}

/* ----------------------------------------------------------------- running */

static int reap(struct call *c, struct pst_queue *q)
{
	struct pst_done done[32];
	int n = pst_queue_reap(q, done, 1, ARRAY_SIZE(done), PST_NO_DEADLINE);

	for (int i = 0; i < n; i++) {
		struct group *g = &c->groups[done[i].user_data];

		g->done = done[i];
		g->ended = true;
	}
	return n;
}

static int prep(const struct call *c, struct pst_queue *q, unsigned idx, uint64_t deadline_ns)
{
	const struct group *g = &c->groups[idx];
	const struct pst_io io = { .op = c->op,
				   .file = c->file,
				   .mem = g->mem,
				   .segs = &c->segs[g->first],
				   .nr_segs = g->nr,
				   .deadline_ns = deadline_ns,
				   .user_data = idx };

	return pst_queue_prep(q, &io);
}

/* Start all groups and see all that were started end.  The first error of starting one. */
static int call_run(struct call *c, struct pst_queue *q)
{
	uint64_t deadline = now_ns() + TIMEOUT_NS +
			    MIN(c->total / RATE_MIN, UINT32_MAX) * NSEC_PER_SEC;
	unsigned prepared = 0, ended = 0;
	int r = 0, s, n;

	while (ended < prepared || (r == 0 && prepared < c->nr_groups)) {
		while (r == 0 && prepared < c->nr_groups) {
			r = prep(c, q, prepared, deadline);
			if (r < 0)
				break;
			prepared++;
		}
		if (r == -EAGAIN && ended < prepared)
			r = 0; /* the queue is full */
		s = pst_queue_submit(q);
		n = ended < prepared ? reap(c, q) : 0;
		ended += (unsigned)MAX(n, 0);
		if (s < 0 && n <= 0)
			return r < 0 ? r : s; /* and the queue ends, with what is prepared */
	}
	return r;
}

/* ------------------------------------------------------------------ result */

/* Bytes that arrived of range k of a group, whose ranges before it have @before bytes. */
static uint64_t arrived(const struct group *g, uint64_t before, uint64_t len)
{
	uint64_t prefix = g->ended ? g->done.prefix : 0;

	return prefix <= before ? 0 : MIN(prefix - before, len);
}

/* What became of each range, in the caller's order: the prefix, and the first error. */
static int call_result(const struct call *c, struct pst_done *ret)
{
	_cleanup_(freep) uint64_t *got = calloc(c->nr, sizeof(*got));
	_cleanup_(freep) int *err = calloc(c->nr, sizeof(*err));
	bool whole = true;

	*ret = (struct pst_done){ .op = c->op };
	if (!got || !err)
		return err_set(ENOMEM, "out of memory");
	for (unsigned i = 0; i < c->nr_groups; i++) {
		const struct group *g = &c->groups[i];
		uint64_t before = 0;

		ret->paths |= g->done.paths;
		ret->flags |= g->done.flags & (PST_DONE_BUSY | PST_DONE_PINNED | PST_DONE_PROOF);
		if (!ret->why) {
			ret->why = g->done.why;
			ret->detail = g->done.detail;
		}
		for (unsigned k = g->first; k < g->first + g->nr; k++) {
			uint64_t len = c->segs[k].len;

			got[c->order[k]] = arrived(g, before, len);
			err[c->order[k]] = g->ended && g->done.res < 0 ? (int)g->done.res : 0;
			before += len;
		}
	}
	for (unsigned i = 0; i < c->nr && ret->res >= 0; i++) {
		/* An error counts wherever it is, bytes only in front of what is missing. */
		ret->res = err[i] && got[i] < c->vecs[i].len ? err[i] : 0;
		if (whole)
			ret->prefix += got[i];
		whole = whole && got[i] == c->vecs[i].len;
	}
	return 0;
}

static int64_t run(struct call *c, struct pst_done *ret_done)
{
	struct pst_queue *q = NULL;
	struct pst_done done = { .op = c->op };
	int r = call_init(c);

	if (r == 0)
		r = idle_take(&q);
	if (r == 0) {
		int started = call_run(c, q);

		r = call_result(c, &done);
		if (r == 0)
			r = started;
	}
	/* What was wrapped is let go before another call may use the queue. */
	call_done(c);
	if (q)
		idle_give(q, r == 0 && !(done.flags & PST_DONE_BUSY));
	if (r == 0 && done.res < 0) {
		char text[512];

		r = err_set((int)-done.res, "%s", pst_done_text(&done, text, sizeof(text)));
	}
	done.res = r < 0 ? r : (int64_t)done.prefix;
	if (ret_done)
		*ret_done = done;
	return done.res;
}

int64_t pst_readv(struct pst_file *file, const struct pst_vec *vecs, unsigned nr,
		  struct pst_done *ret_done)
{
	struct call c = { .file = file, .op = PST_OP_READ, .vecs = vecs, .nr = nr };

	GUARD();
	return run(&c, ret_done);
}

int64_t pst_writev(struct pst_file *file, const struct pst_vec *vecs, unsigned nr,
		   struct pst_done *ret_done)
{
	struct call c = { .file = file, .op = PST_OP_WRITE, .vecs = vecs, .nr = nr };

	GUARD();
	return run(&c, ret_done);
}

int64_t pst_read(struct pst_file *file, uint64_t file_off, struct pst_mem *mem, uint64_t mem_off,
		 uint64_t len, struct pst_done *ret_done)
{
	struct pst_vec v = { .mem = mem, .mem_off = mem_off, .file_off = file_off, .len = len };

	return pst_readv(file, &v, 1, ret_done);
}

int64_t pst_write(struct pst_file *file, uint64_t file_off, struct pst_mem *mem, uint64_t mem_off,
		  uint64_t len, struct pst_done *ret_done)
{
	struct pst_vec v = { .mem = mem, .mem_off = mem_off, .file_off = file_off, .len = len };

	return pst_writev(file, &v, 1, ret_done);
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
	idle_give(q, r == 1 && !(done.flags & PST_DONE_BUSY));
	if (r == 1)
		r = done.res < 0 ? err_set((int)-done.res, "the file could not be synced: %s",
					   err_name((int)-done.res))
				 : 0;
	return r;
}
