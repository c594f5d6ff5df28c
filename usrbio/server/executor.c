/* SPDX-License-Identifier: MIT */
/* The passes of an executor, made by its thread or by clients that help. */
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "base/thread.h"
#include "usrbio/server/executor.h"

#define TRUST_MAX 16u
#define HELP_PASSES 4u /* maximum passes of a client in one call */
#define SERVE_PASSES 4u
#define TRY_NS 10000u /* longest time that a client tries to take the lock, ns */

/* ------------------------------------------------------------------- rings */

static void executor_run(struct executor *ex, struct server_ring *r)
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
		executor_run(ex, r);
	}
}

void executor_take_stalled(struct executor *ex)
{
	while (!list_empty(&ex->stalled))
		executor_run(ex, list_first(&ex->stalled, struct server_ring, run));
}

void executor_stall(struct executor *ex, struct server_ring *r)
{
	list_del(&r->run);
	r->stalled = true;
	list_add_tail(&ex->stalled, &r->run);
}

/* Serve a ring once, then put it on the list for its next turn. */
static bool executor_turn(struct executor *ex, struct runner *h, struct server_ring *r,
			  unsigned quantum)
{
	bool did = ring_turn(r, h, quantum);

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

/* Run the rings whose partial batch is due. */
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
			executor_run(ex, r);
	}
}

/* Serve every ring of one priority that may have work, once. */
static bool run_priority(struct executor *ex, struct runner *h, struct list *list, unsigned quantum)
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

		did |= executor_turn(ex, h, r, quantum);
	}
	return did;
}

static bool executor_run_all(struct executor *ex, struct runner *h)
{
	unsigned quantum = QUANTUM;
	bool did = false;

	executor_take_kicked(ex);
	run_due(ex);
	for (unsigned p = 0; p < USRBIO_PRIORITIES; p++) {
		did |= run_priority(ex, h, &ex->run[p], quantum);
		if (!list_empty(&ex->run[p]))
			quantum = QUANTUM_FEW;
	}
	return did;
}

static bool any_runs(const struct executor *ex)
{
	for (unsigned p = 0; p < USRBIO_PRIORITIES; p++)
		if (!list_empty(&ex->run[p]))
			return true;
	return false;
}

/* Publish the new completions of all rings. */
static void executor_publish(struct executor *ex)
{
	while (!list_empty(&ex->touched))
		ring_publish(list_first(&ex->touched, struct server_ring, touched));
}

bool executor_is_shared(const struct executor *ex, const struct server_ring *r)
{
	return ex->shares || atomic_load_explicit(&ex->called, memory_order_relaxed) ||
	       (ex->runner.taken && r->runner.taken);
}

/* Move the bytes of started requests.  Return false if the runner gave all of them back because
 * there is no room for them. */
static bool move_started(struct executor *ex, struct runner *h, bool did)
{
	bool any = h->first;

	if (runner_move(ex, h))
		return true;
	return any ? any_runs(ex) : did;
}

bool executor_pass(struct executor *ex, struct runner *h, struct server_ring *only)
{
	bool did = false;

	if (h->nr_inflight)
		did = runner_move(ex, h);
	did |= only ? executor_turn(ex, h, only, QUANTUM) : executor_run_all(ex, h);
	if (h->first || h->nr_prepared)
		did = move_started(ex, h, did);
	executor_publish(ex);
	return did;
}

/* ------------------------------------------------------------------ clients */

/* Return true if the executor's thread, or a thread that removes something, waits for the lock. */
static bool executor_is_wanted(struct executor *ex)
{
	return atomic_load_explicit(&ex->wanted, memory_order_relaxed);
}

/* Make passes on a client's thread, for its ring. */
static bool help_passes(struct executor *ex, struct server_ring *r)
{
	uint64_t before = r->runner.nr_taken;
	unsigned n = 0;
	bool more;

	executor_take_kicked(ex);
	do
		more = executor_pass(ex, &r->runner, r);
	while (more && ++n < HELP_PASSES && ring_hungry(r) && !executor_is_wanted(ex));
	if (r->runner.nr_taken > before) {
		ex->trust = MIN(ex->trust + 1, TRUST_MAX);
		atomic_store_explicit(&ex->came, true, memory_order_relaxed);
	}
	return more || n;
}

/* Return true if a ring is stalled and nothing will wake the thread, because no request is in
 * flight. */
static bool waits_alone(const struct executor *ex)
{
	return !list_empty(&ex->stalled) && runners_are_idle(ex);
}

/* Leave the remaining work to the thread, and wake it if needed. */
static void executor_hand_over(struct executor *ex, struct server_ring *r)
{
	bool left;

	if (ex->call_thread) {
		executor_take_stalled(ex);
		/* Use the thread's own queue: a ring's queue, and its engine, end with the ring. */
		if (runner_knows(&ex->runner, ex->call_device))
			ex->lender = r;
	}
	left = any_runs(ex);
	atomic_store(&ex->left, left);
	if (ex->call_thread || r->batch.due < ex->wake_at ||
	    (left && atomic_load(&ex->state) == EXECUTOR_SLEEPS) || unlikely(waits_alone(ex)))
		executor_wake(ex);
	ex->call_thread = false;
}

/* Try to take the lock for up to TRY_NS: the holder usually releases it soon. */
static bool executor_try_lock(struct executor *ex)
{
	uint64_t until = 0;

	do {
		if (!executor_is_wanted(ex) && pthread_mutex_trylock(&ex->lock) == 0)
			return true;
		if (!until)
			until = now_ns() + TRY_NS;
	} while (now_ns() < until);
	return false;
}

/* Return true if a thread is moving bytes for the ring. */
static bool is_moved(const struct executor *ex, const struct server_ring *r)
{
	return r->nr_requests && (ex->runner.taken || r->runner.taken);
}

enum server_help executor_help(struct executor *ex, struct server_ring *r)
{
	struct runner *h = &r->runner;
	enum server_help did = SERVER_RESTS;

	if (!h->q)
		return SERVER_RESTS;
	if (!executor_try_lock(ex))
		return SERVER_MOVING;
	r->nr_helpers++;
	if (!h->taken) {
		runner_take(h, true);
		if (help_passes(ex, r))
			did = SERVER_MOVED;
		runner_drop(ex, h);
		runner_arm(h);
		executor_hand_over(ex, r);
	}
	if (!did && is_moved(ex, r))
		did = SERVER_MOVING;
	if (!--r->nr_helpers && unlikely(r->ending))
		(void)pthread_cond_broadcast(&ex->quiet);
	(void)pthread_mutex_unlock(&ex->lock);
	/* A client that found the lock taken sleeps and relies on the lock's holder, this thread.
	 * The executor's thread may be in a short sleep, so wake it. */
	if (unlikely(atomic_load(&ex->kicked) && atomic_load(&ex->state) != EXECUTOR_AWAKE))
		executor_wake(ex);
	return did;
}

/* Make passes until no work is left or other threads wait for the lock. */
static void serve_passes(struct executor *ex, struct server_ring *r)
{
	unsigned n = 0;

	executor_take_kicked(ex);
	do
		(void)executor_pass(ex, &r->runner, r);
	while (++n < SERVE_PASSES && !r->stalled && !list_empty(&r->run) &&
	       !executor_is_wanted(ex));
}

void executor_serve(struct executor *ex, struct server_ring *r)
{
	struct runner *h = &r->runner;

	if (!h->q || !executor_try_lock(ex)) {
		executor_kick(ex, r);
		return;
	}
	r->nr_helpers++;
	if (h->taken) {
		/* If another thread holds the lock, it finds the ring on the list. */
		executor_run(ex, r);
	} else {
		runner_take(h, true);
		serve_passes(ex, r);
		runner_drop(ex, h);
		runner_arm(h);
	}
	executor_hand_over(ex, r);
	if (!--r->nr_helpers && unlikely(r->ending))
		(void)pthread_cond_broadcast(&ex->quiet);
	(void)pthread_mutex_unlock(&ex->lock);
	if (unlikely(atomic_load(&ex->kicked) && atomic_load(&ex->state) != EXECUTOR_AWAKE))
		executor_wake(ex);
}

/* Check again the requests that name a removed object and that no runner holds: each then finds
 * another object or fails.  Return true if there was such a request. */
static bool check_again(struct executor *ex, const struct server_file *f,
			const struct server_buffer *b)
{
	bool any = false;

	for (unsigned i = 0; i < CTX_DEPTH; i++) {
		struct request *q = &ex->reqs[i];
		int err;

		if (q->out || ((!f || q->file != f) && (!b || q->buffer != b)))
			continue;
		any = true;
		executor_run(ex, q->ring);
		err = request_check(q);
		if (err < 0)
			ring_settle(q, err);
	}
	return any;
}

void executor_forget(struct executor *ex, const struct server_file *f,
		     const struct server_buffer *b)
{
	/* Check requests twice: first so that no runner starts them, then those that runners
	 * gave back. */
	bool any = check_again(ex, f, b);

	runners_await(ex);
	any |= check_again(ex, f, b);
	executor_publish(ex);
	/* Start waiting requests: requests that named the removed object may have found another
	 * one, and later requests waited behind them. */
	if (any)
		executor_wake(ex);
}

/* ------------------------------------------------------------------ thread */

/* Continue requests that clients left in flight on their runners. */
static bool work_for_clients(struct executor *ex)
{
	struct list *e, *n;
	bool did = false;

	/* Skip a runner that another thread has taken. */
	list_for_each_safe (e, n, &ex->runners) {
		struct runner *h = list_entry(e, struct runner, link);

		if (h->taken || !h->nr_inflight)
			continue;
		runner_take(h, false);
		did |= runner_move(ex, h);
		n = e->next;
		runner_drop(ex, h);
	}
	return did;
}

static bool work_with(struct executor *ex, struct runner *h, struct server_ring *only)
{
	bool did;

	runner_take(h, false);
	did = executor_pass(ex, h, only);
	runner_drop(ex, h);
	return did;
}

/*
 * First make passes with the lender's runner, for requests that may block when they start.  These
 * passes serve only the lender's ring, because the runner ends with that ring.  Then make passes
 * with the thread's own runner.
 */
bool executor_work(struct executor *ex)
{
	struct server_ring *lender = TAKE_PTR(ex->lender);
	bool did = false;

	if (lender && !lender->runner.taken)
		did = work_with(ex, &lender->runner, lender);
	did |= work_with(ex, &ex->runner, NULL);
	did |= work_for_clients(ex);
	executor_publish(ex);
	return did;
}

/* -------------------------------------------------------------------- life */

void executor_enter(struct executor *ex)
{
	/* Count as waiting: a thread that retakes the lock at once would starve this one. */
	(void)atomic_fetch_add(&ex->wanted, 1);
	(void)pthread_mutex_lock(&ex->lock);
	(void)atomic_fetch_sub(&ex->wanted, 1);
}

void executor_leave(struct executor *ex)
{
	(void)pthread_mutex_unlock(&ex->lock);
}

/* Start the thread with the program's signals blocked, except SIGBUS, which the guard needs. */
static int executor_start(struct executor *ex)
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

static bool executor_is_alone(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) == 1;
}

static void executor_init(struct executor *ex, struct server *w, unsigned idx)
{
	*ex = (struct executor){
		.w = w,
		.idx = idx,
		.efd = -1,
		.epfd = -1,
		.wake_at = BATCH_NEVER,
		.alone = executor_is_alone(),
		.lane = w->tally ? &w->tally->lane[idx % TALLY_LANES] : NULL,
	};
	mutex_init_brief(&ex->lock);
	(void)pthread_cond_init(&ex->quiet, NULL);
	list_init(&ex->runners);
	list_add_tail(&ex->runners, &ex->runner.link);
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

static struct executor *executor_destroy(struct executor *ex)
{
	ex->runner.q = pst_queue_free(ex->runner.q);
	ex->runner.stage = stage_free(ex->runner.stage);
	closep(&ex->efd);
	closep(&ex->epfd);
	(void)pthread_cond_destroy(&ex->quiet);
	(void)pthread_mutex_destroy(&ex->lock);
	free(ex);
	return NULL;
}

/* Open the descriptors that wake the thread. */
static int open_fds(struct executor *ex)
{
	struct epoll_event ev = { .events = EPOLLIN };

	ex->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ex->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (ex->efd < 0 || ex->epfd < 0 || epoll_ctl(ex->epfd, EPOLL_CTL_ADD, ex->efd, &ev) < 0)
		return -errno;
	return 0;
}

int executor_new(struct server *w, unsigned idx, struct executor **ret)
{
	struct executor *ex = aligned_alloc(_Alignof(struct executor), sizeof(*ex));
	int err;

	if (!ex)
		return -ENOMEM;
	executor_init(ex, w, idx);
	err = open_fds(ex);
	if (!err)
		err = runner_init(ex, &ex->runner);
	if (!err)
		err = executor_start(ex);
	if (err < 0)
		executor_destroy(ex);
	else
		*ret = ex;
	return err;
}

struct executor *executor_free(struct executor *ex)
{
	atomic_store(&ex->stop, true);
	executor_wake(ex);
	(void)pthread_join(ex->thread, NULL);
	return executor_destroy(ex);
}
