/* SPDX-License-Identifier: MIT */
/*
 * Reads that a stream of the program waits for (PST_IO_STREAM_WAIT).
 *
 * pst_queue_submit() puts all copies of such a read on the program's stream before their bytes are
 * known: the stream waits for each copy until the copy is sent.  Threads of the engine, the
 * feeders, read the file into slots and send the copies.  Feeders never call the driver, and their
 * slots are used for nothing else.  So the read depends on nothing that could wait for the stream:
 * no copy that the device would run after the stream's later work, no call that the driver delays
 * until streams are idle, no slot that such a copy holds.
 *
 * A read gets as many copies as it can have jobs; unneeded copies move nothing.  Feeders read the
 * file before the stream reaches the copies, but memory is touched only when it does.  So a stopped
 * read stops touching memory with the next copy, and never overwrites what the stream's later work
 * writes.
 *
 * Two streams may share a hardware queue of the device, which runs its work in order.  Reads must
 * get slots in that order, or a read would hold slots that an earlier one needs.  So a lock of the
 * device is held from the moment when a read asks for slots until its last copy is on the stream,
 * and the first read of e->fed gets all slots that it can use.
 *
 * The program may not be reaping, so the clock watches the deadlines of these reads and ends them.
 */
#include "base/err.h"
#include "base/work.h"
#include "core/queue/clock.h"
#include "core/queue/object.h"
#include "core/queue/queue.h"
#include "core/queue/req.h"
#include "core/sched/above.h"
#include "core/sched/engine.h"
#include "core/sched/job_size.h"
#include "core/sched/pool.h"
#include "core/sched/share.h"
#include "core/sched/turns.h"
#include "core/sched/wake.h"
#include "core/stream/feed.h"

#define TILE KIB(16)     /* bytes that the device moves for one entry of a list */
#define PUT_NAP_NS 50000 /* ns to sleep until the stream has run a copy and has room for another */
/* ns that a copy may take before the driver is asked whether the stream still runs. */
#define LOST_NS (100 * NSEC_PER_MSEC)
#define CHECK_NS NSEC_PER_SEC /* ns before the driver is asked again */

struct feed {
	struct mem_feed *mem;
	atomic_uint refs; /* held by the request, pst_queue_submit() and a running check */
	uint64_t nr;      /* maximum copies that the read may have */
	uint64_t nr_sent; /* copies sent; like closed, under the engine's lock */
	uint64_t part;    /* bytes of a job */
	uint64_t until;   /* the read's deadline, CLOCK_MONOTONIC ns */
	bool closed;
	atomic_bool cut; /* closed while copies were in flight */
	atomic_bool checking;
	_Atomic uint64_t next_check; /* CLOCK_MONOTONIC ns; do not ask the driver earlier */
	struct work check;
};

static void feed_unref(struct feed *f)
{
	if (atomic_fetch_sub(&f->refs, 1) > 1)
		return;
	if (f->mem)
		f->mem->ops->feed_free(f->mem);
	free(f);
}

void feed_init(struct engine *e)
{
	(void)pthread_mutex_init(&e->feeders_lock, NULL);
	list_init(&e->fed);
	list_init(&e->feeds);
	e->feeds_next = PST_NO_DEADLINE;
}

void feed_wake(struct engine *e)
{
	if (list_empty(&e->fed) || !e->pool.feed_free)
		return;
	for (unsigned i = 0; i < e->nr_feeders; i++)
		if (e->feeders[i].sleeping) {
			worker_wake(&e->feeders[i]);
			return;
		}
}

/* ------------------------------------------------------------------ submit */

/* Return the bytes of one job; small enough that all feeders get a part of the read. */
static uint64_t part_of(const struct req *r)
{
	const struct engine *e = req_engine(r)->share->engine;

	/* Fill whole slots if the pieces are small: a few full slots are faster than many that are
	 * not full. */
	if (!r->one_piece)
		return e->slot_size;
	return MIN(e->slot_size, MAX(PART_MIN, align_up(r->total / FEEDERS, KIB(64))));
}

static uint64_t nr_pieces(const struct req *r)
{
	uint64_t nr = 0;

	for (uint64_t i = 0; i < r->cur.nr; i++)
		nr += MAX(r->cur.segs[i].count, UINT64_C(1));
	return nr;
}

/*
 * Return the most jobs that the read can have.  All jobs but the last are full, either of pieces or
 * of bytes.  A piece takes up to two blocks more than its length, and up to one block of a job
 * stays unused.
 */
static uint64_t nr_jobs(const struct req *r, uint64_t part)
{
	uint64_t blk = MAX(PAGE, req_file(r)->off_align), lead = r->seg.file_off & (blk - 1), nr,
		 jobs, even = job_even_pieces(r);

	blk = MIN(blk, part / 2);
	if (r->one_piece && !r->io.segs && r->total <= part &&
	    lead + r->total <= req_engine(r)->share->engine->slot_size) {
		jobs = 1;
	} else if (even > 1) {
		jobs = r->cur.nr / even + 2;
	} else {
		nr = nr_pieces(r);
		jobs = (r->total + 2 * blk * nr) / (part - blk) + nr / (JOB_PIECES / 2) + 2;
	}
	/* Allow each job a second copy: if the file changes, bytes that were copied from its pages
	 * are staged again. */
	return req_plan(r)->from ? 2 * jobs : jobs;
}

/* Return the most entries that a job's list can have. */
static unsigned nr_tiles(const struct req *r, uint64_t part)
{
	uint64_t nr = part / TILE + 2 * MIN(nr_pieces(r), (uint64_t)JOB_PIECES) + 2;

	return (unsigned)MIN(nr, MEM_SGL_BYTES / 32);
}

static void feed_check(struct work *w)
{
	struct feed *f = container_of(w, struct feed, check);

	f->mem->ops->feed_check_lost(f->mem);
	atomic_store(&f->next_check, now_ns() + CHECK_NS);
	atomic_store(&f->checking, false);
	feed_unref(f);
}

/* Return the time halfway to the deadline.  A submit that waits for other reads uses at most half
 * of the time, and leaves the other half to its read. */
static uint64_t half_way(uint64_t deadline)
{
	uint64_t now = now_ns();

	return deadline > now ? now + (deadline - now) / 2 : 0;
}

static int feed_new(struct req *r, struct feed **ret)
{
	const struct mem_alloc *a = req_mem(r)->region->alloc;
	struct feed *f = calloc(1, sizeof(*f));
	int err;

	if (!f)
		return err_set(ENOMEM, "out of memory");
	work_init(&f->check, feed_check);
	f->refs = 1;
	f->part = part_of(r);
	f->until = r->deadline;
	f->nr = nr_jobs(r, f->part);
	err = a->ops->feed_new(a, r->io.stream, nr_tiles(r, f->part), half_way(r->deadline),
			       &f->mem);
	if (err < 0) {
		feed_unref(f);
		return err;
	}
	*ret = f;
	return 0;
}

/* Let the read ask for slots.  From here on the read may end at any time. */
static void feed_start(struct req *r, struct feed *f)
{
	struct engine *e = req_engine(r)->share->engine;

	pthread_mutex_lock(&e->lock);
	atomic_fetch_add(&f->refs, 1);
	req_engine(r)->feed = f;
	e->feeds_next = MIN(e->feeds_next, f->until);
	list_add_tail(&e->feeds, &req_engine(r)->feeds);
	list_add_tail(&e->fed, &req_engine(r)->active);
	feed_wake(e);
	pthread_mutex_unlock(&e->lock);
	clock_set(&e->alarm, f->until);
}

/* Put the copies on the stream.  Return 0 or -errno; after an error the caller must stop the
 * read. */
static int feed_put_all(struct feed *f)
{
	const struct mem_ops *ops = f->mem->ops;
	uint64_t nr = 0, check = now_ns() + CHECK_NS;
	int r = 1;

	while (nr < f->nr && r != 0) {
		r = ops->feed_put(f->mem);
		nr += r == 1;
		if (r == 1)
			continue;
		if (r != -EAGAIN)
			break;
		(void)nanosleep(&(struct timespec){ .tv_nsec = PUT_NAP_NS }, NULL);
		/* Ask the driver whether the stream still runs.  If it does not, there will never
		 * be room for another copy. */
		if (now_ns() >= check) {
			ops->feed_check_lost(f->mem);
			check = now_ns() + CHECK_NS;
		}
	}
	return MIN(r, 0);
}

static void feed_failed(struct req *r, int err)
{
	struct engine *e = req_engine(r)->share->engine;

	pthread_mutex_lock(&e->lock);
	engine_stop_locked(r, err);
	pthread_mutex_unlock(&e->lock);
}

/* Lock, waiting while other reads put their copies on their streams, usually for microseconds.
 * Return false after the deadline. */
static bool lock_until(pthread_mutex_t *lock, uint64_t deadline)
{
	while (pthread_mutex_trylock(lock) != 0) {
		if (now_ns() >= deadline)
			return false;
		(void)nanosleep(&(struct timespec){ .tv_nsec = PUT_NAP_NS }, NULL);
	}
	return true;
}

int feed_begin(struct req *r)
{
	struct engine *e = req_engine(r)->share->engine;
	struct feed *f = NULL;
	int err = pool_feed(e), sealed;

	if (err == 0)
		err = feed_new(r, &f);
	if (err < 0)
		return err;
	if (!lock_until(f->mem->lock, r->deadline)) {
		f->mem->ops->feed_end(f->mem);
		feed_unref(f);
		return err_set(ETIMEDOUT, "the deadline came before another read's copies were on "
					  "their stream");
	}
	feed_start(r, f);
	err = feed_put_all(f);
	/* Seal the feed: jobs without copies end, and then the read ends. */
	if (err < 0)
		feed_failed(r, -err);
	sealed = f->mem->ops->feed_seal(f->mem);
	if (err == 0 && sealed < 0)
		feed_failed(r, -sealed);
	pthread_mutex_unlock(f->mem->lock);
	feed_unref(f);
	return 0;
}

/* --------------------------------------------------------------------- jobs */

uint64_t feed_part(const struct req *r)
{
	return req_engine(r)->feed->part;
}

int feed_list(struct job *j, const struct mem_copy *v, unsigned nr)
{
	const struct mem_feed *mem = req_engine(j->req)->feed->mem;

	return mem->ops->feed_list(mem, v, nr, j->sgl_room, &j->sgl);
}

int feed_send(struct job *j)
{
	struct feed *f = req_engine(j->req)->feed;

	if (f->nr_sent == f->nr)
		return -EINVAL;
	f->nr_sent++;
	j->sent_at = now_ns();
	j->ticket = f->mem->ops->feed_send(f->mem, &j->sgl);
	return 0;
}

uint32_t feed_path(const struct job *j)
{
	return req_engine(j->req)->feed->mem->path;
}

int feed_poll(struct job *j)
{
	struct feed *f = req_engine(j->req)->feed;
	int r = f->mem->ops->feed_poll(f->mem, j->ticket);

	/* feed_poll() reported the copy before @cut was read.  So if @cut is set, the copy may have
	 * moved nothing: fail the job. */
	if (r && unlikely(atomic_load(&f->cut)))
		return -j->req->end_err;
	if (r || now_ns() - j->sent_at < LOST_NS || now_ns() < atomic_load(&f->next_check) ||
	    atomic_exchange(&f->checking, true))
		return r;
	atomic_fetch_add(&f->refs, 1);
	if (work_spawn(&f->check, "pst-feed-check", false) < 0) {
		atomic_store(&f->checking, false);
		feed_unref(f);
	}
	return 0;
}

/* --------------------------------------------------------------------- end */

void feed_close(struct req *r)
{
	struct feed *f = req_engine(r)->feed;

	if (likely(!f) || f->closed)
		return;
	f->closed = true;
	f->cut = req_engine(r)->nr_touch > 0;
	list_del(&req_engine(r)->feeds);
	f->mem->ops->feed_end(f->mem);
}

void feed_over(struct req *r)
{
	struct feed *f = req_engine(r)->feed;
	struct engine *e;

	if (!f)
		return;
	e = req_engine(r)->share->engine;
	pthread_mutex_lock(&e->lock);
	feed_close(r);
	req_engine(r)->feed = NULL;
	pthread_mutex_unlock(&e->lock);
	feed_unref(f);
}

void feed_ring(struct engine *e, uint64_t now)
{
	uint64_t next = PST_NO_DEADLINE;
	struct list *el, *n;

	if (e->feeds_next > now)
		return;
	list_for_each_safe (el, n, &e->feeds) {
		struct req *r = req_by_link(el, feeds);

		if (req_engine(r)->feed->until <= now)
			engine_stop_locked(r, ETIMEDOUT);
		else
			next = MIN(next, req_engine(r)->feed->until);
	}
	e->feeds_next = next;
}
