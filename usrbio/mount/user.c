/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/user.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "base/base.h"
#include "base/probe.h"
#include "usrbio/mount/fds.h"
#include "usrbio/mount/leftover.h"

#define SAYS_LEN 4096u
#define SAYS_PAUSE_US 1000
#define USER_END_NS (3 * NSEC_PER_SEC) /* time for an idle worker to end */
#define SWEEP_NS NSEC_PER_SEC          /* time from a client's end to removing its memory */

static int watch_fd(const struct user *u, int fd, uint64_t what)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = what };

	return epoll_ctl(u->epfd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

/* Events that wake the thread: a call, the end of a worker or of a client, output of a worker. */
enum { OF_CALL, OF_WORKER, OF_CLIENT, OF_WORDS };

static uint64_t event_of(unsigned kind, uint64_t number)
{
	return number << 2 | kind;
}

int user_watch_client(const struct user *u, int pidfd, uint64_t index)
{
	return watch_fd(u, pidfd, event_of(OF_CLIENT, index));
}

void user_unwatch(const struct user *u, int pidfd)
{
	(void)epoll_ctl(u->epfd, EPOLL_CTL_DEL, pidfd, NULL);
}

void user_wake(struct user *u)
{
	broker_lock(u->b);
	if (u->wake >= 0)
		(void)eventfd_write(u->wake, 1);
	broker_unlock(u->b);
}

bool user_may_wait(struct user *u)
{
	if (atomic_fetch_add(&u->nr_waits, 1) < USER_WAITS)
		return true;
	user_waited(u);
	return false;
}

void user_waited(struct user *u)
{
	(void)atomic_fetch_sub(&u->nr_waits, 1);
}

/* ----------------------------------------------------------------- workers */

/* Return a reference to the user's worker, even if it is dead; or NULL. */
static struct worker *any_worker(struct user *u)
{
	struct worker *w = NULL;

	broker_lock(u->b);
	if (u->worker)
		w = worker_ref(u->worker);
	broker_unlock(u->b);
	return w;
}

struct worker *user_worker(struct user *u)
{
	struct worker *w = any_worker(u);

	if (!w || !atomic_load(&w->dead))
		return w;
	worker_unref(w);
	return NULL;
}

/* Update the sums of the worker's counters.  With the broker's lock. */
static void read_tally(struct user *u, struct worker *w)
{
	if (!usrbio_tally_read(w->tally, &w->sum))
		u->nr_lies++;
}

/* Drop a worker that ended, with everything published for it. */
static void forget_worker(struct user *u, struct worker *w)
{
	bool mine;

	broker_lock(u->b);
	atomic_store(&w->dead, true);
	mine = u->worker == w;
	if (mine) {
		u->worker = NULL;
		u->b->nr_workers--;
		read_tally(u, w);
		usrbio_sum_add(&u->past, &w->sum);
	}
	broker_unlock(u->b);
	if (mine)
		fds_give(u->uid, USER_FDS);
	files_worker_gone(u, w);
	publish_worker_gone(u, w);
	user_unwatch(u, w->pidfd);
	user_unwatch(u, w->says);
	if (mine)
		worker_unref(w);
}

/* Log some output of the worker, which may be any bytes.  Return false if there was none. */
static bool user_hear(struct user *u, const struct worker *w)
{
	char text[SAYS_LEN], *rest = text, *line;

	if (!worker_said(w, text, sizeof(text)))
		return false;
	while ((line = strsep(&rest, "\n")))
		if (*line && log_wants(LOG_WARN))
			log_line(&u->says, LOG_WARN, "a worker says", "uid=%u pid=%d text=%s",
				 u->uid, w->pid, log_text(line).s);
	return true;
}

static void worker_speaks(struct user *u, pid_t pid)
{
	struct worker *w = any_worker(u);

	/* End of file: the worker has closed its output. */
	if (w && w->pid == pid && !user_hear(u, w))
		user_unwatch(u, w->says);
	worker_unref(w);
	/* Pause, to limit the CPU time that a worker with endless output can use. */
	(void)usleep(SAYS_PAUSE_US);
}

static void worker_gone(struct user *u, pid_t pid)
{
	struct worker *w = any_worker(u);
	char status[32] = "exit=unknown";

	if (w && w->pid == pid) {
		(void)user_hear(u, w);
		(void)worker_status(w, status);
		PROBE2(worker__end, u->uid, pid);
		if (strcmp(status, "exit=0") != 0)
			log_warn("a worker ended", "uid=%u pid=%d %s", u->uid, pid, status);
		else
			log_info("a worker ended", "uid=%u pid=%d %s", u->uid, pid, status);
		forget_worker(u, w);
	}
	worker_unref(w);
}

/* ------------------------------------------------------------------ thread */

/* Return the time at which the worker will have been idle for long enough, ns; 0: it is not
 * idle. */
static uint64_t idle_at(struct user *u)
{
	struct worker *w;
	bool idle;
	uint64_t at;

	broker_lock(u->b);
	w = u->worker;
	idle = !w || (!w->nr_links && list_empty(&u->told) && list_empty(&u->closed));
	at = idle ? u->used + USER_IDLE_NS : 0;
	broker_unlock(u->b);
	return at;
}

/* Return milliseconds until the worker must end or the sweep is due; -1 for neither. */
static int user_wait_ms(struct user *u, uint64_t sweep_at)
{
	uint64_t at = idle_at(u), now = now_ns();

	if (sweep_at && (!at || sweep_at < at))
		at = sweep_at;
	if (!at)
		return -1;
	return at > now ? (int)((at - now) / NSEC_PER_MSEC) + 1 : 0;
}

/* End the worker; the next one gets the names of its semaphores.  With user->start. */
static void end_idle_worker(struct user *u)
{
	struct worker *w = any_worker(u);

	if (!w)
		return;
	log_info("a worker ends: nothing is published", "uid=%u pid=%d", u->uid, w->pid);
	memcpy(u->sem, w->sem, sizeof(u->sem));
	forget_worker(u, w);
	worker_end(w, now_ns() + USER_END_NS);
	/* Reuse the names only if this was the last reference: dropping it removes the
	 * semaphores. */
	u->has_sems = worker_unref(w);
}

/* Mark the thread as ended.  The caller holds the broker's lock. */
static void thread_ends(struct user *u)
{
	closep(&u->epfd);
	closep(&u->wake);
	u->epfd = u->wake = -1;
	u->b->nr_threads--;
	(void)pthread_cond_signal(&u->b->thread_end);
}

/* End a worker that has been idle for long enough.  Return true if it ended; the thread then
 * ends too. */
static bool end_idle(struct user *u)
{
	uint64_t at;

	(void)pthread_mutex_lock(&u->start);
	at = idle_at(u);
	if (!at || at > now_ns()) {
		(void)pthread_mutex_unlock(&u->start);
		return false;
	}
	end_idle_worker(u);
	broker_lock(u->b);
	/* The user may be freed after broker_unlock(). */
	(void)pthread_mutex_unlock(&u->start);
	thread_ends(u);
	broker_unlock(u->b);
	return true;
}

static void *user_run(void *arg)
{
	struct user *u = arg;
	uint64_t sweep_at = 0; /* ns; time to remove leftover memory; 0: no client has ended */
	struct epoll_event ev;
	eventfd_t calls;

	for (;;) {
		int n = epoll_wait(u->epfd, &ev, 1, user_wait_ms(u, sweep_at));

		/*
		 * A killed client leaves memory that was not published yet, or not any more.  Also
		 * remove leftovers when the worker has been idle, because some clients are killed
		 * before they publish anything.
		 */
		if (n == 0 || (sweep_at && sweep_at <= now_ns())) {
			(void)leftover_sweep(u->uid);
			sweep_at = 0;
		}
		if (n == 0 && end_idle(u))
			return NULL;
		if (n != 1)
			continue;
		switch (ev.data.u64 & 3) {
		case OF_WORKER:
			worker_gone(u, (pid_t)(ev.data.u64 >> 2));
			break;
		case OF_WORDS:
			worker_speaks(u, (pid_t)(ev.data.u64 >> 2));
			break;
		case OF_CLIENT:
			publish_client_gone(u->b, ev.data.u64 >> 2);
			sweep_at = sweep_at ? sweep_at : now_ns() + SWEEP_NS;
			break;
		default:
			(void)eventfd_read(u->wake, &calls);
			if (atomic_load(&u->ends)) {
				broker_lock(u->b);
				thread_ends(u);
				broker_unlock(u->b);
				return NULL;
			}
			files_closed(u);
		}
	}
}

/* Open the thread's descriptors and start it.  With the broker's lock. */
static int open_thread(struct user *u)
{
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	u->epfd = epoll_create1(EPOLL_CLOEXEC);
	u->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	err = u->epfd < 0 || u->wake < 0 ? -errno : watch_fd(u, u->wake, event_of(OF_CALL, 0));
	if (err == 0) {
		(void)pthread_attr_init(&attr);
		(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
		err = -pthread_create(&thread, &attr, user_run, u);
		(void)pthread_attr_destroy(&attr);
	}
	if (err < 0) {
		closep(&u->epfd);
		closep(&u->wake);
		u->epfd = u->wake = -1;
	} else {
		u->b->nr_threads++;
	}
	return err;
}

/* Reserve descriptors for a worker, and start the user's thread if there is none.  With
 * user->start. */
static int begin_worker(struct user *u)
{
	struct broker *b = u->b;
	int err = fds_take(u->uid, USER_FDS);

	if (err < 0)
		return err;
	broker_lock(b);
	u->used = now_ns();
	if (u->uid && b->nr_workers >= b->quota.users)
		err = -EUSERS;
	else if (u->epfd < 0)
		err = open_thread(u);
	b->nr_workers += err == 0;
	broker_unlock(b);
	if (err < 0)
		fds_give(u->uid, USER_FDS);
	if (err == -EUSERS)
		log_warn("a user gets no worker: there are as many as may be",
			 "uid=%u users=%u cure=%s", u->uid, b->quota.users,
			 log_text("give --users a larger number").s);
	return err;
}

/* Start a worker, and tell it about the user's open files.  With user->start. */
static int new_worker(struct user *u, const struct caller *c, struct worker **ret)
{
	struct worker *w = any_worker(u);
	int err;

	/* The worker does not answer; its end may not have been noticed yet. */
	if (w) {
		forget_worker(u, w);
		worker_unref(w);
	}
	err = begin_worker(u);
	if (err < 0)
		return err;
	err = worker_start(c, u->has_sems ? u->sem : NULL, &w);
	/* Take new names if another process has taken the old ones: names are visible to all, and
	 * free while the user has no worker. */
	if (err == -EEXIST && u->has_sems)
		err = worker_start(c, NULL, &w);
	u->has_sems = false;
	broker_lock(u->b);
	if (err < 0) {
		u->nr_failures++;
		u->b->nr_workers--;
	} else {
		u->worker = worker_ref(w);
	}
	u->nr_starts += err == 0;
	broker_unlock(u->b);
	if (err < 0) {
		fds_give(u->uid, USER_FDS);
		return err;
	}
	log_info("a worker started", "uid=%u pid=%d", u->uid, w->pid);
	err = files_tell(u, w);
	if (err == 0)
		err = watch_fd(u, w->pidfd, event_of(OF_WORKER, (uint64_t)w->pid));
	if (err == 0)
		err = watch_fd(u, w->says, event_of(OF_WORDS, (uint64_t)w->pid));
	if (err < 0) {
		forget_worker(u, w);
		worker_unref(w);
		return err;
	}
	user_wake(u);
	*ret = w;
	return 0;
}

int user_need_worker(struct user *u, const struct caller *c, struct worker **ret)
{
	struct worker *w;
	int err = 0;

	(void)pthread_mutex_lock(&u->start);
	broker_lock(u->b);
	u->used = now_ns();
	broker_unlock(u->b);
	w = user_worker(u);
	if (!w)
		err = new_worker(u, c, &w);
	(void)pthread_mutex_unlock(&u->start);
	if (err == 0)
		*ret = w;
	return err;
}

/* -------------------------------------------------------------------- life */

static void user_destroy(struct user *u)
{
	(void)pthread_mutex_destroy(&u->start);
	free(u);
}

static int user_new(struct broker *b, uid_t uid, struct user **ret)
{
	struct user *u = calloc(1, sizeof(*u));

	if (!u)
		return -ENOMEM;
	*u = (struct user){ .uid = uid, .b = b, .epfd = -1, .wake = -1 };
	(void)pthread_mutex_init(&u->start, NULL);
	list_init(&u->told);
	list_init(&u->untold);
	list_init(&u->closed);
	for (unsigned i = 0; i < USER_CACHED; i++)
		list_init(&u->cached[i]);
	*ret = u;
	return 0;
}

int user_get(struct broker *b, uid_t uid, struct user **ret)
{
	struct list *e, *in = &b->buckets[uid % BROKER_BUCKETS];
	struct user *u = NULL;
	int err = 0;

	broker_lock(b);
	list_for_each (e, in)
		if (list_entry(e, struct user, in_bucket)->uid == uid)
			u = list_entry(e, struct user, in_bucket);
	if (!u) {
		err = user_new(b, uid, &u);
		if (err == 0) {
			list_add_tail(&b->users, &u->link);
			list_add_tail(in, &u->in_bucket);
		}
	}
	broker_unlock(b);
	if (err == 0)
		*ret = u;
	return err;
}

/* Describe a user for metrics.  With the broker's lock. */
static struct broker_user user_look_at(struct user *u)
{
	struct worker *w = u->worker;
	struct broker_user ret = {
		.uid = u->uid,
		.nr_starts = u->nr_starts,
		.nr_failures = u->nr_failures,
		.state = "none",
		.sum = u->past,
	};

	if (w) {
		read_tally(u, w);
		usrbio_sum_add(&ret.sum, &w->sum);
		ret.pid = w->pid;
		ret.state = "running";
		if (atomic_load(&w->dead))
			ret.state = "dead";
		else if (worker_is_stopped(w))
			ret.state = "stopped";
		ret.nr_rings = w->nr_rings;
		ret.nr_buffers = w->nr_links - w->nr_rings;
		ret.bytes = w->bytes;
	}
	ret.nr_lies = u->nr_lies;
	return ret;
}

int broker_look(struct broker *b, struct broker_user **ret, size_t *ret_nr, size_t *ret_hidden)
{
	struct broker_user *users = calloc(BROKER_USERS, sizeof(*users));
	struct list *e;
	size_t nr = 0;

	if (!users)
		return -ENOMEM;
	*ret_hidden = 0;
	broker_lock(b);
	list_for_each (e, &b->users) {
		if (nr < BROKER_USERS)
			users[nr++] = user_look_at(list_entry(e, struct user, link));
		else
			++*ret_hidden;
	}
	broker_unlock(b);
	*ret = users;
	*ret_nr = nr;
	return 0;
}

void user_end(struct user *u, uint64_t until_ns)
{
	struct worker *w = any_worker(u);

	if (w)
		worker_end(w, until_ns);
	worker_unref(w);
}

void user_end_thread(struct user *u)
{
	atomic_store(&u->ends, true);
	user_wake(u);
}

void user_free(struct user *u)
{
	files_closed(u);
	if (u->worker)
		forget_worker(u, u->worker);
	user_destroy(u);
}
