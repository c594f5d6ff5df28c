/* SPDX-License-Identifier: MIT */
/*
 * Waiting for completions: the owner sleeps in pst_queue_reap(), or an event loop sleeps on the
 * queue's descriptor.
 */
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>

#include "base/err.h"
#include "base/log.h"
#include "core/queue/clock.h"
#include "core/queue/queue.h"

#define SPIN_NS 200000u /* ns to spin for a request of an engine */
#define SPIN_SKIP 16u   /* waits that do not spin after a spin found nothing */

/* -------------------------------------------------------------------- wake */

/* While armed, also wake for deadlines, and for requests that end without an event of I/O context
 * or engine. */
void queue_notify(struct pst_queue *q)
{
	uint64_t at;

	if (q->nr_done || q->more)
		(void)eventfd_write(q->efd, 1);
	if (!q->has_fd)
		return;
	at = queue_polls(q) ? now_ns() + PAUSE_NS : q->next_deadline;
	/* Pairs with the clock, which resets alarm.at before queue_ring(): either queue_ring() sees
	 * this ring_at, or clock_set() sees the reset. */
	atomic_store(&q->ring_at, at);
	clock_set(&q->alarm, at);
}

void queue_ring(struct alarm *a)
{
	struct pst_queue *q = container_of(a, struct pst_queue, alarm);
	uint64_t at = atomic_load(&q->ring_at);

	/* If the requests whose deadline was near have ended, ring again at ring_at, which is
	 * later. */
	if (at <= now_ns())
		(void)eventfd_write(q->efd, 1);
	else
		a->at = at;
}

/* Make the descriptor unreadable.  An engine that was about to write it may still make it readable
 * again. */
static void efd_clear(struct pst_queue *q)
{
	eventfd_t v;

	(void)eventfd_read(q->efd, &v);
}

/* Let engines wake the owner after nr requests. */
static int queue_arm(struct pst_queue *q, unsigned nr)
{
	int r = q->armed ? 0 : q->backend->arm(q->ctx, q->efd, true);

	if (q->armed || unlikely(r < 0))
		return r;
	q->armed = true;
	io_others_arm(&q->others, q->efd, true);
	atomic_store(&q->wake_in, nr);
	if (atomic_load(&q->finished) && atomic_exchange(&q->wake_in, 0))
		(void)eventfd_write(q->efd, 1);
	queue_notify(q);
	return 0;
}

void queue_disarm(struct pst_queue *q)
{
	if (!q->armed)
		return;
	q->armed = false;
	(void)q->backend->arm(q->ctx, q->efd, false);
	io_others_arm(&q->others, q->efd, false);
	atomic_store(&q->wake_in, 0);
	atomic_store_explicit(&q->ring_at, PST_NO_DEADLINE, memory_order_relaxed);
	efd_clear(q);
}

/* ------------------------------------------------------------------- wait */

/* Call poll(2) until the deadline, rounded up to milliseconds so that poll(2) does not return
 * early. */
static void sleep_fd(int fd, uint64_t deadline_ns)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	struct timespec ts, *tsp = NULL;

	if (deadline_ns != PST_NO_DEADLINE) {
		uint64_t now = now_ns(), left = deadline_ns > now ? deadline_ns - now : 0;

		ts.tv_sec = (time_t)(left / NSEC_PER_SEC);
		ts.tv_nsec = (long)(left % NSEC_PER_SEC);
		tsp = &ts;
	}
	(void)ppoll(&pfd, 1, tsp, NULL);
}

/*
 * Spin for the queue's only request if an engine serves it: a short one takes about 100 us, and
 * sleeping and waking would take a large part of that.  After a spin that found nothing, skip the
 * next SPIN_SKIP. Yield the CPU to other threads, above all to workers.
 */
static bool spin_for_engine(struct pst_queue *q, uint64_t deadline_ns)
{
	bool ended = false;
	uint64_t end;

	if (q->spin_skip) {
		q->spin_skip--;
		return false;
	}
	end = MIN(now_ns() + SPIN_NS, deadline_ns);
	q->waiting = true;
	queue_unlock(q);
	while (!ended && now_ns() < end) {
		(void)sched_yield();
		ended = atomic_load_explicit(&q->finished, memory_order_relaxed);
	}
	queue_lock(q);
	q->waiting = false;
	q->spin_skip = ended ? 0 : SPIN_SKIP;
	return ended;
}

/*
 * Limit a sleep for several operations to PAUSE_NS: an operation may be only one step of its
 * request, and the next step must not wait for other operations that hang.
 */
void queue_wait(struct pst_queue *q, unsigned nr, uint64_t deadline_ns)
{
	struct timespec pause = { .tv_nsec = PAUSE_NS };
	bool by_fd = q->nr_engine || queue_polls(q) || unlikely(io_others_nr_ops(&q->others));
	/* Wake after half of the requests, to reap them while engines finish the others. */
	unsigned half = q->nr_engine == q->nr_inflight ? (nr + 1) / 2 : 1;
	int r = 0;

	/* Poll: the end of another queue's write does not wake this queue. */
	if (nr > 1 || queue_polls(q))
		deadline_ns = MIN(deadline_ns, now_ns() + PAUSE_NS);

	if (q->nr_engine == 1 && q->nr_inflight == 1 && spin_for_engine(q, deadline_ns))
		return;
	/* Poll if no event can wake this thread. */
	if (by_fd && unlikely(queue_arm(q, half) < 0))
		deadline_ns = MIN(deadline_ns, now_ns() + PAUSE_NS);
	q->waiting = true;
	queue_unlock(q);
	if (by_fd)
		sleep_fd(q->efd, deadline_ns);
	else
		r = q->backend->wait(q->ctx, nr, deadline_ns);
	/* Poll if a sandbox that was installed later forbids waiting. */
	if (unlikely(r < 0 && r != -ETIMEDOUT && r != -EINTR))
		(void)nanosleep(&pause, NULL);
	queue_lock(q);
	q->waiting = false;
	if (by_fd)
		queue_disarm(q);
}

void queue_reaped(struct pst_queue *q, bool was_armed, unsigned n)
{
	/* Clear the eventfd, else it stays readable and wakes a thread that has nothing to reap. */
	if (!was_armed && !n)
		efd_clear(q);
	if (!q->fd_once)
		(void)queue_arm(q, 1); /* cannot fail: arming a second time only repeats what
				        * succeeded */
}

int queue_fd(struct pst_queue *q)
{
	bool first = !q->has_fd;
	int r = first ? clock_add(&q->alarm) : 0;

	q->has_fd = true;
	if (r == 0)
		r = queue_arm(q, 1);
	if (r < 0 && first) {
		q->has_fd = false;
		clock_del(&q->alarm);
	}
	return r < 0 ? r : q->efd;
}
