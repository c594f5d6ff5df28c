/* SPDX-License-Identifier: MIT */
#include <poll.h>
#include <sys/epoll.h>

#include "base/err.h"
#include "base/log.h"
#include "base/thread.h"
#include "remote/attend.h"

/* Milliseconds between two checks of all contexts.  If a user makes no call for that long while
 * bytes wait, assume that it computes. */
#define LOOK_MS 10
/* Nanoseconds between two turns, so that bytes accumulate: 1 MiB at 10 GB/s. */
#define PAUSE_NS 100000
#define EVENTS 16

static struct {
	pthread_mutex_t lock;
	pthread_cond_t work;
	pthread_cond_t turned;
	struct list contexts;
	int epfd; /* polls the epfds of the contexts that the thread serves */
	bool running;
	uint64_t round;
	atomic_bool asleep; /* asleep, as no context has operations; pairs with attend_work() */
} attend = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.work = PTHREAD_COND_INITIALIZER,
	.turned = PTHREAD_COND_INITIALIZER,
	.contexts = LIST_INIT(attend.contexts),
	.epfd = -1,
};

/* The lock is held in all functions below. */

static void attend_leave(struct attended *a)
{
	a->was_ready = false;
	if (a->alone)
		(void)epoll_ctl(attend.epfd, EPOLL_CTL_DEL, a->epfd, NULL);
	a->alone = false;
}

static void attend_take(struct attended *a)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = a };

	a->alone = epoll_ctl(attend.epfd, EPOLL_CTL_ADD, a->epfd, &ev) == 0;
}

static bool attend_is_ready(const struct attended *a)
{
	struct pollfd p = { .fd = a->epfd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

/* Decide whether the context's user is away.  Return true if the context has operations. */
static bool attend_look(struct attended *a)
{
	bool ready, works = true;

	if (atomic_exchange_explicit(&a->called, false, memory_order_relaxed)) {
		attend_leave(a);
		return true; /* assume that it has: a check would take the context's lock */
	}
	if (pthread_mutex_trylock(&a->lock) == 0) {
		works = a->works(a);
		(void)pthread_mutex_unlock(&a->lock);
	}
	if (!works)
		attend_leave(a);
	if (!works || a->alone)
		return works;
	ready = attend_is_ready(a);
	if (ready && a->was_ready)
		attend_take(a);
	a->was_ready = ready;
	return true;
}

static bool attend_look_at_all(void)
{
	bool work = false;
	struct list *e;

	list_for_each (e, &attend.contexts)
		work |= attend_look(list_entry(e, struct attended, link));
	return work;
}

/* Move the operations of a context, unless its user is back.  The lock is dropped during the turn:
 * a page fault that never ends may block this context and the thread, but no other user. */
static void attend_turn(struct attended *a)
{
	bool works = true;

	if (atomic_load_explicit(&a->called, memory_order_relaxed) ||
	    pthread_mutex_trylock(&a->lock) != 0)
		return; /* the next attend_look() gives the context back to its user */
	a->turning++;
	(void)pthread_mutex_unlock(&attend.lock);
	works = a->turn(a);
	(void)pthread_mutex_unlock(&a->lock);
	(void)pthread_mutex_lock(&attend.lock);
	a->turning--;
	(void)pthread_cond_broadcast(&attend.turned);
	if (!works)
		attend_leave(a);
}

static bool attend_has(const struct attended *a)
{
	struct list *e;

	list_for_each (e, &attend.contexts)
		if (list_entry(e, struct attended, link) == a)
			return true;
	return false;
}

/* Wait for bytes of the served contexts, at most until the next check. */
static void attend_wait(void)
{
	const struct timespec pause = { .tv_nsec = PAUSE_NS };
	struct epoll_event ev[EVENTS];
	int n;

	(void)pthread_mutex_unlock(&attend.lock);
	(void)nanosleep(&pause, NULL);
	n = epoll_wait(attend.epfd, ev, EVENTS, LOOK_MS);
	(void)pthread_mutex_lock(&attend.lock);
	for (int i = 0; i < n; i++)
		if (attend_has(ev[i].data.ptr))
			attend_turn(ev[i].data.ptr);
}

static void *attend_main(void *arg)
{
	uint64_t next = 0;

	(void)arg;
	(void)pthread_setname_np(pthread_self(), "pst-net-away");
	(void)pthread_mutex_lock(&attend.lock);
	while (!list_empty(&attend.contexts)) {
		bool work = true;

		if (now_ns() >= next) {
			work = attend_look_at_all();
			next = now_ns() + LOOK_MS * NSEC_PER_MSEC;
		}
		if (!work) {
			atomic_store(&attend.asleep, true);
			while (!list_empty(&attend.contexts) && !attend_look_at_all())
				(void)pthread_cond_wait(&attend.work, &attend.lock);
			atomic_store(&attend.asleep, false);
		}
		attend_wait();
	}
	closep(&attend.epfd);
	attend.running = false;
	(void)pthread_mutex_unlock(&attend.lock);
	return NULL;
}

static int attend_start(void)
{
	pthread_t thread;
	int r;

	attend.epfd = epoll_create1(EPOLL_CLOEXEC);
	r = attend.epfd < 0 ? -errno : thread_start(&thread, attend_main, NULL);
	if (r < 0) {
		closep(&attend.epfd);
		return r;
	}
	attend.running = true;
	(void)pthread_detach(thread);
	return 0;
}

/* ------------------------------------------------------------- without it */

void attend_init(struct attended *a)
{
	(void)pthread_mutex_init(&a->lock, NULL);
	list_init(&a->link);
}

void attend_begin(struct attended *a)
{
	int r = 0;

	(void)pthread_mutex_lock(&attend.lock);
	list_add_tail(&attend.contexts, &a->link);
	if (!attend.running)
		r = attend_start();
	(void)pthread_mutex_unlock(&attend.lock);
	if (r < 0)
		log_info("no thread for connections to storage services (%s): bytes come only "
			 "while the program waits for them",
			 err_name(-r));
}

void attend_end(struct attended *a)
{
	(void)pthread_mutex_lock(&attend.lock);
	while (a->turning)
		(void)pthread_cond_wait(&attend.turned, &attend.lock);
	if (!list_empty(&a->link)) {
		attend_leave(a);
		list_del(&a->link);
	}
	/* Wake the thread: it ends when no context is left. */
	(void)pthread_cond_signal(&attend.work);
	(void)pthread_mutex_unlock(&attend.lock);
	(void)pthread_mutex_destroy(&a->lock);
}

/* Return the next context that had no turn in this round, with the lock held. */
static struct attended *attend_next(uint64_t round)
{
	struct list *e;

	list_for_each (e, &attend.contexts) {
		struct attended *a = list_entry(e, struct attended, link);

		if (a->round < round)
			return a;
	}
	return NULL;
}

void attend_turn_all(void)
{
	struct attended *a;
	uint64_t round;

	(void)pthread_mutex_lock(&attend.lock);
	round = ++attend.round;
	while ((a = attend_next(round))) {
		a->round = round;
		a->turning++;
		(void)pthread_mutex_unlock(&attend.lock);
		(void)pthread_mutex_lock(&a->lock);
		(void)a->turn(a);
		(void)pthread_mutex_unlock(&a->lock);
		(void)pthread_mutex_lock(&attend.lock);
		a->turning--;
		(void)pthread_cond_broadcast(&attend.turned);
	}
	(void)pthread_mutex_unlock(&attend.lock);
}

void attend_work(void)
{
	/* Pairs with the thread's fence: either the thread sees the operation, which was counted
	 * before, or this call sees the thread asleep. */
	atomic_thread_fence(memory_order_seq_cst);
	if (likely(!atomic_load_explicit(&attend.asleep, memory_order_relaxed)))
		return;
	(void)pthread_mutex_lock(&attend.lock);
	(void)pthread_cond_signal(&attend.work);
	(void)pthread_mutex_unlock(&attend.lock);
}
