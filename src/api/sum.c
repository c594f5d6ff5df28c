/* SPDX-License-Identifier: MIT */
/* pst_mem_crc32c(): checksums that a device computes of its own memory. */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/guard.h"
#include "api/ranges.h"
#include "base/crc32c.h"
#include "base/err.h"
#include "base/opts.h"
#include "base/uaccess.h"
#include "base/work.h"
#include "core/queue/object.h"
#include "core/ways/region.h"
#include "mem/mem.h"

/* Bytes per second that a call without a deadline must reach. */
#define RATE_MIN (10 * 1000 * 1000u)
#define TIMEOUT_NS (300 * NSEC_PER_SEC)
#define SPIN_NS 50000u /* ns to spin; most devices need less for a few MiB */
#define PAUSE_NS 50000u

/* One call, and the device whose ranges it is collecting. */
struct call {
	struct ranges ranges;
	void *stream;
	uint64_t deadline;
	uint32_t *ret;
	const struct mem_ops *ops;
	unsigned device;
	struct mem_sums *sums;
	unsigned nr;
	struct mem_range v[MEM_RANGES];
	unsigned idx[MEM_RANGES]; /* caller's index of each range in v */
	uint32_t crc[MEM_RANGES];
};

/* --------------------------------------------------------------- the device */

/* Checksums that were still being computed at the deadline. */
struct left {
	struct work work;
	struct mem_sums *sums;
};

static void left_run(struct work *w)
{
	struct left *l = container_of(w, struct left, work);

	l->sums->ops->sums_free(l->sums);
	free(l);
}

/* Free the sums.  If the device is still computing, another thread frees them. */
static void sum_leave(struct mem_sums *s, bool quiet)
{
	struct left *l = quiet ? NULL : calloc(1, sizeof(*l));

	if (l) {
		l->sums = s;
		work_init(&l->work, left_run);
		if (work_spawn(&l->work, "pst-sums", true) == 0)
			return;
		free(l);
	}
	s->ops->sums_free(s);
}

static int late(const struct call *c)
{
	return err_set(
		ETIMEDOUT,
		"the checksums were not computed by the deadline; %s:%u may be busy with other "
		"work, or the stream before them",
		c->ops->name, c->device);
}

/* Call ask() until its result is not 0, and return that result: 1 or -errno.  Return 0 after the
 * deadline. */
static int wait_until(int (*ask)(struct call *c, void *arg), struct call *c, void *arg)
{
	uint64_t start = now_ns(), now;
	int r;

	while ((r = ask(c, arg)) == 0) {
		now = now_ns();
		if (now >= c->deadline)
			return 0;
		if (now - start > SPIN_NS) {
			const struct timespec ts = { .tv_nsec = PAUSE_NS };

			(void)nanosleep(&ts, NULL);
		}
	}
	return r;
}

static int ask_order(struct call *c, void *order)
{
	return c->ops->order_poll(order);
}

/* Wait for the work that is on the caller's stream at this time. */
static int wait_for_stream(struct call *c, const struct mem_alloc *a)
{
	struct mem_order *o;
	int r = mem_stream_check(a, c->stream, false);

	if (r == 0)
		r = c->ops->order_new(c->device, c->stream, &o);
	if (r < 0)
		return r;
	r = wait_until(ask_order, c, o);
	c->ops->order_free(o);
	return r == 0 ? late(c) : MIN(r, 0);
}

static int ask_sums(struct call *c, void *unused)
{
	(void)unused;
	return c->ops->sums_poll(c->sums, c->crc);
}

/* Compute the checksums of the collected ranges. */
static int sum_flush(struct call *c)
{
	int r;

	if (!c->nr)
		return 0;
	r = c->ops->sums_start(c->sums, c->v, c->nr);
	if (r < 0)
		return r;
	r = wait_until(ask_sums, c, NULL);
	if (r == 0) {
		sum_leave(TAKE_PTR(c->sums), false);
		c->nr = 0;
		return late(c);
	}
	for (unsigned i = 0; r > 0 && i < c->nr; i++)
		c->ret[c->idx[i]] = c->crc[i];
	c->nr = 0;
	return MIN(r, 0);
}

/* Start collecting ranges of the device that has this memory.  Compute those of the previous device
 * first. */
static int turn_to(struct call *c, const struct mem_alloc *a)
{
	int r;

	if (c->sums && c->ops == a->ops && c->device == a->device)
		return 0;
	r = sum_flush(c);
	if (r < 0)
		return r;
	if (c->sums)
		sum_leave(TAKE_PTR(c->sums), true);
	c->ops = a->ops;
	c->device = a->device;
	if (!a->ops->sums_new)
		return err_set(EOPNOTSUPP,
			       "%s memory computes no checksums; copy it to the host for that",
			       a->ops->name);
	if (c->stream) {
		r = wait_for_stream(c, a);
		if (r < 0)
			return r;
	}
	return a->ops->sums_new(a->device, &c->sums);
}

/* ------------------------------------------------------------------ ranges */

static int host_crc(const struct mem_alloc *a, uint64_t off, uint64_t len, uint32_t *ret)
{
	const char *p = (const char *)a->host + off;

	*ret = 0;
	if (!a->owned)
		return uaccess_crc32c(ret, p, len);
	*ret = crc32c(0, p, len);
	return 0;
}

static int sum_add_group(struct call *c, const struct group *g)
{
	const struct mem_alloc *a = g->mem->region->alloc;
	int r = 0;

	if (a->host && c->stream)
		return mem_stream_check(a, c->stream, false);
	if (!a->host)
		r = turn_to(c, a);
	for (unsigned k = g->first; r == 0 && k < g->first + g->nr; k++) {
		uint64_t off = g->mem->off + c->ranges.segs[k].mem_off;
		uint64_t len = c->ranges.segs[k].len;
		unsigned idx = c->ranges.order[k];

		if (a->host) {
			r = host_crc(a, off, len, &c->ret[idx]);
			continue;
		}
		c->v[c->nr] = (struct mem_range){ .alloc = a, .off = off, .len = len };
		c->idx[c->nr++] = idx;
		if (c->nr == MEM_RANGES)
			r = sum_flush(c);
	}
	return r;
}

static void call_freep(struct call **c)
{
	if (!*c)
		return;
	if ((*c)->sums)
		sum_leave((*c)->sums, true);
	ranges_done(&(*c)->ranges);
	free(*c);
}

int pst_mem_crc32c(const struct pst_vec *vecs, unsigned nr, const struct pst_call_opts *opts,
		   uint32_t *ret)
{
	_cleanup_(call_freep) struct call *c = NULL;
	struct pst_call_opts o;
	uint64_t now = now_ns();
	int r = 0;

	GUARD();
	r = opts_copy(&o, sizeof(o), opts);
	if (r < 0)
		return r;
	if (o.flags || o.policy || o.reserved)
		return err_set(EINVAL,
			       "checksums take a deadline and a stream, and no flags or policy");
	if (!ret)
		return err_set(EINVAL, "there is no room for checksums: ret is NULL");
	c = calloc(1, sizeof(*c));
	if (!c)
		return err_set(ENOMEM, "out of memory");
	/* Use PST_OP_WRITE, because the memory is read, as for a write to a file. */
	r = ranges_init(&c->ranges, PST_OP_WRITE, vecs, nr);
	if (r < 0)
		return r;
	c->stream = o.stream;
	c->ret = ret;
	c->deadline = o.deadline_ns;
	if (!c->deadline)
		c->deadline = now + TIMEOUT_NS +
			      MIN(c->ranges.total / RATE_MIN, UINT32_MAX) * NSEC_PER_SEC;
	for (unsigned i = 0; r == 0 && i < c->ranges.nr_groups; i++)
		r = sum_add_group(c, &c->ranges.groups[i]);
	return r == 0 ? sum_flush(c) : r;
}
