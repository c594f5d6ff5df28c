/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "base/cancel.h"
#include "base/work.h"
#include "core/queue/clock.h"
#include "core/queue/idle.h"

#define IDLE_MAX 4u
#define IDLE_NS NSEC_PER_SEC

/* Idle queues, the longest idle first.  idle_take() takes the last one. */
static struct {
	pthread_mutex_t lock; /* taken before the clock's lock */
	struct {
		struct pst_queue *q;
		uint64_t since;
	} of[IDLE_MAX];
	unsigned nr;
	bool watched;       /* the alarm is on the clock's list */
	unsigned nr_ending; /* queues that were taken out and are not freed yet */
	pthread_cond_t ended;
	struct alarm alarm;
	struct work end;
} idle = { .lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER };

/* Take the queue that has been idle longest.  Return NULL if even this queue became idle after
 * @before. */
static struct pst_queue *oldest(uint64_t before)
{
	struct pst_queue *q = NULL;

	pthread_mutex_lock(&idle.lock);
	if (idle.nr && idle.of[0].since <= before) {
		q = idle.of[0].q;
		idle.nr--;
		idle.nr_ending++;
		memmove(&idle.of[0], &idle.of[1], idle.nr * sizeof(idle.of[0]));
	}
	if (!q && idle.nr)
		clock_set(&idle.alarm, idle.of[0].since + IDLE_NS);
	if (!idle.nr) {
		clock_del(&idle.alarm);
		idle.watched = false;
	}
	pthread_mutex_unlock(&idle.lock);
	return q;
}

/* Free the queues that have been idle since @before. */
static void idle_end(uint64_t before)
{
	struct pst_queue *q;

	while ((q = oldest(before))) {
		queue_free(q);
		pthread_mutex_lock(&idle.lock);
		idle.nr_ending--;
		(void)pthread_cond_broadcast(&idle.ended);
		pthread_mutex_unlock(&idle.lock);
	}
}

static void end_expired(struct work *w)
{
	(void)w;
	idle_end(now_ns() - IDLE_NS);
}

static void ring(struct alarm *a)
{
	/* Ignore an error: if no thread can start, the queues stay until the next call that frees
	 * idle queues. */
	(void)a;
	(void)work_queue(&idle.end, WORK_LOW);
}

static void idle_init(void)
{
	alarm_init(&idle.alarm, ring);
	work_init(&idle.end, end_expired);
}

static void init_once(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, idle_init);
}

void idle_free(void)
{
	NO_CANCEL();
	init_once();
	idle_end(UINT64_MAX);
	pthread_mutex_lock(&idle.lock);
	while (idle.nr_ending)
		(void)pthread_cond_wait(&idle.ended, &idle.lock);
	pthread_mutex_unlock(&idle.lock);
}

struct pst_queue *idle_take_used(void)
{
	struct pst_queue *q = NULL;

	pthread_mutex_lock(&idle.lock);
	if (idle.nr)
		q = idle.of[--idle.nr].q;
	pthread_mutex_unlock(&idle.lock);
	return q;
}

int idle_take(struct pst_queue **ret)
{
	const struct pst_queue_opts defaults = { .sz = sizeof(defaults) };

	*ret = idle_take_used();
	return *ret ? 0 : queue_new(&defaults, ret);
}

/* Return true if the queue has no request that is prepared, in flight or to be reaped. */
static bool is_idle(const struct pst_queue *q)
{
	return !q->nr_prepared && !q->nr_inflight && !q->nr_done && !q->nr_busy;
}

/* Arm the alarm that frees queues which are idle for too long; false if there is no clock
 * thread. */
static bool is_watched(void)
{
	if (!idle.watched)
		idle.watched = clock_add(&idle.alarm) == 0;
	return idle.watched;
}

void idle_give(struct pst_queue *q)
{
	if (!q)
		return;
	init_once();
	pthread_mutex_lock(&idle.lock);
	if (is_idle(q) && idle.nr < IDLE_MAX && is_watched()) {
		idle.of[idle.nr].q = q;
		idle.of[idle.nr++].since = now_ns();
		clock_set(&idle.alarm, idle.of[0].since + IDLE_NS);
		q = NULL;
	}
	pthread_mutex_unlock(&idle.lock);
	if (q)
		queue_free(q);
}
