/* SPDX-License-Identifier: MIT */
#include <pthread.h>

#include "base/err.h"
#include "base/thread.h"
#include "base/work.h"

/* -------------------------------------------------------------- work queue */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t ran;
	struct list waiting[WORK_LOW + 1];
	const struct work *current;
	bool running;
} queue = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.ran = PTHREAD_COND_INITIALIZER,
	.waiting = { LIST_INIT(queue.waiting[0]), LIST_INIT(queue.waiting[1]) },
};

/* Return the next work of the queue, or NULL; under the lock. */
static struct work *queue_next(void)
{
	for (unsigned i = 0; i <= WORK_LOW; i++)
		if (!list_empty(&queue.waiting[i]))
			return list_first(&queue.waiting[i], struct work, link);
	return NULL;
}

static void *queue_main(void *arg)
{
	void (*run)(struct work * w);
	struct work *w;

	(void)arg;
	(void)pthread_setname_np(pthread_self(), "pst-work");
	pthread_mutex_lock(&queue.lock);
	while ((w = queue_next())) {
		list_del(&w->link);
		queue.current = w;
		run = w->run;
		pthread_mutex_unlock(&queue.lock);
		run(w);
		pthread_mutex_lock(&queue.lock);
		queue.current = NULL;
		pthread_cond_broadcast(&queue.ran);
	}
	queue.running = false;
	pthread_mutex_unlock(&queue.lock);
	return NULL;
}

void work_init(struct work *w, void (*run)(struct work *w))
{
	list_init(&w->link);
	w->run = run;
}

/* Append work to the queue, and start the queue's thread if it does not run; under the lock. */
static int queue_add(struct work *w, enum work_priority priority)
{
	pthread_t thread;
	int r = 0;

	if (!queue.running) {
		r = thread_start(&thread, queue_main, NULL);
		queue.running = r == 0;
		if (r == 0)
			(void)pthread_detach(thread);
	}
	if (r == 0) {
		list_del(&w->link);
		list_add_tail(&queue.waiting[priority], &w->link);
	}
	return r;
}

int work_queue(struct work *w, enum work_priority priority)
{
	int r;

	pthread_mutex_lock(&queue.lock);
	r = queue_add(w, priority);
	pthread_mutex_unlock(&queue.lock);
	return r;
}

int work_change(struct work *w, void (*run)(struct work *w), enum work_priority priority)
{
	int r;

	pthread_mutex_lock(&queue.lock);
	w->run = run;
	r = queue_add(w, priority);
	pthread_mutex_unlock(&queue.lock);
	return r;
}

void work_end(struct work *w)
{
	pthread_mutex_lock(&queue.lock);
	list_del(&w->link);
	while (queue.current == w) {
		pthread_cond_wait(&queue.ran, &queue.lock);
		list_del(&w->link); /* w->run() may have queued w again */
	}
	pthread_mutex_unlock(&queue.lock);
}

/* ----------------------------------------------------------- what may hang */

_Atomic uint64_t work_idle_ns = 200 * NSEC_PER_MSEC;

/* A thread for work that may hang. */
struct runner {
	struct list link; /* on the list of idle runners */
	pthread_t thread;
	pthread_cond_t wake;
	struct work *work;
	const char *name;
};

static struct {
	pthread_mutex_t lock;
	struct list idle;    /* idle runners, the most recently used one first */
	struct list waiting; /* work that waits because there are WORK_THREADS_MAX runners */
	unsigned nr;
} runners = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.idle = LIST_INIT(runners.idle),
	.waiting = LIST_INIT(runners.waiting),
};

/* Wait until a time or a wake-up, under the lock.  Return false after the time. */
static bool work_wait_until(pthread_cond_t *cond, uint64_t ns)
{
	struct timespec ts = { .tv_sec = (time_t)(ns / NSEC_PER_SEC),
			       .tv_nsec = (long)(ns % NSEC_PER_SEC) };

	return pthread_cond_timedwait(cond, &runners.lock, &ts) != ETIMEDOUT;
}

/* Return the next work for a runner, or NULL if none came for work_idle_ns; under the lock. */
static struct work *runner_next(struct runner *me)
{
	uint64_t until = now_ns() + work_idle_ns;

	if (!me->work && !list_empty(&runners.waiting)) {
		me->work = list_first(&runners.waiting, struct work, link);
		list_del(&me->work->link);
	}
	if (!me->work) {
		list_add_tail(runners.idle.next, &me->link); /* insert at the head */
		while (!me->work && work_wait_until(&me->wake, until))
			;
		list_del(&me->link);
	}
	return TAKE_PTR(me->work);
}

static void *runner_main(void *arg)
{
	struct runner *me = arg;
	struct work *w;

	pthread_mutex_lock(&runners.lock);
	while ((w = runner_next(me))) {
		pthread_mutex_unlock(&runners.lock);
		w->run(w);
		pthread_mutex_lock(&runners.lock);
	}
	runners.nr--;
	pthread_mutex_unlock(&runners.lock);
	(void)pthread_cond_destroy(&me->wake);
	free(me);
	return NULL;
}

/* Start a runner, under the lock. */
static int work_runner_new(struct runner **ret)
{
	struct runner *new = calloc(1, sizeof(*new));
	int r;

	if (!new)
		return err_set(EAGAIN, "out of memory for a thread");
	list_init(&new->link);
	cond_init_monotonic(&new->wake);
	r = thread_start(&new->thread, runner_main, new);
	if (r < 0) {
		(void)pthread_cond_destroy(&new->wake);
		free(new);
		return r;
	}
	(void)pthread_detach(new->thread);
	runners.nr++;
	*ret = new;
	return 0;
}

/* Give work to a runner, or let the work wait for one; under the lock. */
static int dispatch(struct work *w, const char *name, bool wait)
{
	struct runner *to = NULL;
	int r = 0;

	if (!list_empty(&runners.idle))
		to = list_first(&runners.idle, struct runner, link);
	else if (runners.nr < WORK_THREADS_MAX)
		r = work_runner_new(&to);
	else if (!wait)
		return err_set(EAGAIN,
			       "all %u threads for what may hang are in use; the kernel's log may "
			       "tell which file system or driver does not answer",
			       runners.nr);
	if (r < 0)
		return r;
	if (!to) {
		list_add_tail(&runners.waiting, &w->link);
		return 0;
	}
	list_del(&to->link);
	to->work = w;
	/* Rename the thread here, so that it has the name when the work begins. */
	if (to->name != name)
		(void)pthread_setname_np(to->thread, name);
	to->name = name;
	(void)pthread_cond_signal(&to->wake);
	return 0;
}

int work_spawn(struct work *w, const char *name, bool wait)
{
	int r;

	pthread_mutex_lock(&runners.lock);
	r = dispatch(w, name, wait);
	pthread_mutex_unlock(&runners.lock);
	return r;
}

/* A work_call() in progress.  Waiter and runner share the struct, and the last of them frees it. */
struct call {
	struct work work;
	void (*fn)(void *arg);
	void *arg;
	pthread_cond_t ended;
	bool done, left;
};

static void call_free(struct call *c)
{
	(void)pthread_cond_destroy(&c->ended);
	free(c);
}

static void call_run(struct work *w)
{
	struct call *c = container_of(w, struct call, work);
	bool left;

	c->fn(c->arg);
	pthread_mutex_lock(&runners.lock);
	c->done = true;
	left = c->left;
	(void)pthread_cond_signal(&c->ended);
	pthread_mutex_unlock(&runners.lock);
	if (left)
		call_free(c);
}

int work_call(void (*fn)(void *arg), void *arg, const char *name, uint64_t timeout_ns)
{
	struct call *c = calloc(1, sizeof(*c));
	uint64_t until = now_ns() + timeout_ns;
	int r;

	if (!c)
		return err_set(EAGAIN, "out of memory");
	work_init(&c->work, call_run);
	c->fn = fn;
	c->arg = arg;
	cond_init_monotonic(&c->ended);
	pthread_mutex_lock(&runners.lock);
	r = dispatch(&c->work, name, false);
	while (r == 0 && !c->done && work_wait_until(&c->ended, until))
		;
	c->left = r == 0 && !c->done;
	if (c->left)
		r = -ETIMEDOUT;
	pthread_mutex_unlock(&runners.lock);
	if (r != -ETIMEDOUT)
		call_free(c);
	return r;
}
