/* SPDX-License-Identifier: MIT */
/*
 * Wake-ups: an eventfd is written when a socket of an I/O context, or its timer, is readable.
 *
 * The kernel does it by itself: a poll in a small io_uring, whose completions signal the eventfd.
 * Where io_uring is forbidden, one thread of the process does it for all contexts.
 */
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <liburing.h>

#include "base/err.h"
#include "base/list.h"
#include "base/thread.h"
#include "remote/link.h"

struct waker {
	int epfd;
	int efd; /* -1 before the first waker_arm() */
	bool by_thread;
	struct io_uring ring;
	bool polls; /* the ring has a poll on epfd */

	struct list link; /* the rest is the thread's, with its lock */
	bool armed;
	uint64_t id;
};

/* -------------------------------------------------------------- the thread */

static struct {
	pthread_mutex_t lock;
	struct list list;
	int epfd; /* of the epfds of all wakers; -1: there is no thread */
	uint64_t last_id;
} watch = { .lock = PTHREAD_MUTEX_INITIALIZER, .list = LIST_INIT(watch.list), .epfd = -1 };

static struct waker *watch_find(uint64_t id)
{
	struct list *e;

	list_for_each (e, &watch.list) {
		struct waker *w = list_entry(e, struct waker, link);

		if (w->id == id)
			return w;
	}
	return NULL;
}

static void *watcher(void *arg)
{
	struct epoll_event ev[16];

	(void)arg;
	for (;;) {
		int n = epoll_wait(watch.epfd, ev, (int)ARRAY_SIZE(ev), -1);

		(void)pthread_mutex_lock(&watch.lock);
		for (int i = 0; i < n; i++) {
			struct waker *w = watch_find(ev[i].data.u64);

			if (w && w->armed)
				(void)eventfd_write(w->efd, 1);
		}
		(void)pthread_mutex_unlock(&watch.lock);
	}
	return NULL;
}

/* With the lock. */
static int watch_start(void)
{
	pthread_t thread;
	int r;

	if (watch.epfd >= 0)
		return 0;
	watch.epfd = epoll_create1(EPOLL_CLOEXEC);
	if (watch.epfd < 0)
		return err_set(errno, "no descriptor to wait by: %s", err_name(errno));
	r = thread_start(&thread, watcher, NULL);
	if (r < 0) {
		(void)close(watch.epfd);
		watch.epfd = -1;
		return r;
	}
	(void)pthread_detach(thread);
	return 0;
}

static int watch_add(struct waker *w)
{
	struct epoll_event ev = { .events = 0 };
	int r;

	w->by_thread = true;
	(void)pthread_mutex_lock(&watch.lock);
	r = watch_start();
	if (r == 0) {
		w->id = ev.data.u64 = ++watch.last_id;
		if (epoll_ctl(watch.epfd, EPOLL_CTL_ADD, w->epfd, &ev) < 0)
			r = err_set(errno, "cannot wait for connections: %s", err_name(errno));
		else
			list_add_tail(&watch.list, &w->link);
	}
	(void)pthread_mutex_unlock(&watch.lock);
	return r;
}

static void watch_del(struct waker *w)
{
	(void)pthread_mutex_lock(&watch.lock);
	list_del(&w->link);
	if (watch.epfd >= 0)
		(void)epoll_ctl(watch.epfd, EPOLL_CTL_DEL, w->epfd, NULL);
	(void)pthread_mutex_unlock(&watch.lock);
}

static void watch_arm(struct waker *w, bool armed)
{
	struct epoll_event ev = { .events = armed ? EPOLLIN | EPOLLONESHOT : 0, .data.u64 = w->id };

	(void)pthread_mutex_lock(&watch.lock);
	w->armed = armed;
	if (armed)
		(void)epoll_ctl(watch.epfd, EPOLL_CTL_MOD, w->epfd, &ev);
	(void)pthread_mutex_unlock(&watch.lock);
}

/* ---------------------------------------------------------------- the ring */

int waker_new(int epfd, struct waker **ret)
{
	struct waker *w = calloc(1, sizeof(*w));
	int r = 0;

	if (!w)
		return err_set(ENOMEM, "out of memory");
	w->epfd = epfd;
	w->efd = -1;
	list_init(&w->link);
	if (fault_hit(FAULT_FILE_URING) || io_uring_queue_init(8, &w->ring, 0) < 0)
		r = watch_add(w);
	if (r < 0) {
		free(w);
		return r;
	}
	*ret = w;
	return 0;
}

void waker_free(struct waker *w)
{
	if (!w)
		return;
	if (w->by_thread)
		watch_del(w);
	else
		io_uring_queue_exit(&w->ring);
	free(w);
}

void waker_clear(struct waker *w)
{
	struct io_uring_cqe *cqe;

	if (w->by_thread)
		return;
	while (io_uring_peek_cqe(&w->ring, &cqe) == 0) {
		io_uring_cqe_seen(&w->ring, cqe);
		w->polls = false;
	}
}

/* Have the kernel poll; the poll itself looks whether there is something already. */
static void ring_poll(struct waker *w)
{
	struct io_uring_sqe *sqe;

	if (w->polls)
		return;
	sqe = io_uring_get_sqe(&w->ring);
	if (!sqe)
		return;
	io_uring_prep_poll_add(sqe, w->epfd, POLLIN);
	w->polls = io_uring_submit(&w->ring) == 1;
}

int waker_arm(struct waker *w, int efd, bool armed, bool now)
{
	bool first = w->efd < 0;
	int r;

	if (first && !w->by_thread) {
		r = io_uring_register_eventfd(&w->ring, efd);
		if (r < 0) {
			io_uring_queue_exit(&w->ring);
			r = watch_add(w);
		}
		if (r < 0)
			return r;
	}
	w->efd = efd;
	if (w->by_thread) {
		watch_arm(w, armed);
	} else {
		(void)__atomic_exchange_n(w->ring.cq.kflags, armed ? 0 : IORING_CQ_EVENTFD_DISABLED,
					  __ATOMIC_SEQ_CST);
		if (armed) {
			now |= io_uring_cq_ready(&w->ring) > 0;
			ring_poll(w);
			/* Without a poll the caller looks again and again. */
			now |= !w->polls;
		}
	}
	if (armed && now)
		(void)eventfd_write(efd, 1);
	return 0;
}
