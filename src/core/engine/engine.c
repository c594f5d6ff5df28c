// SPDX-License-Identifier: MIT
/*
 * Engines: the threads that stage, one set per device.
 *
 * Requests of all queues take turns.  What bounds them is the pool of slots (pool.c): each
 * queue is sure of SLOT_RESERVED of them and borrows what no other queue may still claim, so
 * a queue whose file hangs keeps the slots it has, and the others go on.
 */
#include <inttypes.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include "base/cancel.h"
#include "base/err.h"
#include "base/log.h"
#include "base/thread.h"
#include "gds/path/gds.h"
#include "core/path/pagecache.h"
#include "topo/numa.h"

#define SPIN_MAX MIB(1) /* bytes of a copy worth spinning for, */
#define SPIN_NS 60000u  /* that long: more than it should take */
#define GDS_LOOK_NS (20 * NSEC_PER_MSEC)
#define POLL_NS 20000u /* between two looks at what can only be polled */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t started; /* one of them, or not after all */
	struct list list;
} engines = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, LIST_INIT(engines.list) };

/* ------------------------------------------------------------------- jobs */

/* Has it pieces that nobody has begun, or that have to be moved again? */
static bool has_more(const struct req *r)
{
	return r->redo || !cursor_at_end(&r->cur);
}

/* Under the lock: the request is through; its queue gets it back. */
static void hand_back_if_idle(struct req *r)
{
	if (r->nr_jobs || r->handed_back)
		return;
	if (!r->stop && !r->err && has_more(r))
		return;
	gds_redo_drop(r);
	if (r->stop && !r->dead && !cursor_at_end(&r->cur))
		req_settle(r, r->cur.pos, r->total - r->cur.pos, 0, r->end_err);
	list_del(&r->active);
	order_open(r);
	r->handed_back = true;
	queue_hand_back(r);
}

static void worker_wake(struct worker *w)
{
	if (!w->sleeping)
		return;
	w->sleeping = false;
	(void)eventfd_write(w->efd, 1);
}

/* Under the lock: a worker that sleeps, one with room for jobs if there is one. */
static void wake_one(struct engine *e)
{
	struct worker *best = NULL;

	for (unsigned i = 0; i < e->nr_workers; i++) {
		struct worker *w = &e->workers[i];

		if (w->sleeping && (!best || w->nr_jobs < best->nr_jobs))
			best = w;
	}
	if (best)
		worker_wake(best);
}

void engine_wake(struct engine *e, unsigned nr)
{
	for (unsigned i = 0; i < e->nr_workers && i < nr; i++)
		wake_one(e);
}

/* Is a piece of at least so many bytes next, that are pinned? */
static bool next_is_pinned(const struct req *r, uint64_t min)
{
	struct piece pc;

	return r->plan.map && cursor_peek(&r->cur, &pc) && pc.len >= min &&
	       pagecache_ready(r->plan.map, pc.file_off, MIN(pc.len, MIB(1)), false);
}

/*
 * Is a long piece next, whose bytes are pinned?  Copying it costs the CPU nothing, and the
 * device the least if it goes together with others.  So there are few groups at a time, and
 * what comes in meanwhile is the next one.
 */
static bool may_group(const struct req *r)
{
	return next_is_pinned(r, GROUP_PIECE);
}

/*
 * May the worker take the request's next job?  A full worker still takes what would else
 * wait for others that may hang: a queue's sure slots, and the first job of a request.
 */
static bool worker_may_take(const struct worker *w, const struct req *r, bool group)
{
	const struct engine *e = w->engine;

	if (group)
		return w->nr_group ? w->nr_group < GROUP_JOBS : e->nr_groups < GROUPS_MAX;
	return w->nr_jobs < e->worker_jobs || r->share->nr_slots < SLOT_RESERVED || !r->nr_jobs;
}

uint64_t engine_part(const struct req *r)
{
	const struct engine *e = r->share->engine;
	const struct list *first = e->active.next;
	uint64_t left = r->total - r->cur.pos;
	unsigned idle = 1; /* who takes the job */

	if (r->io.op != PST_OP_READ || !r->one_run || r->plan.pin_now || left <= PART_MIN ||
	    next_is_pinned(r, 1) ||
	    (first != &e->active && (first != &r->active || first->next != &e->active)))
		return e->chunk;
	for (unsigned i = 0; i < e->nr_workers; i++)
		idle += !e->workers[i].nr_jobs;
	return MIN(e->chunk, MAX(PART_MIN, align_up(left / idle, KIB(64))));
}

/*
 * Start what cuFile can move of the request.  True when what comes next, or something that it
 * did not move after all, is for a slot.
 */
static bool after_gds(struct req *r)
{
	struct engine *e = r->share->engine;
	enum gds_turn turn;

	if (likely(!r->plan.gds))
		return true;
	do
		turn = gds_next(r);
	while (turn == GDS_STARTED);
	if (r->err || !has_more(r)) {
		list_del(&r->active);
		hand_back_if_idle(r);
		return false;
	}
	if (turn == GDS_LATER && !cursor_at_end(&r->cur))
		e->gds_look = now_ns() + GDS_LOOK_NS;
	return turn == GDS_STAGE || r->redo;
}

/* The next piece of work for a worker, NULL when there is none for it now. */
static struct job *engine_next(struct worker *w)
{
	struct engine *e = w->engine;
	struct list *el, *n;
	struct job *j = NULL;

	pthread_mutex_lock(&e->lock);
	e->gds_look = UINT64_MAX;
	list_for_each_safe (el, n, &e->active) {
		struct req *r = list_entry(el, struct req, active);
		struct share *s = r->share;
		bool group;

		if (!after_gds(r))
			continue;
		group = may_group(r);
		if (!worker_may_take(w, r, group))
			continue;
		j = pool_take(e, s);
		if (!j && !e->pool.nr_free)
			break;
		if (!j)
			continue;
		j->req = r;
		j->worker = w;
		j->lost = false;
		w->nr_jobs++;
		j->grouped = group;
		j->leads = group && !w->nr_group;
		w->nr_group += group;
		e->nr_groups += j->leads;
		job_build(j);
		j->touches = r->io.op == PST_OP_WRITE;
		r->nr_jobs++;
		list_add_tail(&r->jobs, &j->of_req);
		if (j->touches)
			r->nr_touch++;
		else
			r->nr_file++;
		list_del(&r->active);
		if (has_more(r))
			list_add_tail(&e->active, &r->active);
		/* Who is about to take more does not need help with it. */
		if (!list_empty(&e->active) && !group)
			wake_one(e);
		break;
	}
	pthread_mutex_unlock(&e->lock);
	return j;
}

int engine_job_touches(struct job *j, bool touches)
{
	struct engine *e = j->engine;
	struct req *r = j->req;
	int err;

	pthread_mutex_lock(&e->lock);
	err = r->stop ? -r->end_err : 0;
	if (!err && touches != j->touches) {
		j->touches = touches;
		r->nr_touch += touches ? 1 : -1u;
		r->nr_file += touches ? -1u : 1;
	}
	pthread_mutex_unlock(&e->lock);
	return err;
}

static void crc_keep(struct req *r, const struct job *j)
{
	if (!(r->io.flags & PST_IO_CRC32C) || !j->crc_len)
		return;
	if (r->nr_crcs == r->max_crcs) {
		unsigned max = r->max_crcs ? 2 * r->max_crcs : 16;
		struct crc_run *v = reallocarray(r->crcs, max, sizeof(*v));

		if (!v)
			return; /* the completion then says that it has no checksum */
		r->crcs = v;
		r->max_crcs = max;
	}
	r->crcs[r->nr_crcs++] = (struct crc_run){ j->pos, j->crc_len, j->crc };
}

/* What the job found goes to its request. */
static void job_results(struct req *r, const struct job *j)
{
	if (j->err || j->limit < j->pos + j->len)
		req_settle(r, j->limit, j->pos + j->len - j->limit, 0, j->err);
	if (j->why)
		req_why(r, j->why, j->detail);
	r->flags |= j->flags;
	r->paths |= j->paths;
	for (unsigned i = 0; i <= PST_PATH_BUFFERED; i++)
		r->hop_bytes[i] += j->hop_bytes[i];
	if (j->dev_path)
		r->hop_bytes[j->dev_path] += j->limit - j->pos;
	crc_keep(r, j);
}

void engine_job_done(struct worker *w, struct job *j)
{
	struct engine *e = j->engine;
	struct req *r = j->req;
	struct share *s = r->share;

	pthread_mutex_lock(&e->lock);
	if (!j->lost)
		w->nr_jobs--;
	if (!r->dead)
		job_results(r, j);
	/* Start nothing behind an error, nor, in one plain run, behind the end of the file. */
	if (j->err || (j->limit < j->pos + j->len && r->one_run)) {
		r->cur.seg = r->cur.nr;
		if (j->err || !r->redo)
			list_del(&r->active);
	}
	if (j->touches)
		r->nr_touch--;
	else
		r->nr_file--;
	r->nr_jobs--;
	list_del(&j->of_req);
	e->nr_groups -= j->leads;
	j->req = NULL;
	pool_give(e, s, j);
	if (r->stop && !r->nr_touch)
		order_open(r);
	hand_back_if_idle(r);
	if (!list_empty(&e->active))
		wake_one(e);
	pthread_mutex_unlock(&e->lock);
}

void engine_gds_done(struct req *r)
{
	struct engine *e = r->share->engine;

	r->nr_jobs--;
	r->nr_touch--;
	if (r->err || !has_more(r))
		list_del(&r->active);
	else if (!r->stop && list_empty(&r->active))
		list_add_tail(&e->active, &r->active);
	if (r->stop && !r->nr_touch)
		order_open(r);
	hand_back_if_idle(r);
	if (!list_empty(&e->active))
		wake_one(e);
}

void engine_activate(struct req *r)
{
	struct engine *e = r->share->engine;
	uint64_t jobs = 1 + MAX(r->total / engine_part(r), r->cur.nr / JOB_PIECES);

	if (may_group(r))
		jobs = 1;
	list_add_tail(&e->active, &r->active);
	/* As many at once as there will be jobs: to wake each other takes them too long. */
	engine_wake(e, (unsigned)MIN(jobs, (uint64_t)WORKERS_MAX));
}

void engine_submit(struct req *r)
{
	struct engine *e = r->share->engine;

	pthread_mutex_lock(&e->lock);
	if (order_hold(r))
		worker_wake(&e->workers[0]); /* order_nap() knows it */
	else
		engine_activate(r);
	pthread_mutex_unlock(&e->lock);
}

/* Jobs of a stopped request may hang: they do not keep their worker from taking others. */
static void jobs_lost(struct req *r)
{
	struct list *el;

	list_for_each (el, &r->jobs) {
		struct job *j = list_entry(el, struct job, of_req);

		if (!j->lost)
			j->worker->nr_jobs--;
		j->lost = true;
	}
}

void engine_stop_locked(struct req *r, int err)
{
	r->stop = true;
	r->end_err = err;
	list_del(&r->active);
	jobs_lost(r);
	gds_stopped(r);
	order_stop(r);
	hand_back_if_idle(r);
}

void engine_stop(struct req *r, int err)
{
	struct engine *e = r->share->engine;

	pthread_mutex_lock(&e->lock);
	engine_stop_locked(r, err);
	pthread_mutex_unlock(&e->lock);
	order_stopped(e);
}

void engine_touches(struct req *r, bool *ret_mem, bool *ret_file)
{
	struct engine *e = r->share->engine;

	pthread_mutex_lock(&e->lock);
	r->dead = true;
	*ret_mem = r->nr_touch > 0;
	*ret_file = r->nr_file > 0;
	pthread_mutex_unlock(&e->lock);
}

/* ---------------------------------------------------------------- workers */

/* A short copy on a stream that can only be polled is done before a sleep would end. */
static bool spin_for_copy(struct worker *w)
{
	const struct job *j;
	uint64_t end;

	if (list_empty(&w->copying))
		return false;
	j = list_first(&w->copying, struct job, link);
	if (j->len > SPIN_MAX)
		return false;
	end = now_ns() + SPIN_NS;
	do {
		if (mem_poll(w->stream, j->ticket))
			return true;
	} while (now_ns() < end);
	return false;
}

/* What waits for cuFile does so for as long as that makes progress. */
static uint64_t gds_nap(struct engine *e)
{
	uint64_t at, now;

	pthread_mutex_lock(&e->lock);
	at = e->gds_look;
	pthread_mutex_unlock(&e->lock);
	if (likely(at == UINT64_MAX))
		return at;
	now = now_ns();
	return at - MIN(now, at);
}

/* Sleep until the lane, the stream or a new request has something for us. */
static void worker_sleep(struct worker *w)
{
	struct engine *e = w->engine;
	int sfd = mem_stream_fd(w->stream);
	struct pollfd pfd[2] = { { .fd = w->efd, .events = POLLIN },
				 { .fd = sfd, .events = POLLIN } };
	bool copying = !list_empty(&w->copying) || !list_empty(&w->to_copy);
	uint64_t ns = (copying && sfd < 0) || w->flush_again ? POLL_NS : UINT64_MAX;
	struct timespec nap;
	eventfd_t v;

	if (sfd < 0 && spin_for_copy(w))
		return;
	/* Nobody tells when another's write has ended. */
	if (w->parked)
		ns = MIN(ns, NAP_NS);
	ns = MIN(ns, order_nap(w));
	ns = MIN(ns, gds_nap(e));
	nap.tv_sec = (time_t)(ns / NSEC_PER_SEC);
	nap.tv_nsec = (long)(ns % NSEC_PER_SEC);
	(void)e->store->arm(w->lane, w->efd, true);
	(void)ppoll(pfd, sfd >= 0 ? 2 : 1, ns == UINT64_MAX ? NULL : &nap, NULL);
	(void)e->store->arm(w->lane, w->efd, false);
	(void)eventfd_read(w->efd, &v);
	if (sfd >= 0)
		(void)eventfd_read(sfd, &v);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct engine *e = w->engine;
	char name[16];
	bool stop = false;

	(void)snprintf(name, sizeof(name), "pst-%.6s-%u", e->ops->name, e->device);
	(void)pthread_setname_np(pthread_self(), name);
	numa_stay(e->node);
	/* Naps are short; the kernel would make each 50 us longer. */
	(void)prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
	while (!stop) {
		bool moved = order_watch(e);
		struct job *j;

		/* One at a time, so that its copies run while the next is read. */
		j = engine_next(w);
		moved |= j != NULL;
		if (!j || !j->grouped)
			group_start(w);
		if (j)
			job_start(w, j);
		moved |= worker_progress(w);
		if (moved)
			continue;
		pthread_mutex_lock(&e->lock);
		stop = e->stop;
		/* What came in since engine_next() looked has its wake-up in efd. */
		w->sleeping = true;
		pthread_mutex_unlock(&e->lock);
		if (!stop) {
			struct job *late = engine_next(w);

			if (late)
				job_start(w, late);
			else
				worker_sleep(w);
		}
		pthread_mutex_lock(&e->lock);
		w->sleeping = false;
		pthread_mutex_unlock(&e->lock);
	}
	return NULL;
}

static int worker_init(struct worker *w, struct engine *e)
{
	int r;

	w->engine = e;
	w->efd = -1;
	list_init(&w->to_copy);
	list_init(&w->copying);
	list_init(&w->group);
	w->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->efd < 0)
		return err_set(errno, "no descriptor for a worker: %s", err_name(errno));
	r = store_lane_new(e->store, LANE_DEPTH, &w->lane);
	if (r == 0)
		r = e->store->arm(w->lane, w->efd, true); /* later ones do not fail */
	if (r < 0)
		return r;
	return mem_stream_new(e->ops, e->device, &w->stream);
}

static void worker_done(struct worker *w)
{
	if (w->started) {
		(void)eventfd_write(w->efd, 1);
		(void)pthread_join(w->thread, NULL);
	}
	if (w->stream)
		mem_stream_free(w->stream);
	if (w->lane)
		store_lane_free(w->lane);
	closep(&w->efd);
}

/* ---------------------------------------------------------------- engines */

static void engine_free(struct engine *e)
{
	order_done(e);
	pthread_mutex_lock(&e->lock);
	e->stop = true;
	pthread_mutex_unlock(&e->lock);
	for (unsigned i = 0; i < e->nr_workers; i++)
		worker_done(&e->workers[i]);
	pool_done(e);
	pthread_mutex_destroy(&e->lock);
	free(e);
}

/* Held for moments, and wanted by all who were woken for the same request. */
static void lock_init(pthread_mutex_t *lock)
{
	pthread_mutexattr_t attr;

	(void)pthread_mutexattr_init(&attr);
	(void)pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
	(void)pthread_mutex_init(lock, &attr);
	(void)pthread_mutexattr_destroy(&attr);
}

/* Calls the driver, which takes its time. */
static int engine_start(struct engine *e)
{
	unsigned wanted = engine_width();
	int r;

	e->gds_look = UINT64_MAX;
	lock_init(&e->lock);
	list_init(&e->active);
	pool_init(e);
	order_init(e);
	r = engine_calibrate(e);
	if (r == 0)
		e->worker_jobs = MAX((unsigned)(WORKER_BYTES / e->slot_size), WORKER_JOBS_MIN);
	for (; r == 0 && e->nr_workers < wanted; e->nr_workers++) {
		struct worker *w = &e->workers[e->nr_workers];

		r = worker_init(w, e);
		if (r < 0) {
			e->nr_workers++; /* engine_free() ends the half-made one too */
			break;
		}
	}
	for (unsigned i = 0; r == 0 && i < e->nr_workers; i++) {
		r = thread_start(&e->workers[i].thread, worker_main, &e->workers[i]);
		e->workers[i].started = r == 0;
	}
	if (r < 0)
		return r;
	log_debug("engine for %s %u: %u workers, slots of %" PRIu64 " bytes", e->ops->name,
		  e->device, e->nr_workers, e->slot_size);
	return 0;
}

/* Under the lock: there is one, and no other thread is just starting it. */
static struct engine *engine_find(const struct mem_ops *ops, unsigned device,
				  const struct store_ops *store)
{
	struct list *el;

	list_for_each (el, &engines.list) {
		struct engine *e = list_entry(el, struct engine, link);

		if (e->ops != ops || e->device != device || e->store != store)
			continue;
		if (!e->starts)
			return e;
		pthread_cond_wait(&engines.started, &engines.lock);
		el = &engines.list; /* from the beginning */
	}
	return NULL;
}

static void engine_put(struct engine *e)
{
	bool last;

	pthread_mutex_lock(&engines.lock);
	last = --e->refs == 0;
	if (last)
		list_del(&e->link);
	pthread_mutex_unlock(&engines.lock);
	if (last)
		engine_free(e);
}

static int engine_get(const struct mem_ops *ops, unsigned device, const struct store_ops *store,
		      struct engine **ret)
{
	struct engine *e;
	int r = 1;

	pthread_mutex_lock(&engines.lock);
	e = engine_find(ops, device, store);
	if (e) {
		e->refs++;
		r = 0;
	} else if ((e = calloc(1, sizeof(*e)))) {
		e->ops = ops;
		e->device = device;
		e->store = store;
		e->refs = 1;
		e->starts = true;
		list_add_tail(&engines.list, &e->link);
	}
	pthread_mutex_unlock(&engines.lock);
	*ret = e;
	if (!r)
		return 0;
	if (!e)
		return err_set(ENOMEM, "out of memory");
	r = engine_start(e);
	pthread_mutex_lock(&engines.lock);
	e->starts = false;
	if (r < 0)
		list_del(&e->link);
	(void)pthread_cond_broadcast(&engines.started);
	pthread_mutex_unlock(&engines.lock);
	if (r < 0)
		engine_free(e);
	return r;
}

static int share_new(struct pst_queue *q, struct engine *e, struct share **ret)
{
	struct share *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return err_set(ENOMEM, "out of memory");
	r = pool_reserve(e);
	if (r < 0) {
		free(s);
		return r;
	}
	s->engine = e;
	list_add_tail(&q->shares, &s->link);
	*ret = s;
	return 0;
}

bool share_without_uring(const struct share *s, const struct pst_queue *q)
{
	return s->engine->store != q->store;
}

static int share_get(struct pst_queue *q, const struct mem_ops *ops, unsigned device,
		     struct share **ret)
{
	struct engine *e;
	int r;

	NO_CANCEL(); /* pst_queue_prep() leaves it to us */
	r = engine_get(ops, device, q->store, &e);
	if (r == -ENOMEM && q->store_auto && q->store == &store_uring_ops) {
		log_info("no memory for an engine's rings, threads instead: %s", err_text());
		r = engine_get(ops, device, &store_threads_ops, &e);
	}
	if (r < 0)
		return r;
	r = share_new(q, e, ret);
	if (r < 0)
		engine_put(e);
	return r;
}

int engine_share(struct pst_queue *q, const struct mem_ops *ops, unsigned device,
		 struct share **ret)
{
	struct list *el;

	list_for_each (el, &q->shares) {
		struct share *s = list_entry(el, struct share, link);

		if (s->engine->ops == ops && s->engine->device == device) {
			*ret = s;
			return 0;
		}
	}
	return share_get(q, ops, device, ret);
}

void engine_unshare(struct share *s)
{
	struct engine *e = s->engine;

	list_del(&s->link);
	pool_unreserve(e);
	free(s);
	engine_put(e);
}
