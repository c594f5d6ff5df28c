/* SPDX-License-Identifier: MIT */
/*
 * Decide when an executor's thread sleeps and when it is woken.
 *
 * Waking a thread costs more than a read of a few KiB from the page cache.  A client that waits
 * does such work itself (executor_help()), so the kick that precedes its wait should cost nothing.
 * Therefore, while clients help soon after their kicks, kicks do not wake the thread: it sleeps
 * briefly and checks for work after each short sleep.  If a client does not help, its requests
 * start one short sleep late, and ex->trust decreases.
 *
 * A kick with enough work for two threads ends a short sleep: this is a call.  If calls follow each
 * other closely, the thread stays awake between them.  After calls that found no work left, calls
 * are skipped, because other threads then need the CPUs.
 */
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>

#include "usrbio/proto/spin.h"
#include "usrbio/server/executor.h"

/* First short sleep, ns.  Each further one is twice as long. */
#define PAUSE_NS (200 * UINT64_C(1000))
#define PAUSE_DOUBLINGS 3u /* maximum doublings of the short sleep */
#define TRUST_SLEEP 8u     /* least trust for short sleeps */
#define TRUST_LOST 4u      /* trust lost after a short sleep that delayed entries */

#define CALL_NS 60000u /* least work that is worth a call, ns */
#define UP_NS 50000u   /* time for which the thread stays awake for the next call, ns */
#define CREDIT_MAX 4u
#define SKIP_MAX 255u
#define CONTENTION_NS (20 * NSEC_PER_MSEC) /* interval between two measurements of contention */

/* History of the thread's sleeps and calls. */
struct rest {
	bool slept_briefly; /* the last sleep was short */
	bool rang;          /* the descriptor of a queue ended the last sleep */
	uint64_t since;     /* time at which the work ended, ns; 0: there is work */
	/* number of recent calls that came less than 2 * UP_NS after the work ended */
	unsigned credit;
	unsigned in_vain; /* grows with each call that found no work; as many calls are skipped */
	bool contended;   /* other threads need the CPUs */
	uint64_t looked;  /* time of the last measurement of contention, ns */
};

/* ------------------------------------------------------------------- kicks */

static void rest_wake(struct executor *ex)
{
	int saved = errno;

	(void)eventfd_write(ex->efd, 1);
	errno = saved;
}

void executor_wake(struct executor *ex)
{
	atomic_store(&ex->state, EXECUTOR_AWAKE);
	rest_wake(ex);
}

/* Return true if there is enough work for a client and the thread.  The client's markers are not
 * checked: this is a hint. */
static bool is_much(const struct executor *ex, const struct server_ring *r)
{
	const struct usrbio_ring *at = &r->shm.at;
	uint64_t nr;

	if (ex->alone || r->shm.guard)
		return false;
	nr = usrbio_ring_held(at, (uint32_t)usrbio_marker(at->sq_head),
			      (uint32_t)usrbio_marker(at->sq_tail));
	return nr > 1 && nr * atomic_load_explicit(&r->entry_ns, memory_order_relaxed) >= CALL_NS;
}

static void rest_call(struct executor *ex)
{
	unsigned skip;

	if (atomic_load_explicit(&ex->called, memory_order_relaxed))
		return;
	skip = atomic_load_explicit(&ex->skip_calls, memory_order_relaxed);
	if (skip) {
		atomic_store_explicit(&ex->skip_calls, skip - 1, memory_order_relaxed);
		return;
	}
	/* Set called before checking state: lie_down() announces a short sleep in state before it
	 * checks called. */
	atomic_store(&ex->called, true);
	if (atomic_load(&ex->state) == EXECUTOR_SLEEPS_BRIEFLY &&
	    atomic_exchange(&ex->state, EXECUTOR_AWAKE) == EXECUTOR_SLEEPS_BRIEFLY)
		rest_wake(ex);
}

void executor_kick(struct executor *ex, struct server_ring *r)
{
	/* Pairs with executor_take_kicked(), which clears kicked before it reads the ring's
	 * markers: either it finds the client's entries, or this thread finds kicked cleared. */
	if (!atomic_load(&r->kicked) && !atomic_exchange(&r->kicked, true)) {
		struct server_ring *head = atomic_load(&ex->kicked);

		do
			r->next_kicked = head;
		while (!atomic_compare_exchange_weak(&ex->kicked, &head, r));
	}
	/* Pairs with lie_down(), which checks ex->kicked after it has announced the sleep. */
	if (atomic_load(&ex->state) == EXECUTOR_SLEEPS) {
		if (atomic_exchange(&ex->state, EXECUTOR_AWAKE) == EXECUTOR_SLEEPS)
			rest_wake(ex);
	} else if (is_much(ex, r)) {
		rest_call(ex);
	}
}

/* -------------------------------------------------------------------- lie */

static bool any_prepared(const struct executor *ex)
{
	struct list *e;

	list_for_each (e, &ex->runners)
		if (list_entry(e, struct runner, link)->nr_prepared)
			return true;
	return false;
}

/* Return the time at which the thread must check again even if nothing wakes it, ns. */
static uint64_t next_look(const struct executor *ex)
{
	uint64_t at = BATCH_NEVER;
	struct list *e;

	list_for_each (e, &ex->timed)
		at = MIN(at, list_entry(e, struct server_ring, timed)->batch.due);
	/* Requests in flight wake the thread when they end; without any, retry by time. */
	if ((any_prepared(ex) || !list_empty(&ex->stalled)) && runners_are_idle(ex))
		at = MIN(at, now_ns() + RETRY_NS);
	return at;
}

/* Announce that the thread sleeps.  Return false if work came before that. */
static bool lie_down(struct executor *ex)
{
	bool pause;

	/* A client left work while this thread did not hold the lock. */
	if (atomic_load(&ex->left))
		return false;
	pause = ex->trust >= TRUST_SLEEP && atomic_exchange(&ex->came, false);
	ex->wake_at = next_look(ex);
	atomic_store(&ex->state, pause ? EXECUTOR_SLEEPS_BRIEFLY : EXECUTOR_SLEEPS);
	if (atomic_load(&ex->kicked) || atomic_load(&ex->called)) {
		atomic_store(&ex->state, EXECUTOR_AWAKE);
		return false;
	}
	runners_arm(ex);
	return true;
}

/* Sleep until a wake-up or that time.  Return false after the time; *ret_rang: a queue's
 * descriptor was readable. */
static bool sleep_until(struct executor *ex, uint64_t at, bool *ret_rang)
{
	struct pollfd fd = { ex->epfd, POLLIN, 0 };
	struct timespec ts, *tsp = NULL;
	eventfd_t v;
	int n;

	if (at != BATCH_NEVER) {
		uint64_t now = now_ns(), left = at > now ? at - now : 0;

		ts.tv_sec = (time_t)(left / NSEC_PER_SEC);
		ts.tv_nsec = (long)(left % NSEC_PER_SEC);
		tsp = &ts;
	}
	n = ppoll(&fd, 1, tsp, NULL);
	*ret_rang = n > 0 && eventfd_read(ex->efd, &v) < 0;
	return n != 0;
}

/*
 * Sleep until there is work or clients stop helping.  Checks need no lock, because clients hold it
 * most of the time.  Return true if a queue's descriptor woke the thread.
 */
static bool lie(struct executor *ex, uint64_t wake_at)
{
	bool rang = false;
	unsigned pauses = 0;
	uint64_t at;

	do {
		at = wake_at;
		if (atomic_load(&ex->state) == EXECUTOR_SLEEPS_BRIEFLY)
			at = MIN(at, now_ns() + (PAUSE_NS << pauses));
		pauses = MIN(pauses + 1, PAUSE_DOUBLINGS);
	} while (!sleep_until(ex, at, &rang) && at < wake_at && !atomic_load(&ex->kicked) &&
		 !atomic_load(&ex->left) && atomic_exchange(&ex->came, false));
	return rang;
}

/* ---------------------------------------------------------------- stay up */

static bool is_stirred(const struct executor *ex, bool trusts)
{
	return atomic_load_explicit(&ex->called, memory_order_relaxed) ||
	       atomic_load_explicit(&ex->left, memory_order_relaxed) ||
	       atomic_load_explicit(&ex->stop, memory_order_relaxed) ||
	       (!trusts && atomic_load_explicit(&ex->kicked, memory_order_relaxed));
}

/* Poll for the next call for UP_NS.  Return false if none came. */
static bool stay_up(const struct executor *ex, bool trusts)
{
	uint64_t until = now_ns() + UP_NS;

	do {
		if (is_stirred(ex, trusts))
			return true;
	} while (now_ns() < until);
	return false;
}

/* Judge a call made at that time: the call was useful if the thread still found requests to start
 * (took). */
static void judge_call(struct executor *ex, struct rest *rest, uint64_t at, bool took)
{
	bool soon = !rest->since || at - rest->since < 2 * (uint64_t)UP_NS;

	if (at - rest->looked >= CONTENTION_NS) {
		rest->looked = at;
		rest->contended = spin_is_contended();
	}
	if (rest->contended) {
		rest->credit = 0;
		rest->in_vain = SKIP_MAX;
	} else if (took) {
		rest->credit = soon ? MIN(rest->credit + 1, CREDIT_MAX) : 0;
		rest->in_vain /= 2;
	} else {
		rest->credit /= 2;
		rest->in_vain = MIN(rest->in_vain * 2 + 1, SKIP_MAX);
	}
	atomic_store_explicit(&ex->skip_calls, rest->in_vain, memory_order_relaxed);
}

/* ------------------------------------------------------------------ thread */

/* Clear a late event of a queue without requests in flight: passes do not reap it, so its
 * descriptor would stay readable. */
static void hush(struct executor *ex)
{
	struct pst_done none;
	struct list *e;

	list_for_each (e, &ex->runners) {
		struct runner *h = list_entry(e, struct runner, link);

		if (!h->taken && !h->nr_inflight)
			(void)pst_queue_reap(h->q, &none, 0, 1, 0);
	}
}

/* Check everything once.  Return false if there is nothing to do. */
static bool rest_look(struct executor *ex, struct rest *rest)
{
	struct runner *h = &ex->runner;
	bool called = atomic_exchange(&ex->called, false), did;
	uint64_t taken = h->nr_taken, started = h->nr_started, at = called ? now_ns() : 0;

	atomic_store(&ex->left, false);
	if (rest->rang)
		hush(ex);
	if (runners_are_idle(ex))
		executor_take_stalled(ex);
	ex->shares |= called;
	did = executor_work(ex);
	ex->shares &= did;
	if (called)
		judge_call(ex, rest, at, h->nr_started > started);
	else if (did && rest->slept_briefly && h->nr_taken > taken)
		ex->trust -= MIN(ex->trust, TRUST_LOST);
	if (did)
		rest->since = 0;
	return did;
}

void *executor_main(void *arg)
{
	struct executor *ex = arg;
	struct rest rest = { 0 };

	while (!atomic_load(&ex->stop)) {
		bool did, lies = false, trusts;
		uint64_t wake_at;

		executor_enter(ex);
		did = rest_look(ex, &rest);
		trusts = ex->trust >= TRUST_SLEEP;
		if (!did && !rest.since)
			rest.since = now_ns();
		if (!did && !rest.credit)
			lies = lie_down(ex);
		wake_at = ex->wake_at;
		executor_leave(ex);
		rest.rang = false;
		rest.slept_briefly = atomic_load(&ex->state) == EXECUTOR_SLEEPS_BRIEFLY;
		if (lies)
			rest.rang = lie(ex, wake_at);
		else if (did)
			while (atomic_load(&ex->wanted))
				(void)sched_yield();
		else if (rest.credit && !stay_up(ex, trusts))
			rest.credit = 0;
		atomic_store(&ex->state, EXECUTOR_AWAKE);
	}
	return NULL;
}
