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

static void wake(struct executor *l)
{
	int saved = errno;

	(void)eventfd_write(l->efd, 1);
	errno = saved;
}

void executor_wake(struct executor *l)
{
	atomic_store(&l->state, EXECUTOR_AWAKE);
	wake(l);
}

void executor_kick(struct executor *l, struct server_ring *r)
{
	/* Pairs with executor_take_kicked(), which clears it before the ring's markers are read:
	 * either that finds what the client put there, or this finds it cleared. */
	if (!atomic_load(&r->kicked) && !atomic_exchange(&r->kicked, true)) {
		struct server_ring *head = atomic_load(&l->kicked);

		do
			r->next_kicked = head;
		while (!atomic_compare_exchange_weak(&l->kicked, &head, r));
	}
	/* Pairs with the thread, which looks at l->kicked after it said that it sleeps. */
	if (atomic_load(&l->state) == EXECUTOR_SLEEPS &&
	    atomic_exchange(&l->state, EXECUTOR_AWAKE) == EXECUTOR_SLEEPS)
		wake(l);
}

static void run(struct executor *l, struct server_ring *r)
{
	if (!r->stalled && !list_empty(&r->run))
		return;
	r->stalled = false;
	list_del(&r->run);
	list_add_tail(&l->run[r->priority], &r->run);
}

void executor_take_kicked(struct executor *l)
{
	struct server_ring *r, *next;

	if (!atomic_load(&l->kicked))
		return;
	for (r = atomic_exchange(&l->kicked, NULL); r; r = next) {
		next = r->next_kicked;
		atomic_store(&r->kicked, false);
		run(l, r);
	}
}

/* ------------------------------------------------------------------ passes */

/* There may be room now for rings that had none. */
static void take_stalled(struct executor *l)
{
	while (!list_empty(&l->stalled))
		run(l, list_first(&l->stalled, struct server_ring, run));
}

static bool reap(struct executor *l)
{
	struct pst_done d[REAP_BATCH];
	bool did = false;
	int n;

	do {
		n = pst_queue_reap(l->q, d, 0, REAP_BATCH, 0);
		for (int i = 0; i < n; i++)
			request_done((struct request *)(uintptr_t)d[i].user_data, &d[i]);
		did |= n > 0;
	} while (n == REAP_BATCH);
	if (did)
		take_stalled(l);
	return did;
}

/* One ring's turn, and where it stands after it. */
static bool turn(struct executor *l, struct server_ring *r, unsigned quantum)
{
	bool did = ring_turn(r, quantum);

	list_del(&r->run);
	r->stalled = !did;
	if (ring_hungry(r))
		list_add_tail(did ? &l->run[r->priority] : &l->stalled, &r->run);
	if (r->batch.due == BATCH_NEVER)
		list_del(&r->timed);
	else if (list_empty(&r->timed))
		list_add_tail(&l->timed, &r->timed);
	return did;
}

/* Rings whose partial batches have waited long enough. */
static void run_due(struct executor *l)
{
	struct list *e, *n;
	uint64_t now;

	if (list_empty(&l->timed))
		return;
	now = now_ns();
	list_for_each_safe (e, n, &l->timed) {
		struct server_ring *r = list_entry(e, struct server_ring, timed);

		if (r->batch.due <= now)
			run(l, r);
	}
}

/* Every ring of one priority that may have something to do, once. */
static bool run_priority(struct executor *l, struct list *list, unsigned quantum)
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

		did |= turn(l, r, quantum);
	}
	return did;
}

static bool run_all(struct executor *l)
{
	unsigned quantum = QUANTUM;
	bool did = false;

	executor_take_kicked(l);
	run_due(l);
	for (unsigned p = 0; p < USRBIO_PRIORITIES; p++) {
		did |= run_priority(l, &l->run[p], quantum);
		if (!list_empty(&l->run[p]))
			quantum = QUANTUM_FEW;
	}
	return did;
}

/* Whoever has new completions sees them now. */
static void publish(struct executor *l)
{
	while (!list_empty(&l->touched))
		ring_publish(list_first(&l->touched, struct server_ring, touched));
}

bool executor_pass(struct executor *l, struct server_ring *only)
{
	bool did = false;
	int n;

	if (l->nr_inflight)
		did = reap(l);
	did |= only ? turn(l, only, QUANTUM) : run_all(l);
	if (l->nr_prepared) {
		n = pst_queue_submit(l->q);
		l->nr_prepared -= n > 0 ? (unsigned)n : 0;
	}
	if (l->nr_inflight)
		did |= reap(l);
	publish(l);
	return did;
}

/* What is under way writes the queue's descriptor when it is done: for whoever sleeps next. */
static void arm(struct executor *l)
{
	if (l->nr_inflight)
		(void)pst_queue_fd(l->q);
}

static bool any_runs(const struct executor *l)
{
	for (unsigned p = 0; p < USRBIO_PRIORITIES; p++)
		if (!list_empty(&l->run[p]))
			return true;
	return false;
}

/* Does the executor's thread, or one that ends something, wait for the lock? */
static bool is_wanted(struct executor *l)
{
	return atomic_load_explicit(&l->wanted, memory_order_relaxed);
}

/* A client's passes: for its own ring, then for those whose clients found the executor busy. */
static bool help_passes(struct executor *l, struct server_ring *r)
{
	uint64_t before = l->nr_taken;
	unsigned n = 0;
	bool more, did;

	executor_take_kicked(l);
	l->helped = true;
	do {
		more = executor_pass(l, r);
		did = more || n;
	} while (more && ++n < HELP_PASSES && ring_hungry(r) && !is_wanted(l));
	if (l->nr_taken > before) {
		l->trust = MIN(l->trust + 1, TRUST_MAX);
		atomic_store_explicit(&l->came, true, memory_order_relaxed);
	}
	executor_take_kicked(l);
	if (any_runs(l) && !is_wanted(l))
		(void)executor_pass(l, NULL);
	l->helped = false;
	return did;
}

/* What is the thread to do, and must it be woken for that? */
static void hand_over(struct executor *l, const struct server_ring *r)
{
	bool left;

	if (l->call_thread)
		take_stalled(l);
	left = any_runs(l);
	atomic_store(&l->left, left);
	if (l->call_thread || r->batch.due < l->wake_at ||
	    (left && atomic_load(&l->state) == EXECUTOR_SLEEPS))
		executor_wake(l);
	l->call_thread = false;
}

bool executor_help(struct executor *l, struct server_ring *r)
{
	bool did;

	if (is_wanted(l) || pthread_mutex_trylock(&l->lock) != 0)
		return false;
	did = help_passes(l, r);
	arm(l);
	hand_over(l, r);
	(void)pthread_mutex_unlock(&l->lock);
	/* Who found it taken until now sleeps, and relies on us: the thread may be napping. */
	if (unlikely(atomic_load(&l->kicked) && atomic_load(&l->state) != EXECUTOR_AWAKE))
		executor_wake(l);
	return did;
}

void executor_forget(struct executor *l, const struct server_file *f, const struct server_buffer *b)
{
	bool any = false;

	for (unsigned i = 0; i < CTX_DEPTH; i++) {
		struct request *q = &l->reqs[i];
		int err;

		if ((!f || q->file != f) && (!b || q->buffer != b))
			continue;
		any = true;
		run(l, q->ring);
		err = request_check(q);
		if (err < 0)
			ring_settle(q, err);
	}
	publish(l);
	/* What stands behind it, or it itself by another file, may go now. */
	if (any)
		executor_wake(l);
}

/* ------------------------------------------------------------------ thread */

/* When the thread has to look again though nothing woke it. */
static uint64_t next_look(const struct executor *l)
{
	uint64_t at = BATCH_NEVER;
	struct list *e;

	list_for_each (e, &l->timed)
		at = MIN(at, list_entry(e, struct server_ring, timed)->batch.due);
	/* Of what is under way, the end wakes. */
	if ((l->nr_prepared || !list_empty(&l->stalled)) && l->nr_inflight == l->nr_prepared)
		at = MIN(at, now_ns() + RETRY_NS);
	return at;
}

/* Nothing is left to do.  False when that changed meanwhile. */
static bool lie_down(struct executor *l)
{
	bool nap = l->trust >= TRUST_NAP && atomic_exchange(&l->came, false);

	l->wake_at = next_look(l);
	atomic_store(&l->left, false);
	atomic_store(&l->state, nap ? EXECUTOR_NAPS : EXECUTOR_SLEEPS);
	if (atomic_load(&l->kicked)) {
		atomic_store(&l->state, EXECUTOR_AWAKE);
		return false;
	}
	arm(l);
	return true;
}

/* False when the time is over and nothing woke it.  *ret_rang: the queue's descriptor did. */
static bool sleep_until(struct executor *l, uint64_t at, bool *ret_rang)
{
	struct pollfd fds[2] = { { l->efd, POLLIN, 0 }, { l->qfd, POLLIN, 0 } };
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
		(void)eventfd_read(l->efd, &v);
	*ret_rang = n > 0 && fds[1].revents;
	return n != 0;
}

/*
 * Lie until there is something to do, or nobody comes to help any more.  Looks without the
 * lock, which is the clients' mostly.  True when the queue's descriptor woke it.
 */
static bool lie(struct executor *l, uint64_t wake_at)
{
	bool rang = false;
	uint64_t at;

	do {
		at = wake_at;
		if (atomic_load(&l->state) == EXECUTOR_NAPS)
			at = MIN(at, now_ns() + NAP_NS);
	} while (!sleep_until(l, at, &rang) && at < wake_at && !atomic_load(&l->kicked) &&
		 !atomic_load(&l->left) && atomic_exchange(&l->came, false));
	return rang;
}

static void *executor_main(void *arg)
{
	struct executor *l = arg;
	bool napped = false, rang = false;

	while (!atomic_load(&l->stop)) {
		uint64_t before, wake_at;
		bool lies = false;

		executor_enter(l);
		before = l->nr_taken;
		/* A wake-up that came late: passes do not reap where nothing is under way, and the
		 * descriptor would stay readable. */
		if (rang && !l->nr_inflight)
			(void)reap(l);
		rang = false;
		if (l->nr_inflight == l->nr_prepared)
			take_stalled(l);
		if (!executor_pass(l, NULL))
			lies = lie_down(l);
		else if (napped && l->nr_taken > before)
			l->trust -= MIN(l->trust, TRUST_LOST);
		wake_at = l->wake_at;
		executor_leave(l);
		napped = atomic_load(&l->state) == EXECUTOR_NAPS;
		if (lies)
			rang = lie(l, wake_at);
		else
			while (atomic_load(&l->wanted))
				(void)sched_yield();
		atomic_store(&l->state, EXECUTOR_AWAKE);
	}
	return NULL;
}

/* -------------------------------------------------------------------- life */

void executor_enter(struct executor *l)
{
	/* A thread that takes the lock again at once would keep everybody out. */
	(void)atomic_fetch_add(&l->wanted, 1);
	(void)pthread_mutex_lock(&l->lock);
	(void)atomic_fetch_sub(&l->wanted, 1);
}

void executor_leave(struct executor *l)
{
	(void)pthread_mutex_unlock(&l->lock);
}

/* No handler of the program runs on it, but what the guard catches must come. */
static int start(struct executor *l)
{
	sigset_t set, old;
	int err;

	(void)sigfillset(&set);
	if (l->w->guard)
		(void)sigdelset(&set, SIGBUS);
	(void)pthread_sigmask(SIG_SETMASK, &set, &old);
	err = pthread_create(&l->thread, NULL, executor_main, l);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		return -EAGAIN;
	(void)pthread_setname_np(l->thread, "usrbio");
	return 0;
}

static void init(struct executor *l, struct server *w, unsigned idx)
{
	*l = (struct executor){ .w = w, .idx = idx, .efd = -1, .wake_at = BATCH_NEVER };
	(void)pthread_mutex_init(&l->lock, NULL);
	(void)pthread_cond_init(&l->quiet, NULL);
	list_init(&l->rings);
	list_init(&l->stalled);
	list_init(&l->timed);
	list_init(&l->touched);
	list_init(&l->free);
	for (unsigned p = 0; p < USRBIO_PRIORITIES; p++)
		list_init(&l->run[p]);
	for (unsigned i = 0; i < CTX_DEPTH; i++)
		list_add_tail(&l->free, &l->reqs[i].link);
	l->nr_free = CTX_DEPTH;
}

static struct executor *destroy(struct executor *l)
{
	l->q = pst_queue_free(l->q);
	closep(&l->efd);
	(void)pthread_cond_destroy(&l->quiet);
	(void)pthread_mutex_destroy(&l->lock);
	free(l);
	return NULL;
}

int executor_new(struct server *w, unsigned idx, struct executor **ret)
{
	struct pst_queue_opts o = {
		.sz = sizeof(o),
		.depth = CTX_DEPTH,
		.flags = PST_QUEUE_FD_ONCE,
	};
	struct executor *l = aligned_alloc(_Alignof(struct executor), sizeof(*l));
	int err;

	if (!l)
		return -ENOMEM;
	init(l, w, idx);
	err = pst_queue_new(&o, &l->q);
	if (!err)
		l->qfd = err = pst_queue_fd(l->q);
	if (err >= 0) {
		l->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		err = l->efd < 0 ? -errno : start(l);
	}
	if (err < 0)
		destroy(l);
	else
		*ret = l;
	return err;
}

struct executor *executor_free(struct executor *l)
{
	atomic_store(&l->stop, true);
	executor_wake(l);
	(void)pthread_join(l->thread, NULL);
	return destroy(l);
}
