/* SPDX-License-Identifier: MIT */
/*
 * Write an eventfd when a socket of an I/O context, or its timer, is readable.
 *
 * The kernel does this through a poll in a small io_uring, whose completions signal the eventfd.
 * If io_uring is forbidden, one thread of the process polls for all contexts.
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
	int efd; /* eventfd; -1 before the first waker_arm() */
	bool by_thread;
	struct io_uring ring;
	bool polls; /* a poll of epfd is in the ring */

	struct list link; /* used by the thread, under its lock */
	bool armed;
	uint64_t id;
};

/* -------------------------------------------------------------- the thread */

/* State of the thread, which ends and frees this when stopfd becomes readable. */
struct watch {
	int epfd; /* epoll of stopfd and of all wakers' epfds */
	int stopfd;
};

static struct {
	pthread_mutex_t lock;
	struct list list;
	struct watch *now; /* NULL: no thread runs */
	uint64_t last_id;  /* last id assigned to a waker; 0 means stopfd */
} wakers = { .lock = PTHREAD_MUTEX_INITIALIZER, .list = LIST_INIT(wakers.list) };

static struct waker *waker_find(uint64_t id)
{
	struct list *e;

	list_for_each (e, &wakers.list) {
		struct waker *w = list_entry(e, struct waker, link);

		if (w->id == id)
			return w;
	}
	return NULL;
}

static void watch_free(struct watch *t)
{
	closep(&t->epfd);
	closep(&t->stopfd);
	free(t);
}

static void *watcher(void *arg)
{
	struct epoll_event ev[16];
	struct watch *t = arg;
	bool stop = false;

	(void)pthread_setname_np(pthread_self(), "pst-net");
	while (!stop) {
		int n = epoll_wait(t->epfd, ev, (int)ARRAY_SIZE(ev), -1);

		(void)pthread_mutex_lock(&wakers.lock);
		for (int i = 0; i < n; i++) {
			struct waker *w = waker_find(ev[i].data.u64);

			stop |= !ev[i].data.u64;
			if (w && w->armed)
				(void)eventfd_write(w->efd, 1);
		}
		(void)pthread_mutex_unlock(&wakers.lock);
	}
	watch_free(t);
	return NULL;
}

/* Start the thread.  The lock is held. */
static int watch_start(void)
{
	struct epoll_event ev = { .events = EPOLLIN };
	struct watch *t;
	pthread_t thread;
	int r;

	if (wakers.now)
		return 0;
	t = calloc(1, sizeof(*t));
	if (!t)
		return err_set(ENOMEM, "out of memory");
	t->epfd = epoll_create1(EPOLL_CLOEXEC);
	t->stopfd = eventfd(0, EFD_CLOEXEC);
	if (t->epfd < 0 || t->stopfd < 0 || epoll_ctl(t->epfd, EPOLL_CTL_ADD, t->stopfd, &ev) < 0)
		r = err_set(errno, "no descriptor to wait by: %s", err_name(errno));
	else
		r = thread_start(&thread, watcher, t);
	if (r < 0) {
		watch_free(t);
		return r;
	}
	(void)pthread_detach(thread);
	wakers.now = t;
	return 0;
}

static int watch_add(struct waker *w)
{
	struct epoll_event ev = { .events = 0 };
	int r;

	w->by_thread = true;
	(void)pthread_mutex_lock(&wakers.lock);
	r = watch_start();
	if (r == 0) {
		w->id = ev.data.u64 = ++wakers.last_id;
		if (epoll_ctl(wakers.now->epfd, EPOLL_CTL_ADD, w->epfd, &ev) < 0)
			r = err_set(errno, "cannot wait for connections: %s", err_name(errno));
		else
			list_add_tail(&wakers.list, &w->link);
	}
	(void)pthread_mutex_unlock(&wakers.lock);
	return r;
}

static void watch_del(struct waker *w)
{
	(void)pthread_mutex_lock(&wakers.lock);
	list_del(&w->link);
	if (wakers.now)
		(void)epoll_ctl(wakers.now->epfd, EPOLL_CTL_DEL, w->epfd, NULL);
	if (wakers.now && list_empty(&wakers.list))
		(void)eventfd_write(TAKE_PTR(wakers.now)->stopfd, 1);
	(void)pthread_mutex_unlock(&wakers.lock);
}

static void watch_arm(struct waker *w, int efd, bool armed)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLONESHOT, .data.u64 = w->id };

	(void)pthread_mutex_lock(&wakers.lock);
	w->efd = efd;
	w->armed = armed;
	if (armed)
		(void)epoll_ctl(wakers.now->epfd, EPOLL_CTL_MOD, w->epfd, &ev);
	(void)pthread_mutex_unlock(&wakers.lock);
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

/* Submit a poll to the kernel; it completes at once if epfd is readable already. */
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
	if (w->by_thread) {
		watch_arm(w, efd, armed);
	} else {
		w->efd = efd;
		(void)__atomic_exchange_n(w->ring.cq.kflags, armed ? 0 : IORING_CQ_EVENTFD_DISABLED,
					  __ATOMIC_SEQ_CST);
		if (armed) {
			now |= io_uring_cq_ready(&w->ring) > 0;
			ring_poll(w);
			/* If no poll request could be submitted, nothing else would wake the
			 * caller. */
			now |= !w->polls;
		}
	}
	if (armed && now)
		(void)eventfd_write(efd, 1);
	return 0;
}
