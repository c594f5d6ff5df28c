/* SPDX-License-Identifier: MIT */
/*
 * The clock: one thread per process that runs alarms when they are due.
 *
 * If a queue's owner sleeps in epoll, the clock writes the queue's eventfd when a deadline passes,
 * and the owner then ends the request in pst_queue_reap(). For engines, the clock releases streams
 * whose read has passed its deadline (stream/order.c).
 *
 * The thread never calls the driver, because a call may block for as long as such a stream waits.
 * The thread runs only while there are alarms.
 */
#include "base/thread.h"
#include "core/queue/clock.h"

static struct {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t thread;
	bool running;
	struct list alarms;
} clk = { .lock = PTHREAD_MUTEX_INITIALIZER, .alarms = LIST_INIT(clk.alarms) };

/* Ring the alarms that are due.  Return the time when the next alarm is due. */
static uint64_t clock_ring(uint64_t now)
{
	uint64_t next = PST_NO_DEADLINE;
	struct list *e;

	list_for_each (e, &clk.alarms) {
		struct alarm *a = list_entry(e, struct alarm, link);

		if (a->at <= now) {
			a->at = PST_NO_DEADLINE;
			a->ring(a);
		}
		next = MIN(next, (uint64_t)a->at);
	}
	return next;
}

static void *clock_main(void *arg)
{
	(void)arg;
	(void)pthread_setname_np(pthread_self(), "pst-clock");
	pthread_mutex_lock(&clk.lock);
	while (!list_empty(&clk.alarms)) {
		uint64_t next = clock_ring(now_ns());
		struct timespec ts = {
			.tv_sec = (time_t)(next / NSEC_PER_SEC),
			.tv_nsec = (long)(next % NSEC_PER_SEC),
		};

		if (next == PST_NO_DEADLINE)
			pthread_cond_wait(&clk.wake, &clk.lock);
		else
			(void)pthread_cond_timedwait(&clk.wake, &clk.lock, &ts);
	}
	clk.running = false;
	pthread_mutex_unlock(&clk.lock);
	return NULL;
}

static void clock_init(void)
{
	cond_init_monotonic(&clk.wake);
}

int clock_add(struct alarm *a)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_t thread;
	int r = 0;

	(void)pthread_once(&once, clock_init);
	pthread_mutex_lock(&clk.lock);
	if (list_empty(&a->link)) {
		list_add_tail(&clk.alarms, &a->link);
		/* Wake the thread: a->at may be earlier than the time until which the thread
		 * sleeps. */
		pthread_cond_signal(&clk.wake);
	}
	if (!clk.running) {
		r = thread_start(&thread, clock_main, NULL);
		if (r < 0) {
			list_del(&a->link);
		} else {
			clk.running = true;
			(void)pthread_detach(thread);
		}
	}
	pthread_mutex_unlock(&clk.lock);
	return r;
}

void clock_del(struct alarm *a)
{
	pthread_mutex_lock(&clk.lock);
	if (!list_empty(&a->link)) {
		list_del(&a->link);
		/* Clear the deadline, so that adding the alarm again starts fresh. */
		a->at = PST_NO_DEADLINE;
		/* Wake the thread, which ends when no alarm is left. */
		pthread_cond_signal(&clk.wake);
	}
	pthread_mutex_unlock(&clk.lock);
}

void clock_set(struct alarm *a, uint64_t at)
{
	if (at >= atomic_load(&a->at))
		return;
	pthread_mutex_lock(&clk.lock);
	if (at < a->at) {
		a->at = at;
		pthread_cond_signal(&clk.wake);
	}
	pthread_mutex_unlock(&clk.lock);
}
