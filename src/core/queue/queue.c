// SPDX-License-Identifier: MIT
/*
 * The life of a request: prepared, started, completed once, reaped, quiet.
 *
 * A request whose deadline passes, or that is cancelled, completes whether or not the
 * kernel lets go of it.  What is still under way then is counted on (a zombie): the slot,
 * the memory and the file stay in use until it ends, and the completion says BUSY.
 */
#include <inttypes.h>
#include <poll.h>
#include <sys/eventfd.h>

#include "base/crc32c.h"
#include "base/err.h"
#include "base/log.h"
#include "base/uaccess.h"
#include "gds/path/gds.h"
#include "core/path/trial.h"

#define REAP_BATCH 64u

/* --------------------------------------------------------------- complete */

void req_release(struct req *r)
{
	struct pst_queue *q = r->q;

	order_end(r);
	if (r->mem_use)
		use_put(q, TAKE_PTR(r->mem_use));
	if (r->file_use)
		use_put(q, TAKE_PTR(r->file_use));
	free(TAKE_PTR(r->proof_buf));
	trial_free(TAKE_PTR(r->trial));
	free(TAKE_PTR(r->crcs));
	free(TAKE_PTR(r->bounce));
	small_let_go(r);
}

static void req_free(struct req *r)
{
	r->state = REQ_FREE;
	list_add_tail(&r->q->free, &r->link);
}

static void req_start(struct req *r);

/* A write completed: syncs behind it may go. */
static void writes_done(struct pst_queue *q, uint64_t seq)
{
	struct list *e, *n;

	q->nr_writes--;
	list_for_each_safe (e, n, &q->held) {
		struct req *s = list_entry(e, struct req, link);

		if (s->seq > seq && --s->nr_before == 0) {
			list_del(&s->link);
			req_start(s);
		}
	}
}

/* The checksum of what arrived in host memory; false: it is gone meanwhile. */
static bool req_crc_host(struct req *r)
{
	const struct pst_mem *m = req_mem(r);
	const char *base = (const char *)m->region->alloc->host + m->off;
	struct cursor c;
	struct piece p;

	cursor_init(&c, r->cur.segs, r->cur.nr);
	for (; cursor_peek(&c, &p) && p.pos < r->limit; cursor_skip(&c, p.len)) {
		uint64_t len = MIN(p.len, r->limit - p.pos);
		int err = 0;

		if (req_stays(r))
			r->crc = crc32c(r->crc, base + p.mem_off, len);
		else
			err = uaccess_crc32c(&r->crc, base + p.mem_off, len);
		if (err < 0) {
			req_settle(r, p.pos, p.len, 0, -err);
			r->crc = 0;
			return false;
		}
	}
	return true;
}

static int crc_run_cmp(const void *a, const void *b)
{
	const struct crc_run *x = a, *y = b;

	return x->pos < y->pos ? -1 : x->pos > y->pos;
}

/* The same from the checksums that the jobs took of their slots. */
static bool req_crc_jobs(struct req *r)
{
	uint64_t at = 0;

	if (r->nr_crcs)
		qsort(r->crcs, r->nr_crcs, sizeof(*r->crcs), crc_run_cmp);
	for (unsigned i = 0; i < r->nr_crcs && r->crcs[i].pos == at; i++) {
		r->crc = crc32c_combine(r->crc, r->crcs[i].crc, r->crcs[i].len);
		at += r->crcs[i].len;
	}
	return at == r->limit;
}

/* Put the completion where pst_queue_reap() finds it. */
static void req_complete(struct req *r)
{
	struct pst_queue *q = r->q;
	struct counters *st = &q->st;

	/* Memory that could not be pinned changes the price and not the path. */
	if ((r->io.flags & PST_IO_STRICT) && r->why != PST_WHY_NONE && r->why != PST_WHY_MEMLOCK &&
	    !r->err) {
		r->err = EOPNOTSUPP;
		r->limit = 0;
	}
	if ((r->io.flags & PST_IO_CRC32C) && !r->ended &&
	    (mem_on_host(req_mem(r)) ? req_crc_host(r) : req_crc_jobs(r)))
		r->flags |= PST_DONE_CRC32C;
	list_del(&r->link);
	list_del(&r->all);
	r->state = REQ_DONE;
	list_add_tail(&q->done, &r->link);
	gauge(&q->nr_inflight, -1);
	if (!q->nr_inflight)
		q->next_deadline = PST_NO_DEADLINE;
	q->nr_done++;

	count(&st->requests, 1);
	if (r->err) {
		count(&st->errors, 1);
		if (r->err == ETIMEDOUT)
			count(&st->timeouts, 1);
		else if (r->err == ECANCELED)
			count(&st->canceled, 1);
	}
	if (r->why != PST_WHY_NONE) {
		count(&st->fallbacks, 1);
		count(&st->why[r->why], 1);
	}
	for (uint32_t set = r->paths; set; set &= set - 1) {
		unsigned path = (unsigned)__builtin_ctz(set);

		count(&st->bytes[path], r->hop_bytes[path]);
		r->hop_bytes[path] = 0;
	}
	if (r->io.op == PST_OP_WRITE && r->started)
		writes_done(q, r->seq);
	if (!r->ended)
		req_release(r);
}

void queue_quiet(struct req *r)
{
	struct pst_queue *q = r->q;

	r->ended = false;
	memset(r->hop_bytes, 0, sizeof(r->hop_bytes));
	req_release(r);
	gauge(&q->nr_zombies, -1);
	if (r->state == REQ_ZOMBIE) {
		list_del(&r->link);
		req_free(r);
		return;
	}
	/* Not reaped yet, and nothing is busy any more. */
	r->flags &= ~PST_DONE_BUSY;
}

void queue_finish(struct req *r)
{
	if (r->ended) {
		queue_quiet(r);
		return;
	}
	if (r->proof && !r->err && !r->stop && r->state == REQ_ACTIVE) {
		r->state = REQ_PROVING;
		if (!direct_prove(r))
			direct_again(r);
		return;
	}
	/* What came whole after it was told to stop was not compared, and is not believed. */
	if (r->proof && !r->err && r->state == REQ_ACTIVE)
		req_settle(r, 0, r->total, 0, r->end_err);
	req_complete(r);
}

/* -------------------------------------------------------------------- wake */

/* While armed: what is done without lane or engine, and the deadlines, must wake too. */
static void queue_notify(struct pst_queue *q)
{
	uint64_t at;

	if (q->nr_done || q->more)
		(void)eventfd_write(q->efd, 1);
	if (!q->has_fd)
		return;
	at = q->parked ? now_ns() + NAP_NS : q->next_deadline;
	/* Pairs with the clock's reset before queue_ring(): that sees this, or clock_set() that. */
	atomic_store(&q->ring_at, at);
	clock_set(&q->alarm, at);
}

void queue_ring(struct alarm *a)
{
	struct pst_queue *q = container_of(a, struct pst_queue, alarm);
	uint64_t at = atomic_load(&q->ring_at);

	/* Requests that ended since may have left a later deadline, or none. */
	if (at <= now_ns())
		(void)eventfd_write(q->efd, 1);
	else
		a->at = at;
}

/* A write that was under way when the queue was disarmed may come after that. */
static void queue_drain(struct pst_queue *q)
{
	eventfd_t v;

	(void)eventfd_read(q->efd, &v);
}

static int queue_arm(struct pst_queue *q)
{
	int r = q->armed ? 0 : q->store->arm(q->lane, q->efd, true);

	if (q->armed || unlikely(r < 0))
		return r;
	q->armed = true;
	atomic_store(&q->want_wake, true);
	if (atomic_load(&q->finished) && atomic_exchange(&q->want_wake, false))
		(void)eventfd_write(q->efd, 1);
	queue_notify(q);
	return 0;
}

static void queue_disarm(struct pst_queue *q)
{
	if (!q->armed)
		return;
	q->armed = false;
	(void)q->store->arm(q->lane, q->efd, false);
	atomic_store(&q->want_wake, false);
	atomic_store_explicit(&q->ring_at, PST_NO_DEADLINE, memory_order_relaxed);
	queue_drain(q);
}

/* ------------------------------------------------------------------ start */

static void req_fail(struct req *r, int err)
{
	r->err = err;
	r->limit = 0;
	req_complete(r);
}

static void req_start(struct req *r)
{
	struct pst_queue *q = r->q;

	if (r->io.op == PST_OP_SYNC) {
		r->state = REQ_ACTIVE;
		if (q->store_why)
			req_why(r, q->store_why, q->store_detail);
		direct_sync(r);
		return;
	}
	if (plan_make(r) < 0) {
		req_fail(r, EOPNOTSUPP);
		return;
	}
	if (r->plan.dev == PST_PATH_WINDOW) {
		int err = small_listed(r);

		if (err < 0) {
			req_fail(r, -err);
			return;
		}
	}
	if (req_staged(r)) {
		int err = gds_choose(r);

		if (err < 0) {
			req_fail(r, -err);
			return;
		}
	}
	if (unlikely(r->io.stream)) {
		int err = order_begin(r);

		if (err < 0) {
			req_fail(r, -err);
			return;
		}
	}
	ahead_choose(r);
	r->state = REQ_ACTIVE;
	if (r->plan.window && !r->plan.gds && !r->io.stream)
		small_choose(r);
	if (req_staged(r)) {
		q->nr_engine++;
		engine_submit(r);
	} else {
		direct_start(r);
	}
}

static void queue_flush(struct pst_queue *q)
{
	int r = q->store->flush(q->lane);

	/* What the kernel could not take now stays queued and goes with the next call. */
	if (r < 0)
		log_debug("flush: %s", err_name(r));
}

int queue_submit(struct pst_queue *q)
{
	uint64_t now = now_ns();
	struct list *e, *n;
	int taken = 0;

	if (q->fd_once)
		queue_disarm(q);
	q->viewer.now = now;
	q->copy_left = SUBMIT_COPY_MAX;
	list_for_each_safe (e, n, &q->prepared) {
		struct req *r = list_entry(e, struct req, link);

		list_del(&r->link);
		q->nr_prepared--;
		taken++;
		r->seq = ++q->seq;
		r->deadline = r->io.deadline_ns ? r->io.deadline_ns : now + q->timeout_ns;
		list_add_tail(&q->inflight, &r->all);
		gauge(&q->nr_inflight, 1);
		if (r->deadline < q->next_deadline)
			q->next_deadline = r->deadline;
		if (r->deadline <= now) {
			req_fail(r, ETIMEDOUT);
			continue;
		}
		if (r->io.op == PST_OP_WRITE) {
			r->started = true;
			q->nr_writes++;
		} else if (r->io.op == PST_OP_SYNC && q->nr_writes) {
			r->nr_before = q->nr_writes;
			r->state = REQ_HELD;
			list_add_tail(&q->held, &r->link);
			continue;
		}
		req_start(r);
		if (taken % 4 == 0)
			queue_flush(q);
	}
	order_submitted(q);
	if (taken)
		queue_flush(q);
	if (q->armed)
		queue_notify(q);
	return taken;
}

/* -------------------------------------------------------------- early end */

static void reap_lane(struct pst_queue *q)
{
	struct store_op *ops[REAP_BATCH];
	unsigned n;

	do {
		n = q->store->reap(q->lane, ops, REAP_BATCH);
		for (unsigned i = 0; i < n; i++)
			direct_part_done(container_of(ops[i], struct part, op));
	} while (n == REAP_BATCH);
	if (unlikely(q->parked))
		direct_unpark(q);
}

static void take_finished(struct pst_queue *q)
{
	struct req *r, *next, *order = NULL;

	if (!atomic_load_explicit(&q->finished, memory_order_relaxed))
		return;
	for (r = atomic_exchange(&q->finished, NULL); r; r = next) {
		next = r->next;
		r->next = order;
		order = r;
	}
	for (r = order; r; r = next) {
		next = r->next;
		q->nr_engine--;
		queue_finish(r);
	}
}

/* Start nothing more for the request, and ask what is under way to end; then queue_flush(). */
static void req_stop(struct req *r, int err)
{
	if (req_staged(r)) {
		engine_stop(r, err);
		return;
	}
	r->stop = true;
	r->end_err = err;
	direct_cancel(r);
}

/* Complete the request now, whatever is still under way. */
static void req_end(struct req *r, int err)
{
	bool touch = false, file = false, quiet;

	if (r->state == REQ_HELD || (r->io.op == PST_OP_SYNC && !r->sync_started)) {
		req_fail(r, err);
		return;
	}
	if (req_staged(r)) {
		/* The engine hands it back sooner or later; only then it is quiet. */
		engine_touches(r, &touch, &file);
		quiet = false;
	} else {
		quiet = !r->nr_parts;
		/* What a proof reads and writes is a buffer of ours, as is a bounced write's. */
		touch = !quiet && r->state != REQ_PROVING && r->io.op != PST_OP_SYNC && !r->bounce;
		file = !quiet;
	}
	if (quiet) {
		req_fail(r, err);
		return;
	}
	r->ended = true;
	gauge(&r->q->nr_zombies, 1);
	if (!touch && r->mem_use)
		use_put(r->q, TAKE_PTR(r->mem_use));
	if (touch || (file && r->io.op == PST_OP_WRITE))
		r->flags |= PST_DONE_BUSY;
	req_fail(r, err);
}

static void queue_expire(struct pst_queue *q, uint64_t now, int err)
{
	struct list *e, *n;
	uint64_t next = PST_NO_DEADLINE;
	bool stopped = false;

	/* First ask, then look: what could be cancelled ends without being busy. */
	list_for_each_safe (e, n, &q->inflight) {
		struct req *r = list_entry(e, struct req, all);

		if (r->deadline <= now && r->state != REQ_HELD) {
			req_stop(r, r->end_err ? r->end_err : err);
			stopped = true;
		}
	}
	if (stopped) {
		queue_flush(q);
		reap_lane(q);
		take_finished(q);
	}
	list_for_each_safe (e, n, &q->inflight) {
		struct req *r = list_entry(e, struct req, all);

		if (r->deadline <= now)
			req_end(r, r->end_err ? r->end_err : err);
	}
	list_for_each (e, &q->inflight)
		next = MIN(next, list_entry(e, struct req, all)->deadline);
	q->next_deadline = next;
}

int queue_cancel(struct pst_queue *q, uint64_t user_data)
{
	uint64_t grace = now_ns() + CANCEL_GRACE_NS;
	struct list *e, *n;
	int asked = 0;

	list_for_each_safe (e, n, &q->prepared) {
		struct req *r = list_entry(e, struct req, link);

		if (r->io.user_data != user_data)
			continue;
		asked++;
		q->nr_prepared--;
		list_add_tail(&q->inflight, &r->all);
		gauge(&q->nr_inflight, 1);
		req_fail(r, ECANCELED);
	}
	list_for_each_safe (e, n, &q->inflight) {
		struct req *r = list_entry(e, struct req, all);

		if (r->io.user_data != user_data)
			continue;
		asked++;
		if (r->state == REQ_HELD) {
			req_fail(r, ECANCELED);
			continue;
		}
		req_stop(r, ECANCELED);
		r->deadline = MIN(r->deadline, grace);
		q->next_deadline = MIN(q->next_deadline, r->deadline);
		if (!req_staged(r) && !r->nr_parts)
			req_end(r, ECANCELED);
	}
	queue_flush(q);
	if (q->armed)
		queue_notify(q);
	return asked ? asked : err_set(ENOENT, "no request has user_data %" PRIu64, user_data);
}

/* --------------------------------------------------------------- progress */

void queue_hand_back(struct req *r)
{
	struct pst_queue *q = r->q;
	struct req *head = atomic_load_explicit(&q->finished, memory_order_relaxed);

	do
		r->next = head;
	while (!atomic_compare_exchange_weak(&q->finished, &head, r));
	/* Pairs with the store to want_wake before the owner looks at finished. */
	if (atomic_exchange(&q->want_wake, false))
		(void)eventfd_write(q->efd, 1);
}

/* Everything that can be done without waiting. */
void queue_progress(struct pst_queue *q)
{
	struct list *e, *n, again;

	reap_lane(q);
	take_finished(q);
	q->more = false;
	if (!list_empty(&q->started)) {
		q->copy_left = PART_MAX;
		q->viewer.now = now_ns();
		/* Those that do not get far put themselves back at the end. */
		list_init(&again);
		list_for_each_safe (e, n, &q->started) {
			list_del(e);
			list_add_tail(&again, e);
		}
		while (!list_empty(&again)) {
			struct req *r = list_first(&again, struct req, link);

			list_del(&r->link);
			if (q->more)
				list_add_tail(&q->started, &r->link);
			else if (r->io.op == PST_OP_SYNC)
				direct_sync(r);
			else
				direct_start(r);
		}
	}
	if (q->next_deadline != PST_NO_DEADLINE) {
		uint64_t now = now_ns();

		if (q->next_deadline <= now)
			queue_expire(q, now, ETIMEDOUT);
	}
	if (q->lane->nr_ops)
		queue_flush(q);
}

static void req_done(const struct req *r, struct pst_done *ret)
{
	*ret = (struct pst_done){
		.user_data = r->io.user_data,
		.res = r->err ? -r->err : (int64_t)r->limit,
		.prefix = r->limit,
		.paths = r->paths,
		.why = r->why,
		.detail = r->detail,
		.flags = r->flags,
		.crc32c = r->crc,
		.op = r->io.op,
	};
}

static unsigned queue_take(struct pst_queue *q, struct pst_done *ret, unsigned max)
{
	unsigned n = 0;

	while (n < max && !list_empty(&q->done)) {
		struct req *r = list_first(&q->done, struct req, link);

		req_done(r, &ret[n++]);
		list_del(&r->link);
		q->nr_done--;
		if (r->ended) {
			r->state = REQ_ZOMBIE;
			list_add_tail(&q->zombies, &r->link);
		} else {
			req_free(r);
		}
	}
	return n;
}

/* ------------------------------------------------------------------- wait */

/* poll(2) until the deadline, which a millisecond's rounding must not bring forward. */
static void sleep_fd(int fd, uint64_t deadline_ns)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	struct timespec ts, *tsp = NULL;

	if (deadline_ns != PST_NO_DEADLINE) {
		uint64_t now = now_ns(), left = deadline_ns > now ? deadline_ns - now : 0;

		ts.tv_sec = (time_t)(left / NSEC_PER_SEC);
		ts.tv_nsec = (long)(left % NSEC_PER_SEC);
		tsp = &ts;
	}
	(void)ppoll(&pfd, 1, tsp, NULL);
}

/*
 * Sleep until the lane has finished nr operations, or an engine anything.  An operation may
 * be only a step of its request, whose next must not wait for others that hang: so a sleep
 * for several is short.
 */
static void queue_wait(struct pst_queue *q, unsigned nr, uint64_t deadline_ns)
{
	struct timespec nap = { .tv_nsec = NAP_NS };
	bool by_fd = q->nr_engine || q->parked;
	int r = 0;

	/* Nobody tells when another queue's write has ended. */
	if (nr > 1 || q->parked)
		deadline_ns = MIN(deadline_ns, now_ns() + NAP_NS);

	/* Who cannot be woken looks again soon. */
	if (by_fd && unlikely(queue_arm(q) < 0))
		deadline_ns = MIN(deadline_ns, now_ns() + NAP_NS);
	q->waiting = true;
	queue_unlock(q);
	if (by_fd)
		sleep_fd(q->efd, deadline_ns);
	else
		r = q->store->wait(q->lane, nr, deadline_ns);
	/* Where waiting is forbidden, by a sandbox that came later, looking has to do. */
	if (unlikely(r < 0 && r != -ETIMEDOUT && r != -EINTR))
		(void)nanosleep(&nap, NULL);
	queue_lock(q);
	q->waiting = false;
	if (by_fd)
		queue_disarm(q);
}

unsigned queue_reap(struct pst_queue *q, struct pst_done *ret, unsigned min, unsigned max,
		    uint64_t deadline_ns)
{
	bool was_armed = q->armed;
	unsigned n = 0;

	queue_disarm(q);
	for (;;) {
		queue_progress(q);
		n += queue_take(q, ret + n, max - n);
		if (n >= min || n == max || !q->nr_inflight)
			break;
		if (deadline_ns != PST_NO_DEADLINE && deadline_ns <= now_ns())
			break;
		if (!q->more)
			queue_wait(q, MIN(min - n, q->nr_inflight),
				   MIN(deadline_ns, q->next_deadline));
	}
	/* Else who sleeps on it without need would wake for ever. */
	if (q->has_fd && !was_armed && !n)
		queue_drain(q);
	if (q->has_fd && !q->fd_once)
		(void)queue_arm(q); /* it did before */
	return n;
}

void queue_wind_up(struct pst_queue *q)
{
	uint64_t give_up = now_ns() + CANCEL_GRACE_NS;
	struct timespec nap = { .tv_nsec = 100000 };
	struct pst_done dropped[REAP_BATCH];
	struct list *e, *n;

	queue_lock(q);
	queue_disarm(q);
	q->has_fd = false;
	list_for_each_safe (e, n, &q->prepared) {
		struct req *r = list_entry(e, struct req, link);

		list_del(&r->link);
		req_release(r);
		req_free(r);
	}
	q->nr_prepared = 0;
	list_for_each (e, &q->inflight)
		list_entry(e, struct req, all)->deadline = 0;
	queue_expire(q, now_ns(), ECANCELED);
	for (;;) {
		while (queue_take(q, dropped, REAP_BATCH))
			;
		if (!q->nr_zombies || now_ns() > give_up)
			break;
		queue_unlock(q);
		(void)nanosleep(&nap, NULL);
		queue_lock(q);
		queue_progress(q);
	}
	atomic_store(&q->quiet, !q->nr_zombies);
	atomic_store(&q->orphan, true);
	queue_unlock(q);
}

int queue_fd(struct pst_queue *q)
{
	bool first = !q->has_fd;
	int r = first ? clock_add(&q->alarm) : 0;

	q->has_fd = true;
	if (r == 0)
		r = queue_arm(q);
	if (r < 0 && first) {
		q->has_fd = false;
		clock_del(&q->alarm);
	}
	return r < 0 ? r : q->efd;
}
