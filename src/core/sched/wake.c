/* SPDX-License-Identifier: MIT */
/* Decide which worker may take a job, and which worker is woken for the job. */
#include <sys/eventfd.h>

#include "core/queue/req.h"
#include "core/sched/contention.h"
#include "core/sched/job_size.h"
#include "core/sched/share.h"
#include "core/sched/wake.h"

/* Limits that apply while reads wait for a disk. */
#define COLD_ROW 64u  /* a worker wakes another after this many jobs without sleep */
#define COLD_PARTS 4u /* a job with this many reads counts as COLD_ROW jobs */
#define COLD_MOST 48u /* a worker with this many jobs is full */

#define CLOGGED 128u /* a worker with this many operations in flight is clogged */

#define BEHIND_NS 300000u /* ns of device backlog that make one worker unnecessary */
#define BEHIND_MIN MIB(4) /* drop no worker while fewer bytes wait for the device */
#define LESS_NS 20000000u /* ns that a queue may have less than its part, see has_part() */
#define WINDOW MIB(16)    /* bytes of jobs between two computations of nr_needed: a few batches */

static unsigned wake_place(const struct worker *w)
{
	return (unsigned)(w - w->engine->workers);
}

void worker_wake(struct worker *w)
{
	if (!w->sleeping)
		return;
	w->sleeping = false;
	w->woken = true;
	(void)eventfd_write(w->efd, 1);
}

/* Return how many workers, from the first on, suffice to keep the device busy.  More workers would
 * slow each other down, and then spin for the device. */
static unsigned nr_now(const struct engine *e)
{
	if (engine_waits_for_disk(e) || !atomic_load(&e->copier.nr_bytes))
		return e->nr_usual;
	return MIN(e->nr_needed + e->nr_clogged, e->nr_usual);
}

/*
 * Return true if the queue has about its part of the jobs at the copier, or had it less than
 * LESS_NS ago.  Queues take turns, so each is without jobs there for some milliseconds at a time.
 */
static bool has_part(struct share *s)
{
	const struct engine *e = s->engine;
	uint64_t now;

	if (2 * s->nr_copying * e->pool.nr_busy >= atomic_load(&e->copier.nr)) {
		s->less_since = 0;
		return true;
	}
	now = now_ns();
	if (!s->less_since)
		s->less_since = now;
	return now - s->less_since < LESS_NS;
}

/*
 * Return how many workers, from the first on, may take the request's jobs.  All workers may take
 * jobs of small scattered pieces, because these wait for memory.  If the request's queue has less
 * than its part at the copier, the usual number of workers may, because the queue's jobs do not
 * wait for the device.
 */
static unsigned nr_for(const struct engine *e, const struct req *r)
{
	if (req_is_scattered(r))
		return e->nr_workers;
	return r->io.op == PST_OP_READ && has_part(req_engine(r)->share) ? nr_now(e) : e->nr_usual;
}

static void window_begin(struct engine *e)
{
	e->window.start = now_ns();
	e->window.nr = 0;
	e->window.len = e->window.at_copier = 0;
}

/* Recompute how many workers are needed.  The device's backlog is the average time that it needs
 * for the waiting bytes.  Workers are dropped one at a time, and added all at once. */
static void window_end(struct engine *e)
{
	uint64_t bytes = e->window.at_copier / e->window.nr;
	uint64_t ns = MIN(now_ns() - e->window.start, NSEC_PER_SEC);
	uint64_t behind = ns * bytes / e->window.len;
	uint64_t idle = e->nr_usual - e->nr_needed;

	if (behind >= (idle + 1) * BEHIND_NS && bytes >= BEHIND_MIN && e->nr_needed > 1)
		worker_wake(&e->workers[--e->nr_needed]); /* wake the worker, which is now spare */
	else if (behind < idle * BEHIND_NS / 2)
		e->nr_needed = e->nr_usual - (unsigned)(2 * behind / BEHIND_NS);
	window_begin(e);
}

/* Count a job of len bytes, to compute how many workers keep the device busy. */
static void count_needed(struct engine *e, uint64_t len)
{
	uint64_t bytes = atomic_load(&e->copier.nr_bytes);

	if (!bytes) {
		e->nr_needed = MIN(e->nr_needed + 1, e->nr_usual);
		window_begin(e);
		return;
	}
	e->window.nr++;
	e->window.len += len;
	e->window.at_copier += bytes;
	if (e->window.len >= WINDOW)
		window_end(e);
}

/* Return how many jobs all usual workers have together when each has enough. */
static unsigned all_jobs(const struct engine *e)
{
	return e->nr_usual * e->worker_jobs;
}

/* Return true if all workers together have all_jobs() jobs; used while reads wait for a disk. */
static bool all_are_full(const struct engine *e)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < e->nr_workers; i++)
		nr += e->workers[i].nr_jobs;
	return nr >= all_jobs(e);
}

/* Return true if more jobs are allowed without exceeding a limit: all_jobs() is not reached, and
 * there is a free slot that is not reserved.  Used while reads wait for a disk. */
static bool all_have_room(const struct engine *e)
{
	return !all_are_full(e) && e->pool.nr_free > e->pool.unmet;
}

/* Return true if the worker has enough jobs.  While reads wait for a disk, the limit is for all
 * workers together, so one worker may have more than worker_jobs. */
static bool wake_is_full(const struct worker *w)
{
	if (likely(!engine_waits_for_disk(w->engine)))
		return w->nr_jobs >= w->engine->worker_jobs;
	return w->nr_jobs >= COLD_MOST || all_are_full(w->engine);
}

/* Return the first worker, of the first nr, that may take more jobs, and that sleeps or is about to
 * look for a job after a wake-up.  Return NULL if there is none.  Used while reads wait for a disk.
 * If there are orders, a woken worker does not count: it first queries the driver, and other
 * workers may start jobs sooner. */
static struct worker *first_sleeper(struct engine *e, unsigned nr)
{
	bool looks = !atomic_load(&e->nr_orders);

	for (unsigned i = 0; i < nr; i++) {
		struct worker *w = &e->workers[i];

		if ((w->sleeping || (w->woken && looks)) && w->nr_jobs < COLD_MOST && !w->clogged)
			return w;
	}
	return NULL;
}

/* Return true if a sleeping worker is a better choice than the best one found so far. */
static bool is_better(const struct worker *w, const struct worker *best)
{
	if (!best || w->clogged != best->clogged)
		return !best || best->clogged;
	return w->nr_jobs < best->nr_jobs;
}

/* Return the sleeping worker with the fewest jobs, of the first nr workers, or NULL. */
static struct worker *idlest_sleeper(struct engine *e, unsigned nr)
{
	struct worker *best = NULL;

	for (unsigned i = 0; i < nr; i++) {
		struct worker *w = &e->workers[i];

		if (w->sleeping && is_better(w, best))
			best = w;
	}
	return best;
}

/* Return true if at least one usual worker is not clogged. */
static bool one_is_clear(const struct engine *e)
{
	return e->nr_clogged < e->nr_usual;
}

void engine_wake_of(struct engine *e, unsigned nr)
{
	struct worker *w = engine_waits_for_disk(e) ? first_sleeper(e, nr) : NULL;

	if (!w)
		w = idlest_sleeper(e, nr);
	if (w && (!w->clogged || !one_is_clear(e)))
		worker_wake(w);
}

static void wake_one(struct engine *e, const struct req *r)
{
	if (!r && !list_empty(&e->active))
		r = req_by_link(e->active.next, active);
	engine_wake_of(e, r ? nr_for(e, r) : e->nr_usual);
}

void engine_wake_one(struct engine *e)
{
	wake_one(e, NULL);
}

void engine_wake(struct engine *e, const struct req *r, unsigned nr)
{
	if (engine_waits_for_disk(e))
		nr = MIN(nr, 1u); /* one is enough: the woken worker, if busy or full, wakes
				   * another one */
	for (unsigned i = 0; i < e->nr_workers && i < nr; i++)
		wake_one(e, r);
}

bool worker_may_take(const struct worker *w, const struct req *r, bool by_one)
{
	const struct engine *e = w->engine;
	const struct share *s = req_engine(r)->share;

	if (wake_place(w) >= nr_for(e, r))
		return false;
	if (s->nr_slots < SLOT_RESERVED)
		return true;
	if (by_one)
		return atomic_load(&e->copier.nr) < LONG_JOBS;
	if (contention_has_enough(r))
		return false;
	if (!wake_is_full(w) || !req_engine(r)->nr_jobs)
		return true;
	return engine_waits_for_disk(e) && all_are_full(e) &&
	       s->nr_slots * e->pool.nr_shares < all_jobs(e);
}

void worker_took(struct worker *w, const struct job *j)
{
	w->nr_row += j->claimed || j->nr_parts >= COLD_PARTS ? COLD_ROW : 1;
	if (j->touches)
		w->engine->nr_cold = 0;
	else if (!j->claimed)
		count_needed(w->engine, j->len);
}

void worker_count_ops(struct worker *w)
{
	bool clogged = w->ctx->nr_ops + io_others_nr_ops(&w->others) >= CLOGGED;

	if (likely(clogged == w->clogged))
		return;
	w->clogged = clogged;
	if (wake_place(w) < w->engine->nr_usual)
		w->engine->nr_clogged += clogged ? 1 : -1u;
}

/* Return true if a clogged worker must leave its jobs to others.  If all usual workers are clogged,
 * it takes jobs itself. */
static _cold_ bool clogged_leaves(struct engine *e)
{
	if (!one_is_clear(e))
		return false;
	engine_wake_one(e);
	return true;
}

bool worker_leaves(const struct worker *w)
{
	struct engine *e = w->engine;
	struct worker *first;

	if (list_empty(&e->active))
		return false;
	if (unlikely(w->clogged) && clogged_leaves(e))
		return true;
	if (likely(!engine_waits_for_disk(e)) || !all_have_room(e))
		return false;
	first = first_sleeper(e, wake_place(w));
	if (first)
		worker_wake(first);
	return first != NULL;
}

/* Return true if no other worker is needed for the waiting jobs; used while reads wait for a
 * disk. */
static bool takes_all(const struct worker *w)
{
	if (!all_have_room(w->engine))
		return wake_place(w) < w->engine->nr_usual;
	return w->nr_row < COLD_ROW && w->nr_jobs < COLD_MOST && w->ctx->nr_ops < CLOGGED;
}

void worker_wake_another(const struct worker *w)
{
	struct engine *e = w->engine;

	if (!list_empty(&e->active) && (likely(!engine_waits_for_disk(e)) || !takes_all(w)))
		engine_wake_one(e);
}

bool worker_is_spare(const struct worker *w)
{
	const struct engine *e = w->engine;

	return wake_place(w) >= nr_now(e) && wake_place(w) < e->nr_usual && e->nr_reqs;
}

void worker_pass_on(const struct worker *w)
{
	unsigned nr = nr_now(w->engine);

	if (wake_place(w) >= nr)
		engine_wake_of(w->engine, nr);
}

void engine_begin(struct engine *e)
{
	e->nr_needed = e->nr_usual;
	window_begin(e);
}

void engine_count_cold(struct engine *e)
{
	e->nr_cold = MIN(e->nr_cold + 1, COLD_JOBS);
}

void engine_count_warm(struct engine *e)
{
	bool waited = engine_waits_for_disk(e);

	e->nr_cold = 0;
	if (waited && !list_empty(&e->active))
		engine_wake_one(e);
}
