/* SPDX-License-Identifier: MIT */
/* The threads of an engine.  Each has an I/O context for files and a stream of the device. */
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include "base/err.h"
#include "base/log.h"
#include "base/thread.h"
#include "topo/numa.h"
#include "core/carry/check.h"
#include "core/carry/copier.h"
#include "core/carry/job.h"
#include "core/carry/worker.h"
#include "core/queue/queue.h"
#include "core/sched/contention.h"
#include "core/sched/engine.h"
#include "core/sched/turns.h"
#include "core/sched/wake.h"
#include "core/stream/order.h"
#include "core/ways/path.h"

#define SPIN_MAX MIB(1) /* maximum bytes of a copy for which spinning pays */
/* ns to spin, counted from the start of a copy; longer than a short copy takes. */
#define SPIN_NS 60000u
#define SPIN_COLD KIB(256) /* replaces SPIN_MAX for bytes that are in no CPU's cache */
#define SLOW 16u           /* bytes that even a slow device copies per ns */
#define POLL_NS 20000u     /* ns between two polls if no event reports an end */
/* If a copy is late, the pause is its lateness divided by this, at most PAUSE_NS. */
#define LATE_PART 16u
#define ENOUGH 4u /* with this many awake workers, the copier's batches are polled often enough */
/* Pause, in ns, of a worker that only watches batches while ENOUGH other workers are awake. */
#define WATCH_NS 100000u
#define SPARE_NS 10000000u /* ns after which a spare worker checks whether the others hang */

/*
 * Spin for a short copy on a stream without events: the copy ends sooner than a sleep would.  The
 * time limit begins when the copy starts, so that a worker does not spin again after each sleep for
 * a copy that hangs.
 */
static bool spin_for_copy(struct worker *w)
{
	const struct job *j;
	uint64_t end = w->copying_since + SPIN_NS;

	if (list_empty(&w->copying))
		return false;
	j = list_first(&w->copying, struct job, link);
	if (j->len > SPIN_MAX)
		return false;
	while (now_ns() < end)
		if (mem_poll(w->stream, j->ticket))
			return true;
	return false;
}

/* Return the time, in ns, when the first copy of the worker's stream should have ended. */
static uint64_t copy_due(const struct worker *w)
{
	uint64_t len = 0;

	if (!list_empty(&w->copying))
		len = list_first(&w->copying, struct job, link)->len;
	return w->copying_since + SPIN_NS + len / SLOW;
}

/* Return the time, in ns, when the copier's batches should have made progress. */
static uint64_t batch_due(const struct copier *c)
{
	return atomic_load(&c->moved_at) + SPIN_NS + atomic_load(&c->nr_bytes) / SLOW;
}

static bool enough_are_awake(const struct engine *e)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < e->nr_workers; i++)
		nr += e->workers[i].begun && !e->workers[i].sleeping;
	return nr >= ENOUGH;
}

/* Return true if spinning is worthwhile.  While a CPU sleeps, the device copies bytes in that CPU's
 * cache more slowly.  Bytes that a disk wrote to memory are in no cache, so spin for them only if
 * they are few. */
static bool worth_spinning(const struct worker *w, bool watches)
{
	const struct copier *c = &w->engine->copier;

	/* Sleep: the pool will create slots and wake this worker.  Until then some copies may be
	 * slower. */
	if (w->gets_slots && !watches && enough_are_awake(w->engine))
		return false;
	watches = watches && !enough_are_awake(w->engine);
	if (watches ? atomic_load(&c->nr_warm) : atomic_load(&w->nr_warm))
		return true;
	return (watches ? atomic_load(&c->nr) : atomic_load(&w->nr_copying)) &&
	       atomic_load(&c->nr_bytes) <= SPIN_COLD;
}

/*
 * Spin for the copier's batches, until there is work for the worker.  If a batch's bytes are in the
 * cache of a CPU that sleeps, the device reads them at a fraction of its rate, so all workers that
 * filled its slots stay awake.  If other threads want the CPU, they get it (sched_yield()), and the
 * CPU does not sleep either.  No worker spins for batches that are late.
 */
static bool spin_for_batch(struct worker *w, bool watches)
{
	uint64_t end = batch_due(&w->engine->copier);

	/* Do not spin: file operations would not be polled meanwhile. */
	if (w->ctx->nr_ops || io_others_nr_ops(&w->others))
		return false;
	while (now_ns() < end && worth_spinning(w, watches)) {
		if (copier_progress(w) || !w->sleeping)
			return true;
		(void)sched_yield();
	}
	return false;
}

/* Return the ns until e->look, when the worker must check conditions that cause no event;
 * UINT64_MAX: never. */
static uint64_t look_wait(struct engine *e)
{
	uint64_t at, now;

	pthread_mutex_lock(&e->lock);
	at = e->look;
	pthread_mutex_unlock(&e->lock);
	if (likely(at == UINT64_MAX))
		return at;
	now = now_ns();
	return at - MIN(now, at);
}

/* Return ns, or a longer pause if the awaited copy is late: a copy that hangs must not keep the
 * worker busy. */
static uint64_t late_wait(uint64_t ns, uint64_t due)
{
	uint64_t now = now_ns();

	return now > due ? MAX(ns, MIN((now - due) / LATE_PART, PAUSE_NS)) : ns;
}

/* Return the ns until the worker polls copies without events: those of its stream (copying), or of
 * the copier (watches). */
static uint64_t worker_poll_wait(const struct worker *w, bool copying, bool watches)
{
	uint64_t ns = UINT64_MAX;

	if (copying)
		ns = late_wait(POLL_NS, copy_due(w));
	if (watches)
		ns = MIN(ns, late_wait(enough_are_awake(w->engine) ? WATCH_NS : POLL_NS,
				       batch_due(&w->engine->copier)));
	return ns;
}

/* Sleep until the I/O context, the streams or a new request need this worker. */
static void worker_sleep(struct worker *w, bool watches)
{
	struct engine *e = w->engine;
	int sfd = w->stream ? mem_stream_fd(w->stream) : -1;
	int cfd = watches ? mem_stream_fd(e->copier.stream) : -1;
	struct pollfd pfd[3] = { { .fd = w->efd, .events = POLLIN },
				 { .fd = sfd, .events = POLLIN },
				 { .fd = cfd, .events = POLLIN } };
	bool copying = sfd < 0 && (!list_empty(&w->copying) || !list_empty(&w->to_copy));
	uint64_t ns = worker_poll_wait(w, copying, watches && cfd < 0);
	struct timespec pause;
	eventfd_t v;

	if (sfd < 0 && spin_for_copy(w))
		return;
	if (e->copier.stream && mem_stream_fd(e->copier.stream) < 0 && spin_for_batch(w, watches))
		return;
	if (w->flush_again || checks_run(w))
		ns = POLL_NS;
	/* No event reports the end of another thread's write, or a stopped request. */
	if (w->mover.parked || w->mover.blocked)
		ns = MIN(ns, PAUSE_NS);
	if (w->spare)
		ns = MIN(ns, SPARE_NS);
	ns = MIN(ns, order_wait(w));
	ns = MIN(ns, look_wait(e));
	pause.tv_sec = (time_t)(ns / NSEC_PER_SEC);
	pause.tv_nsec = (long)(ns % NSEC_PER_SEC);
	(void)e->backend->arm(w->ctx, w->efd, true);
	io_others_arm(&w->others, w->efd, true);
	(void)ppoll(pfd, ARRAY_SIZE(pfd), ns == UINT64_MAX ? NULL : &pause, NULL);
	(void)e->backend->arm(w->ctx, w->efd, false);
	io_others_arm(&w->others, w->efd, false);
	(void)eventfd_read(w->efd, &v);
	if (sfd >= 0)
		(void)eventfd_read(sfd, &v);
}

/*
 * Prepare to sleep: a new request from now on writes efd.  The caller must look once more for
 * earlier requests.  If the copier has batches, one sleeping worker waits for them (*ret_watches).
 * Return false if the engine ends.
 */
static bool worker_sleep_begin(struct worker *w, bool *ret_watches)
{
	struct engine *e = w->engine;
	bool stop;

	pthread_mutex_lock(&e->lock);
	stop = e->stop;
	w->sleeping = true;
	w->nr_row = 0;
	if (!e->watcher && atomic_load(&e->copier.nr))
		e->watcher = w;
	*ret_watches = e->watcher == w;
	w->spare = worker_is_spare(w);
	w->gets_slots = e->pool.growing && !list_empty(&e->active);
	pthread_mutex_unlock(&e->lock);
	return !stop;
}

static void sleep_end(struct worker *w)
{
	struct engine *e = w->engine;

	pthread_mutex_lock(&e->lock);
	w->sleeping = false;
	if (e->watcher == w)
		e->watcher = NULL;
	order_awake(w);
	pthread_mutex_unlock(&e->lock);
}

int worker_ctx(struct worker *w)
{
	struct engine *e = w->engine;
	int r = io_ctx_new(e->backend, CTX_DEPTH, &w->ctx);

	if (r == 0)
		r = e->backend->arm(w->ctx, w->efd, true); /* arm() cannot fail later if this first
							    * call succeeds */
	w->mover = (struct mover){
		.backend = e->backend, .ctx = w->ctx, .others = &w->others, .efd = w->efd
	};
	return r;
}

/* Make a worker ready.  An engine cannot work without its first worker, but can without the
 * others. */
static bool worker_begin(struct worker *w)
{
	struct engine *e = w->engine;
	int r = worker_ctx(w);

	if (w == e->workers) {
		pthread_mutex_lock(&e->lock);
		e->begun = true;
		e->begin_err = r;
		(void)snprintf(e->begin_text, sizeof(e->begin_text), "%s", r < 0 ? err_text() : "");
		(void)pthread_cond_signal(&e->has_begun);
		pthread_mutex_unlock(&e->lock);
	} else if (r < 0) {
		log_warn("%s %u: an engine has a worker less: %s", e->ops->name, e->device,
			 err_text());
	}
	return r == 0;
}

/* --------------------------------------------------------------- progress */

/* Threads have replaced a worker's io_uring: plan later requests accordingly. */
static _cold_ void ring_lost(struct worker *w)
{
	int none = 0;

	if (atomic_compare_exchange_strong(&w->engine->ring_err, &none, w->ctx->ring_err))
		path_changed();
}

/* Cancel the operations of jobs whose requests were stopped. */
static _cold_ void cancel_lost(struct worker *w)
{
	pthread_mutex_lock(&w->engine->lock);
	atomic_store(&w->has_lost, false);
	while (!list_empty(&w->lost)) {
		struct job *j = list_first(&w->lost, struct job, of_lost);

		list_del(&j->of_lost);
		for (unsigned i = 0; i < j->nr_parts; i++) {
			struct io_op *op = &j->parts[i].op;
			struct io_ctx *ctx;

			if (!j->parts[i].in_flight)
				continue;
			ctx = io_ctx_for(w->ctx, &w->others, op);
			ctx->ops->cancel(ctx, op);
		}
	}
	pthread_mutex_unlock(&w->engine->lock);
}

bool worker_progress(struct worker *w)
{
	bool moved = mover_reap(&w->mover) > 0;

	if (unlikely(atomic_load(&w->has_lost)))
		cancel_lost(w);
	if (w->feeds) {
		moved |= jobs_progress_fed(w);
	} else {
		moved |= jobs_progress(w);
		moved |= copier_progress(w);
		moved |= checks_progress(w);
	}
	if (unlikely(w->mover.parked)) {
		/* NULL: leave dropped objects to their queues, so that a close(2) that hangs does
		 * not block the worker. */
		registry_progress(NULL);
		moved |= mover_unpark(&w->mover);
	}
	if (unlikely(w->mover.blocked))
		mover_unblock(&w->mover);
	w->flush_again = w->ctx->nr_ops && w->engine->backend->flush(w->ctx) < 0;
	if (unlikely(w->ctx->ring_err))
		ring_lost(w);
	if (io_others_flush(&w->others) < 0)
		w->flush_again = true;
	return moved;
}

/* ------------------------------------------------------------------ thread */

static void begin_job(struct worker *w, struct job *j)
{
	contention_check(&w->engine->contention, &w->look);
	job_start(w, j);
}

void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct engine *e = w->engine;
	char name[16];
	bool go_on;

	(void)snprintf(name, sizeof(name), "pst-%.6s-%u", e->ops->name, e->device);
	(void)pthread_setname_np(pthread_self(), name);
	numa_stay(e->node);
	/* Avoid the 50 us by which the kernel may lengthen each sleep: sleeps are short. */
	(void)prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
	go_on = worker_begin(w);
	w->begun = go_on;
	while (go_on) {
		bool moved = order_watch(e), watches;
		struct job *j;

		/* Start one job at a time, so that its copies run while the next one is read. */
		j = engine_next(w);
		if (j)
			begin_job(w, j);
		moved |= worker_progress(w) || j;
		if (moved)
			continue;
		go_on = worker_sleep_begin(w, &watches);
		if (go_on) {
			struct job *late = engine_next(w);

			if (late)
				begin_job(w, late);
			else if (likely(!atomic_load(&w->has_lost) &&
					(!atomic_load(&e->nr_checks) || checks_run(w))))
				worker_sleep(w, watches);
		}
		sleep_end(w);
	}
	return NULL;
}

int worker_init(struct worker *w, struct engine *e)
{
	w->engine = e;
	w->clogged = true;
	own_files_init(&w->files);
	w->efd = -1;
	list_init(&w->lost);
	list_init(&w->to_copy);
	list_init(&w->copying);
	w->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->efd < 0)
		return err_set(errno, "no descriptor for a worker: %s", err_name(errno));
	return 0;
}

int worker_start(struct worker *w, void *(*run)(void *arg))
{
	int r = thread_start(&w->thread, run, w);

	w->started = r == 0;
	return r;
}

void worker_done(struct worker *w)
{
	if (w->started) {
		(void)eventfd_write(w->efd, 1);
		(void)pthread_join(w->thread, NULL);
	}
	checks_done(w);
	if (w->stream)
		mem_stream_free(w->stream);
	own_files_done(&w->files);
	io_others_free(&w->others);
	if (w->ctx)
		io_ctx_free(w->ctx);
	closep(&w->efd);
}
