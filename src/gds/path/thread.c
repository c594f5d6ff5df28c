// SPDX-License-Identifier: MIT
/*
 * Threads that call cuFile and may never come back.  There is one for each piece of work that
 * runs, made when none is idle, and it ends when there was nothing to do for some time.  How
 * many transfers run at a time is decided by who starts them (move.c).
 */
#include "base/err.h"
#include "base/thread.h"
#include "gds/path/gds.h"

#define THREADS_MAX 64u
#define IDLE_NS (200 * NSEC_PER_MSEC)

static struct {
	pthread_mutex_t lock;
	pthread_cond_t wake; /* an idle thread */
	pthread_cond_t done; /* who waits for an end */
	struct list waiting;
	unsigned nr_waiting, nr_idle, nr;
} th = { .lock = PTHREAD_MUTEX_INITIALIZER, .waiting = LIST_INIT(th.waiting) };

static void init(void)
{
	pthread_condattr_t attr;

	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&th.wake, &attr);
	(void)pthread_cond_init(&th.done, &attr);
	(void)pthread_condattr_destroy(&attr);
}

/* Until then or a wake-up.  False when the time is over. */
static bool wait_until(pthread_cond_t *cond, uint64_t ns)
{
	struct timespec ts = { .tv_sec = (time_t)(ns / NSEC_PER_SEC),
			       .tv_nsec = (long)(ns % NSEC_PER_SEC) };

	return pthread_cond_timedwait(cond, &th.lock, &ts) != ETIMEDOUT;
}

/* The next piece of work; NULL when there was none for some time. */
static struct gds_work *take(void)
{
	uint64_t until = now_ns() + IDLE_NS;
	struct gds_work *w;

	th.nr_idle++;
	while (list_empty(&th.waiting) && wait_until(&th.wake, until))
		;
	th.nr_idle--;
	if (list_empty(&th.waiting))
		return NULL;
	w = list_first(&th.waiting, struct gds_work, link);
	list_del(&w->link);
	th.nr_waiting--;
	return w;
}

static void *thread_main(void *arg)
{
	struct gds_work *w;

	(void)arg;
	(void)pthread_setname_np(pthread_self(), "pst-gds");
	pthread_mutex_lock(&th.lock);
	while ((w = take())) {
		pthread_mutex_unlock(&th.lock);
		w->run(w);
		pthread_mutex_lock(&th.lock);
	}
	th.nr--;
	pthread_mutex_unlock(&th.lock);
	return NULL;
}

/* Under the lock: one more thread. */
static int thread_add(void)
{
	pthread_t thread;
	int r;

	if (th.nr == THREADS_MAX)
		return err_set(EAGAIN, "%u threads wait for cuFile, which hangs", th.nr);
	r = thread_start(&thread, thread_main, NULL);
	if (r < 0)
		return r;
	(void)pthread_detach(thread);
	th.nr++;
	return 0;
}

int gds_work_start(struct gds_work *w, void (*run)(struct gds_work *w))
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int r = 0;

	(void)pthread_once(&once, init);
	w->run = run;
	pthread_mutex_lock(&th.lock);
	/* Those that were woken and have not come yet have their work waiting. */
	if (th.nr_waiting >= th.nr_idle)
		r = thread_add();
	if (r == 0) {
		list_add_tail(&th.waiting, &w->link);
		th.nr_waiting++;
		pthread_cond_signal(&th.wake);
	}
	pthread_mutex_unlock(&th.lock);
	return r;
}

/* Belongs to who waits and who works; the last one frees it. */
struct waited {
	struct gds_work work;
	void (*fn)(void *arg);
	void *arg;
	bool done, left;
};

static void waited_run(struct gds_work *work)
{
	struct waited *w = container_of(work, struct waited, work);
	bool left;

	w->fn(w->arg);
	pthread_mutex_lock(&th.lock);
	w->done = true;
	left = w->left;
	pthread_cond_broadcast(&th.done);
	pthread_mutex_unlock(&th.lock);
	if (left)
		free(w);
}

int gds_work_wait(void (*fn)(void *arg), void *arg)
{
	struct waited *w = calloc(1, sizeof(*w));
	uint64_t until = now_ns() + GDS_END_NS;
	int r;

	if (!w)
		return err_set(EAGAIN, "out of memory");
	w->fn = fn;
	w->arg = arg;
	r = gds_work_start(&w->work, waited_run);
	if (r < 0) {
		free(w);
		return r;
	}
	pthread_mutex_lock(&th.lock);
	while (!w->done && wait_until(&th.done, until))
		;
	w->left = !w->done;
	r = w->left ? -ETIMEDOUT : 0;
	pthread_mutex_unlock(&th.lock);
	if (r == 0)
		free(w);
	return r;
}
