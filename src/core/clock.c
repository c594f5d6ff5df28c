// SPDX-License-Identifier: MIT
/*
 * The clock: one thread per process that wakes sleepers when a deadline passes.
 *
 * A queue whose owner sleeps in epoll has nobody to look at the time.  The clock writes its
 * eventfd; the owner then finds the passed deadline in pst_reap().  Runs only while
 * some queue has handed out its descriptor.
 */
#include <sys/eventfd.h>

#include "base/thread.h"
#include "core/core.h"

static struct {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t thread;
	bool running;
	struct list queues;
} clk = { .lock = PTHREAD_MUTEX_INITIALIZER, .queues = LIST_INIT(clk.queues) };

/* Write the eventfds that are due; the earliest deadline that is left. */
static uint64_t clock_ring(uint64_t now)
{
	uint64_t next = PST_NO_DEADLINE;
	struct list *e;

	list_for_each (e, &clk.queues) {
		struct pst_queue *q = list_entry(e, struct pst_queue, clock);

		if (q->clock_deadline <= now) {
			q->clock_deadline = PST_NO_DEADLINE;
			(void)eventfd_write(q->efd, 1);
		}
		next = MIN(next, (uint64_t)q->clock_deadline);
	}
	return next;
}

static void *clock_main(void *arg)
{
	(void)arg;
	(void)pthread_setname_np(pthread_self(), "pst-clock");
	pthread_mutex_lock(&clk.lock);
	while (!list_empty(&clk.queues)) {
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
	pthread_condattr_t attr;

	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&clk.wake, &attr);
	(void)pthread_condattr_destroy(&attr);
}

int clock_add(struct pst_queue *q)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_t thread;
	int r = 0;

	(void)pthread_once(&once, clock_init);
	pthread_mutex_lock(&clk.lock);
	list_add_tail(&clk.queues, &q->clock);
	if (!clk.running) {
		r = thread_start(&thread, clock_main, NULL);
		if (r < 0) {
			list_del(&q->clock);
		} else {
			clk.running = true;
			(void)pthread_detach(thread);
		}
	}
	pthread_mutex_unlock(&clk.lock);
	return r;
}

void clock_del(struct pst_queue *q)
{
	pthread_mutex_lock(&clk.lock);
	list_del(&q->clock);
	/* Without queues the thread ends. */
	pthread_cond_signal(&clk.wake);
	pthread_mutex_unlock(&clk.lock);
}

void clock_set(struct pst_queue *q, uint64_t deadline_ns)
{
	if (deadline_ns >= atomic_load_explicit(&q->clock_deadline, memory_order_relaxed))
		return;
	pthread_mutex_lock(&clk.lock);
	q->clock_deadline = deadline_ns;
	pthread_cond_signal(&clk.wake);
	pthread_mutex_unlock(&clk.lock);
}
