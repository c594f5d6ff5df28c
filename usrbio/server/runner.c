/* SPDX-License-Identifier: MIT */
#include <sys/epoll.h>

#include "usrbio/server/executor.h"

#define REAP_BATCH 64u
#define TRY_BATCH 32u

void runner_take(struct runner *h, bool helps)
{
	h->taken = true;
	h->helps = helps;
}

void runner_drop(struct executor *ex, struct runner *h)
{
	struct list *e;

	h->taken = false;
	if (likely(!ex->nr_ending))
		return;
	/* Cancel now: the thread that ended a ring could not cancel these requests while the runner
	 * was taken. */
	list_for_each (e, &ex->rings)
		if (list_entry(e, struct server_ring, link)->ending)
			ring_cancel(list_entry(e, struct server_ring, link), h);
	(void)pthread_cond_broadcast(&ex->quiet);
}

/* Release the lock while the runner moves bytes. */
static void runner_unlock(struct executor *ex, struct runner *h)
{
	h->out = true;
	h->out_since = ex->nr_forgets;
	(void)pthread_mutex_unlock(&ex->lock);
}

static void come_back(struct executor *ex, struct runner *h)
{
	(void)pthread_mutex_lock(&ex->lock);
	h->out = false;
	executor_clock(ex);
	if (unlikely(ex->nr_waits))
		(void)pthread_cond_broadcast(&ex->quiet);
}

static bool any_out(const struct executor *ex, uint64_t before)
{
	struct list *e;

	list_for_each (e, &ex->runners) {
		const struct runner *h = list_entry(e, struct runner, link);

		if (h->out && h->out_since < before)
			return true;
	}
	return false;
}

void runners_await(struct executor *ex)
{
	uint64_t now = ++ex->nr_forgets;

	ex->nr_waits++;
	while (any_out(ex, now))
		(void)pthread_cond_wait(&ex->quiet, &ex->lock);
	ex->nr_waits--;
}

static bool runner_may_try(const struct request *q)
{
	return likely(q->mem) && request_may_try(q);
}

/* Try as many of the next requests as may be tried.  Return the first request after them. */
static struct request *try_some(struct runner *h, struct request *first)
{
	struct pst_done d[TRY_BATCH];
	struct pst_io io[TRY_BATCH];
	struct request *q;
	unsigned n = 0;

	for (q = first; q && n < TRY_BATCH && runner_may_try(q); q = q->next)
		io[n++] = request_io(q);
	if (pst_queue_try(h->q, io, n, d) < 0)
		for (unsigned i = 0; i < n; i++)
			d[i].res = -EAGAIN;
	q = first;
	for (unsigned i = 0; i < n; i++, q = q->next)
		request_tried(q, &d[i]);
	return q;
}

/* Start requests.  Return the number that the queue accepted.  *ret_full: it has no room. */
static unsigned runner_move_all(struct runner *h, struct request *first, bool *ret_full)
{
	unsigned prepared = 0;

	*ret_full = false;
	for (struct request *q = first; q; q = q->next) {
		q->step = REQUEST_AGAIN;
		if (unlikely(q->file->named) && !request_open(q))
			continue;
		if (unlikely(q->buffer->import))
			request_place(q);
	}
	for (struct request *q = first; q;)
		q = runner_may_try(q) ? try_some(h, q) : q->next;
	for (struct request *q = first; q; q = q->next) {
		if (likely(q->step == REQUEST_OVER))
			continue;
		if (likely(q->mem))
			request_prep(q);
		if (q->step != REQUEST_PREPARED)
			request_unplace(q);
		prepared += q->step == REQUEST_PREPARED;
		*ret_full |= q->step == REQUEST_AGAIN;
	}
	return prepared;
}

/* Take back requests after moving bytes.  Requests that must wait are put back in reverse, which
 * keeps their order.  Return the number of the other requests. */
static unsigned moved_all(struct request *first)
{
	struct request *q, *next, *again = NULL;
	unsigned nr = 0;

	for (q = first; q; q = next) {
		next = q->next;
		if (q->step == REQUEST_AGAIN) {
			q->next = again;
			again = q;
		} else {
			request_moved(q);
			nr++;
		}
	}
	for (q = again; q; q = next) {
		next = q->next;
		request_moved(q);
	}
	return nr;
}

/* Ranges for one call of server_opts.writes. */
struct told {
	struct server_range ranges[REAP_BATCH];
	unsigned nr;
};

static void runner_tell(const struct executor *ex, struct told *t)
{
	if (t->nr)
		ex->w->writes(t->ranges, t->nr);
	t->nr = 0;
}

static inline void tell_of(const struct executor *ex, struct told *t, const struct request *q,
			   bool ends)
{
	if (likely(!q->told))
		return;
	if (t->nr == REAP_BATCH)
		runner_tell(ex, t);
	t->ranges[t->nr++] = (struct server_range){
		.number = q->args.file,
		.off = q->args.file_off,
		.len = q->args.len,
		.ends = ends,
	};
}

static void tell_begin(const struct executor *ex, const struct request *first)
{
	struct told t;

	if (likely(!ex->w->writes))
		return;
	t.nr = 0;
	for (const struct request *q = first; q; q = q->next)
		tell_of(ex, &t, q, false);
	runner_tell(ex, &t);
}

/* Include failed requests: they may have written some of their bytes. */
static void tell_end(const struct executor *ex, const struct pst_done *d, int nr)
{
	struct told t;

	if (likely(!ex->w->writes))
		return;
	t.nr = 0;
	for (int i = 0; i < nr; i++)
		tell_of(ex, &t, (const struct request *)(uintptr_t)d[i].user_data, true);
	runner_tell(ex, &t);
}

/* Move bytes between slots and windows. */
static void land(struct pst_done *d, int nr)
{
	for (int i = 0; i < nr; i++) {
		struct request *q = (struct request *)(uintptr_t)d[i].user_data;

		if (unlikely(q->slot.stage))
			request_land(q, &d[i]);
	}
}

bool runner_move(struct executor *ex, struct runner *h)
{
	struct request *first = TAKE_PTR(h->first);
	struct pst_done d[REAP_BATCH];
	bool did = false, full;
	unsigned waits, nr;
	int sent, n;

	h->last = &h->first;
	do {
		runner_unlock(ex, h);
		tell_begin(ex, first);
		waits = runner_move_all(h, first, &full) + h->nr_prepared;
		sent = waits ? pst_queue_submit(h->q) : 0;
		/* Abandoned requests also fill the queue, so reap them to make room. */
		n = waits || full || h->nr_inflight ? pst_queue_reap(h->q, d, 0, REAP_BATCH, 0) : 0;
		land(d, n);
		tell_end(ex, d, n);
		come_back(ex, h);
		nr = moved_all(TAKE_PTR(first));
		h->nr_started += nr;
		did |= nr > 0;
		h->nr_prepared -= (unsigned)MAX(sent, 0);
		for (int i = 0; i < n; i++)
			request_done((struct request *)(uintptr_t)d[i].user_data, &d[i]);
		did |= n > 0;
	} while (n == REAP_BATCH);
	if (did)
		executor_take_stalled(ex);
	return did;
}

bool runners_are_idle(const struct executor *ex)
{
	struct list *e;

	list_for_each (e, &ex->runners) {
		const struct runner *h = list_entry(e, struct runner, link);

		if (h->nr_inflight != h->nr_prepared)
			return false;
	}
	return true;
}

void runner_arm(const struct runner *h)
{
	if (h->nr_inflight && !h->taken)
		(void)pst_queue_fd(h->q);
}

void runners_arm(struct executor *ex)
{
	struct list *e;

	list_for_each (e, &ex->runners)
		runner_arm(list_entry(e, struct runner, link));
}

int runner_init(struct executor *ex, struct runner *h)
{
	struct pst_queue_opts o = {
		.sz = sizeof(o),
		.depth = CTX_DEPTH,
		.flags = PST_QUEUE_FD_ONCE,
	};
	struct epoll_event ev = { .events = EPOLLIN };
	int err = pst_queue_new(&o, &h->q);

	h->last = &h->first;
	if (err < 0)
		return err;
	h->qfd = pst_queue_fd(h->q);
	if (h->qfd >= 0 && epoll_ctl(ex->epfd, EPOLL_CTL_ADD, h->qfd, &ev) == 0)
		return 0;
	err = h->qfd < 0 ? h->qfd : -errno;
	h->q = pst_queue_free(h->q);
	return err;
}

int runner_new(struct executor *ex, struct runner *h)
{
	int err;

	list_init(&h->link);
	err = runner_init(ex, h);
	/* Without a queue only the executor's thread works for the ring.  A guarded server's
	 * clients are other processes and never use this queue. */
	if (err < 0)
		return ex->w->guard ? 0 : err;
	executor_enter(ex);
	list_add_tail(&ex->runners, &h->link);
	executor_leave(ex);
	return 0;
}

void runner_free(struct executor *ex, struct runner *h)
{
	if (!h->q)
		return;
	executor_enter(ex);
	list_del(&h->link);
	executor_leave(ex);
	(void)epoll_ctl(ex->epfd, EPOLL_CTL_DEL, h->qfd, NULL);
	h->q = pst_queue_free(h->q);
	h->stage = stage_free(h->stage);
}
