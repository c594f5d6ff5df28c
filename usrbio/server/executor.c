/* SPDX-License-Identifier: MIT */
/*
 * How an executor sleeps.
 *
 * Waking a thread costs more than a read of a few KiB out of the page cache, so a client that
 * waits does such work itself (executor_help()), and a kick that only precedes that should cost
 * nothing.  So while clients come to help soon after they kicked, the thread does not wait
 * for kicks: it takes short naps, and looks after each what there is.  A client that does not
 * come finds its requests started a nap later, and the thread trusts less then.
 */
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>

#include "usrbio/server/executor.h"

#define NAP_NS (200 * UINT64_C(1000))
#define TRUST_MAX 16u
#define TRUST_NAP 8u  /* from here on the thread takes naps */
#define TRUST_LOST 4u /* with entries that a nap left lying */

#define HELP_PASSES 4u /* that a client makes at once */
#define REAP_BATCH 64u

/* ------------------------------------------------------------------- kicks */

static void wake(struct executor *ex)
{
	int saved = errno;

	(void)eventfd_write(ex->efd, 1);
	errno = saved;
}

void executor_wake(struct executor *ex)
{
	atomic_store(&ex->state, EXECUTOR_AWAKE);
	wake(ex);
}

void executor_kick(struct executor *ex, struct server_ring *r)
{
	/* Pairs with executor_take_kicked(), which clears it before the ring's markers are read:
	 * either that finds what the client put there, or this finds it cleared. */
	if (!atomic_load(&r->kicked) && !atomic_exchange(&r->kicked, true)) {
		struct server_ring *head = atomic_load(&ex->kicked);

		do
			r->next_kicked = head;
		while (!atomic_compare_exchange_weak(&ex->kicked, &head, r));
	}
	/* Pairs with the thread, which looks at ex->kicked after it said that it sleeps. */
	if (atomic_load(&ex->state) == EXECUTOR_SLEEPS &&
	    atomic_exchange(&ex->state, EXECUTOR_AWAKE) == EXECUTOR_SLEEPS)
		wake(ex);
}

static void run(struct executor *ex, struct server_ring *r)
{
	if (!r->stalled && !list_empty(&r->run))
		return;
	r->stalled = false;
	list_del(&r->run);
	list_add_tail(&ex->run[r->priority], &r->run);
}

void executor_take_kicked(struct executor *ex)
{
	struct server_ring *r, *next;

	if (!atomic_load(&ex->kicked))
		return;
	for (r = atomic_exchange(&ex->kicked, NULL); r; r = next) {
		next = r->next_kicked;
		atomic_store(&r->kicked, false);
		run(ex, r);
	}
}

/* ------------------------------------------------------------------ passes */

/* There may be room now for rings that had none. */
static void take_stalled(struct executor *ex)
{
	while (!list_empty(&ex->stalled))
		run(ex, list_first(&ex->stalled, struct server_ring, run));
}

static bool reap(struct executor *ex)
{
	struct pst_done d[REAP_BATCH];
	bool did = false;
	int n;

	do {
		n = pst_queue_reap(ex->q, d, 0, REAP_BATCH, 0);
		for (int i = 0; i < n; i++)
			request_done((struct request *)(uintptr_t)d[i].user_data, &d[i]);
		did |= n > 0;
	} while (n == REAP_BATCH);
	if (did)
		take_stalled(ex);
	return did;
}

/* One ring's turn, and where it stands after it. */
static bool turn(struct executor *ex, struct server_ring *r, unsigned quantum)
{
	bool did = ring_turn(r, quantum);

	list_del(&r->run);
	r->stalled = !did;
	if (ring_hungry(r))
		list_add_tail(did ? &ex->run[r->priority] : &ex->stalled, &r->run);
	if (r->batch.due == BATCH_NEVER)
		list_del(&r->timed);
	else if (list_empty(&r->timed))
		list_add_tail(&ex->timed, &r->timed);
	return did;
}

/* Rings whose partial batches have waited long enough. */
static void run_due(struct executor *ex)
{
	struct list *e, *n;
	uint64_t now;

	if (list_empty(&ex->timed))
		return;
	now = now_ns();
	list_for_each_safe (e, n, &ex->timed) {
		struct server_ring *r = list_entry(e, struct server_ring, timed);

		if (r->batch.due <= now)
			run(ex, r);
	}
}

/* Every ring of one priority that may have something to do, once. */
static bool run_priority(struct executor *ex, struct list *list, unsigned quantum)
{
	struct list todo;
	bool did = false;

	list_init(&todo);
	while (!list_empty(list)) {
		struct list *e = list->next;

		list_del(e);
		list_add_tail(&todo, e);
	}
	while (!list_empty(&todo)) {
		struct server_ring *r = list_first(&todo, struct server_ring, run);

		did |= turn(ex, r, quantum);
	}
	return did;
}

static bool run_all(struct executor *ex)
{
	unsigned quantum = QUANTUM;
	bool did = false;

	executor_take_kicked(ex);
	run_due(ex);
	for (unsigned p = 0; p < USRBIO_PRIORITIES; p++) {
		did |= run_priority(ex, &ex->run[p], quantum);
		if (!list_empty(&ex->run[p]))
			quantum = QUANTUM_FEW;
	}
	return did;
}

/* Show new completions to the clients of the rings that have some. */
static void publish(struct executor *ex)
{
	while (!list_empty(&ex->touched))
		ring_publish(list_first(&ex->touched, struct server_ring, touched));
}

bool executor_pass(struct executor *ex, struct server_ring *only)
{
	bool did = false;
	int n;

	if (ex->nr_inflight)
		did = reap(ex);
	did |= only ? turn(ex, only, QUANTUM) : run_all(ex);
	if (ex->nr_prepared) {
		n = pst_queue_submit(ex->q);
		ex->nr_prepared -= n > 0 ? (unsigned)n : 0;
	}
	if (ex->nr_inflight)
		did |= reap(ex);
	publish(ex);
	return did;
}

/* What is under way writes the queue's descriptor when it is done: for whoever sleeps next. */
static void arm(struct executor *ex)
{
	if (ex->nr_inflight)
		(void)pst_queue_fd(ex->q);
}

static bool any_runs(const struct executor *ex)
{
	for (unsigned p = 0; p < USRBIO_PRIORITIES; p++)
		if (!list_empty(&ex->run[p]))
			return true;
	return false;
}

/* Does the executor's thread, or one that ends something, wait for the lock? */
static bool is_wanted(struct executor *ex)
{
	return atomic_load_explicit(&ex->wanted, memory_order_relaxed);
}

/* A client's passes: for its own ring, then for those whose clients found the executor busy. */
static bool help_passes(struct executor *ex, struct server_ring *r)
{
	uint64_t before = ex->nr_taken;
	unsigned n = 0;
	bool more, did;

	executor_take_kicked(ex);
	ex->helped = true;
	do {
		more = executor_pass(ex, r);
		did = more || n;
	} while (more && ++n < HELP_PASSES && ring_hungry(r) && !is_wanted(ex));
	if (ex->nr_taken > before) {
		ex->trust = MIN(ex->trust + 1, TRUST_MAX);
		atomic_store_explicit(&ex->came, true, memory_order_relaxed);
	}
	executor_take_kicked(ex);
	if (any_runs(ex) && !is_wanted(ex))
		(void)executor_pass(ex, NULL);
	ex->helped = false;
	return did;
}

/* What is the thread to do, and must it be woken for that? */
static void hand_over(struct executor *ex, const struct server_ring *r)
{
	bool left;

	if (ex->call_thread)
		take_stalled(ex);
	left = any_runs(ex);
	atomic_store(&ex->left, left);
	if (ex->call_thread || r->batch.due < ex->wake_at ||
	    (left && atomic_load(&ex->state) == EXECUTOR_SLEEPS))
		executor_wake(ex);
	ex->call_thread = false;
}

bool executor_help(struct executor *ex, struct server_ring *r)
{
	bool did;

	if (is_wanted(ex) || pthread_mutex_trylock(&ex->lock) != 0)
		return false;
	did = help_passes(ex, r);
	arm(ex);
	hand_over(ex, r);
	(void)pthread_mutex_unlock(&ex->lock);
	/* A client that found the lock taken sleeps and relies on us: the thread may nap. */
	if (unlikely(atomic_load(&ex->kicked) && atomic_load(&ex->state) != EXECUTOR_AWAKE))
		executor_wake(ex);
	return did;
}

void executor_forget(struct executor *ex, const struct server_file *f,
		     const struct server_buffer *b)
{
	bool any = false;

	for (unsigned i = 0; i < CTX_DEPTH; i++) {
		struct request *q = &ex->reqs[i];
		int err;

		if ((!f || q->file != f) && (!b || q->buffer != b))
			continue;
		any = true;
		run(ex, q->ring);
		err = request_check(q);
		if (err < 0)
			ring_settle(q, err);
	}
	publish(ex);
	/* What stands behind it, or it itself by another file, may go now. */
	if (any)
		executor_wake(ex);
}

/* ------------------------------------------------------------------ thread */

/* When the thread has to look again though nothing woke it. */
static uint64_t next_look(const struct executor *ex)
{
	uint64_t at = BATCH_NEVER;
	struct list *e;

	list_for_each (e, &ex->timed)
		at = MIN(at, list_entry(e, struct server_ring, timed)->batch.due);
	/* Of what is under way, the end wakes. */
	if ((ex->nr_prepared || !list_empty(&ex->stalled)) && ex->nr_inflight == ex->nr_prepared)
		at = MIN(at, now_ns() + RETRY_NS);
	return at;
}

/* Nothing is left to do.  False when that changed meanwhile. */
static bool lie_down(struct executor *ex)
{
	bool nap = ex->trust >= TRUST_NAP && atomic_exchange(&ex->came, false);

	ex->wake_at = next_look(ex);
	atomic_store(&ex->left, false);
	atomic_store(&ex->state, nap ? EXECUTOR_NAPS : EXECUTOR_SLEEPS);
	if (atomic_load(&ex->kicked)) {
		atomic_store(&ex->state, EXECUTOR_AWAKE);
		return false;
	}
	arm(ex);
	return true;
}

/* False when the time is over and nothing woke it.  *ret_rang: the queue's descriptor did. */
static bool sleep_until(struct executor *ex, uint64_t at, bool *ret_rang)
{
	struct pollfd fds[2] = { { ex->efd, POLLIN, 0 }, { ex->qfd, POLLIN, 0 } };
	struct timespec ts, *tsp = NULL;
	eventfd_t v;
	int n;

	if (at != BATCH_NEVER) {
		uint64_t now = now_ns(), left = at > now ? at - now : 0;

		ts.tv_sec = (time_t)(left / NSEC_PER_SEC);
		ts.tv_nsec = (long)(left % NSEC_PER_SEC);
		tsp = &ts;
	}
	n = ppoll(fds, 2, tsp, NULL);
	if (n > 0 && fds[0].revents)
		(void)eventfd_read(ex->efd, &v);
	*ret_rang = n > 0 && fds[1].revents;
	return n != 0;
}

/*
 * Lie until there is something to do, or nobody comes to help any more.  Looks without the
 * lock, which is the clients' mostly.  True when the queue's descriptor woke it.
 */
static bool lie(struct executor *ex, uint64_t wake_at)
{
	bool rang = false;
	uint64_t at;

	do {
		at = wake_at;
		if (atomic_load(&ex->state) == EXECUTOR_NAPS)
			at = MIN(at, now_ns() + NAP_NS);
	} while (!sleep_until(ex, at, &rang) && at < wake_at && !atomic_load(&ex->kicked) &&
		 !atomic_load(&ex->left) && atomic_exchange(&ex->came, false));
	return rang;
}

static void *executor_main(void *arg)
{
	struct executor *ex = arg;
	bool napped = false, rang = false;

	while (!atomic_load(&ex->stop)) {
		uint64_t before, wake_at;
		bool lies = false;

		executor_enter(ex);
		before = ex->nr_taken;
		/* A wake-up that came late: passes do not reap where nothing is under way, and the
		 * descriptor would stay readable. */
		if (rang && !ex->nr_inflight)
			(void)reap(ex);
		rang = false;
		if (ex->nr_inflight == ex->nr_prepared)
			take_stalled(ex);
		if (!executor_pass(ex, NULL))
			lies = lie_down(ex);
		else if (napped && ex->nr_taken > before)
			ex->trust -= MIN(ex->trust, TRUST_LOST);
		wake_at = ex->wake_at;
		executor_leave(ex);
		napped = atomic_load(&ex->state) == EXECUTOR_NAPS;
		if (lies)
			rang = lie(ex, wake_at);
		else
			while (atomic_load(&ex->wanted))
				(void)sched_yield();
		atomic_store(&ex->state, EXECUTOR_AWAKE);
	}
	return NULL;
}

/* -------------------------------------------------------------------- life */

void executor_enter(struct executor *ex)
{
	/* A thread that takes the lock again at once would keep everybody out. */
	(void)atomic_fetch_add(&ex->wanted, 1);
	(void)pthread_mutex_lock(&ex->lock);
	(void)atomic_fetch_sub(&ex->wanted, 1);
}

void executor_leave(struct executor *ex)
{
	(void)pthread_mutex_unlock(&ex->lock);
}

/* No handler of the program runs on it, but what the guard catches must come. */
static int start(struct executor *ex)
{
	sigset_t set, old;
	int err;

	(void)sigfillset(&set);
	if (ex->w->guard)
		(void)sigdelset(&set, SIGBUS);
	(void)pthread_sigmask(SIG_SETMASK, &set, &old);
	err = pthread_create(&ex->thread, NULL, executor_main, ex);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		return -EAGAIN;
	(void)pthread_setname_np(ex->thread, "usrbio");
	return 0;
}

static void init(struct executor *ex, struct server *w, unsigned idx)
{
	*ex = (struct executor){ .w = w, .idx = idx, .efd = -1, .wake_at = BATCH_NEVER };
	(void)pthread_mutex_init(&ex->lock, NULL);
	(void)pthread_cond_init(&ex->quiet, NULL);
	list_init(&ex->rings);
	list_init(&ex->stalled);
	list_init(&ex->timed);
	list_init(&ex->touched);
	list_init(&ex->free);
	for (unsigned p = 0; p < USRBIO_PRIORITIES; p++)
		list_init(&ex->run[p]);
	for (unsigned i = 0; i < CTX_DEPTH; i++)
		list_add_tail(&ex->free, &ex->reqs[i].link);
	ex->nr_free = CTX_DEPTH;
}

static struct executor *destroy(struct executor *ex)
{
	ex->q = pst_queue_free(ex->q);
	closep(&ex->efd);
	(void)pthread_cond_destroy(&ex->quiet);
	(void)pthread_mutex_destroy(&ex->lock);
	free(ex);
	return NULL;
}

int executor_new(struct server *w, unsigned idx, struct executor **ret)
{
	struct pst_queue_opts o = {
		.sz = sizeof(o),
		.depth = CTX_DEPTH,
		.flags = PST_QUEUE_FD_ONCE,
	};
	struct executor *ex = aligned_alloc(_Alignof(struct executor), sizeof(*ex));
	int err;

	if (!ex)
		return -ENOMEM;
	init(ex, w, idx);
	err = pst_queue_new(&o, &ex->q);
	if (!err)
		ex->qfd = err = pst_queue_fd(ex->q);
	if (err >= 0) {
		ex->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		err = ex->efd < 0 ? -errno : start(ex);
	}
	if (err < 0)
		destroy(ex);
	else
		*ret = ex;
	return err;
}

struct executor *executor_free(struct executor *ex)
{
	atomic_store(&ex->stop, true);
	executor_wake(ex);
	(void)pthread_join(ex->thread, NULL);
	return destroy(ex);
}
