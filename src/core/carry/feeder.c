/* SPDX-License-Identifier: MIT */
/*
 * Feeders: threads that read files for reads that a stream waits for (feed.c).  Feeders never call
 * the driver.
 */
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include "base/err.h"
#include "base/log.h"
#include "base/work.h"
#include "topo/numa.h"
#include "core/carry/feeder.h"
#include "core/carry/job.h"
#include "core/carry/worker.h"
#include "core/queue/queue.h"
#include "core/sched/engine.h"
#include "core/sched/pool.h"
#include "core/sched/share.h"
#include "core/sched/turns.h"

#define SPIN_NS 60000u /* ns to spin for a copy after it was sent */
/* After SPIN_NS, the pause between two polls is the time since the copy was sent, divided by
 * this. */
#define POLL_PART 16u
#define POLL_MIN_NS 20000u  /* shortest pause, ns */
#define POLL_MAX_NS 500000u /* longest pause, ns */

/* Return the ns until the thread polls sent copies again; 0: spin; UINT64_MAX: no copies are
 * sent. */
static uint64_t feeder_poll_wait(const struct worker *w)
{
	uint64_t now, age;

	if (list_empty(&w->copying))
		return UINT64_MAX;
	now = now_ns();
	/* The copy that was sent last is at the end of the list. */
	age = now - list_entry(w->copying.prev, struct job, link)->sent_at;
	if (age < SPIN_NS)
		return 0;
	return MIN(MAX(age / POLL_PART, (uint64_t)POLL_MIN_NS), (uint64_t)POLL_MAX_NS);
}

/* Prepare to sleep: a read that needs a thread from now on writes efd.  The caller must look once
 * more for earlier reads.  Return false if the engine ends. */
static bool sleep_begin(struct worker *w)
{
	struct engine *e = w->engine;
	bool stop;

	pthread_mutex_lock(&e->lock);
	stop = e->stop;
	w->sleeping = true;
	pthread_mutex_unlock(&e->lock);
	return !stop;
}

static void feeder_sleep(struct worker *w)
{
	struct engine *e = w->engine;
	struct pollfd pfd = { .fd = w->efd, .events = POLLIN };
	uint64_t ns = feeder_poll_wait(w);
	struct timespec pause;
	eventfd_t v;

	if (!ns) {
		(void)sched_yield();
		return;
	}
	if (w->flush_again)
		ns = MIN(ns, POLL_MIN_NS);
	if (w->mover.parked || w->mover.blocked)
		ns = MIN(ns, PAUSE_NS);
	pause.tv_sec = (time_t)(ns / NSEC_PER_SEC);
	pause.tv_nsec = (long)(ns % NSEC_PER_SEC);
	(void)e->backend->arm(w->ctx, w->efd, true);
	io_others_arm(&w->others, w->efd, true);
	(void)ppoll(&pfd, 1, ns == UINT64_MAX ? NULL : &pause, NULL);
	(void)e->backend->arm(w->ctx, w->efd, false);
	io_others_arm(&w->others, w->efd, false);
	(void)eventfd_read(w->efd, &v);
}

static void *feeder_main(void *arg)
{
	struct worker *w = arg;
	struct engine *e = w->engine;
	char name[16];
	bool go_on;

	(void)snprintf(name, sizeof(name), "pst-feed-%u", e->device);
	(void)pthread_setname_np(pthread_self(), name);
	numa_stay(e->node);
	(void)prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0); /* the thread makes short sleeps, see
						        * worker_main() */
	go_on = worker_ctx(w) == 0;
	if (!go_on)
		log_warn("%s %u: a thread less for reads that streams wait for: %s, ignoring",
			 e->ops->name, e->device, err_text());
	w->begun = go_on;
	while (go_on) {
		struct job *j = engine_next_fed(w);

		if (j)
			job_start(w, j);
		if (worker_progress(w) || j)
			continue;
		go_on = sleep_begin(w);
		j = go_on ? engine_next_fed(w) : NULL;
		if (j)
			job_start(w, j);
		else if (go_on && likely(!atomic_load(&w->has_lost)))
			feeder_sleep(w);
		w->sleeping = false;
	}
	return NULL;
}

/* ------------------------------------------------------------- start and end */

static int feeders_start(struct engine *e)
{
	unsigned nr = MIN(e->nr_usual, FEEDERS), started = 0;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < nr; i++) {
		struct worker *w = &e->feeders[i];

		if (!w->engine)
			r = worker_init(w, e);
		w->feeds = true;
		if (r == 0 && !w->started)
			r = worker_start(w, feeder_main);
		started += r == 0;
	}
	pthread_mutex_lock(&e->lock);
	e->nr_feeders = started;
	pthread_mutex_unlock(&e->lock);
	if (started && r < 0)
		log_warn("%s %u: %u threads less for reads that streams wait for: %s, ignoring",
			 e->ops->name, e->device, nr - started, err_text());
	return started ? 0 : r;
}

int feed_prepare(struct share *s)
{
	struct engine *e = s->engine;
	int r = engine_clock(e);

	if (r == 0)
		r = pool_feed(e);
	if (r < 0)
		return r;
	pthread_mutex_lock(&e->feeders_lock);
	if (!e->has_feeders)
		r = feeders_start(e);
	e->has_feeders |= r == 0;
	pthread_mutex_unlock(&e->feeders_lock);
	return r;
}

/* End the feeders.  The engine has no requests, and e->stop is set. */
void feeders_done(struct engine *e)
{
	work_end(&e->pool.feed_work); /* end feed_work first, because it wakes feeders */
	for (unsigned i = 0; i < FEEDERS; i++)
		if (e->feeders[i].engine)
			worker_done(&e->feeders[i]);
	(void)pthread_mutex_destroy(&e->feeders_lock);
}
