/* SPDX-License-Identifier: MIT */
/* The engine: options, worker threads, and the inbox that they share. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "plug_int.h"

int plug_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;
	int err = pthread_condattr_init(&attr);

	if (err)
		return -err;
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	err = pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
	return -err;
}

struct timespec plug_after(unsigned seconds)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += seconds;
	return t;
}

bool plug_engine_is_ours(const struct plug_engine *e)
{
	return getpid() == e->pid;
}

static void wake(struct plug_worker *w)
{
	uint64_t one = 1;

	if (!w->asleep)
		return;
	w->asleep = false;
	(void)!write(w->wake, &one, sizeof(one));
}

void plug_engine_push(struct plug_engine *e, struct plug_part *parts, unsigned nr)
{
	unsigned i, woken = 0;

	pthread_mutex_lock(&e->lock);
	for (i = 0; i < nr; i++) {
		parts[i].next = NULL;
		*e->last = &parts[i];
		e->last = &parts[i].next;
	}
	e->nr_inbox += nr;
	for (i = 0; i < e->nr_workers && woken < nr; i++) {
		struct plug_worker *w = &e->workers[i];

		/* A full worker takes no part before one of its own completes. */
		if (!w->asleep || w->full)
			continue;
		wake(w);
		woken++;
	}
	pthread_mutex_unlock(&e->lock);
}

unsigned plug_engine_remove(struct plug_engine *e, const struct plug_req *req)
{
	struct plug_part **at;
	unsigned nr = 0;

	pthread_mutex_lock(&e->lock);
	for (at = &e->first; *at;) {
		if ((*at)->req == req) {
			*at = (*at)->next;
			nr++;
		} else {
			at = &(*at)->next;
		}
	}
	e->last = at;
	e->nr_inbox -= nr;
	pthread_mutex_unlock(&e->lock);
	return nr;
}

void plug_engine_cancel(struct plug_engine *e)
{
	unsigned i;

	pthread_mutex_lock(&e->lock);
	e->cancels++;
	for (i = 0; i < e->nr_workers; i++)
		wake(&e->workers[i]);
	pthread_mutex_unlock(&e->lock);
}

static int worker_start_thread(struct plug_engine *e, struct plug_worker *w)
{
	struct pst_queue_opts opts = { .sz = sizeof(opts),
				       .depth = e->opts.depth,
				       .backend = e->opts.backend,
				       .timeout_ms = e->opts.timeout_ms,
				       .flags = PST_QUEUE_FD_ONCE };
	sigset_t all, old;
	int err;

	w->flight = calloc(e->opts.depth, sizeof(struct plug_part *));
	if (!w->flight)
		return -ENOMEM;
	w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->wake < 0)
		return -errno;
	err = pst_queue_new(&opts, &w->queue);
	if (err) {
		plug_log("a queue cannot be created: %s", pst_error_text());
		return err;
	}
	/* The program's signals are for its own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&w->thread, NULL, plug_worker_main, w);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err) {
		plug_log("a thread cannot be started: %s", strerror(err));
		return -err;
	}
	pthread_setname_np(w->thread, "penstock-nixl");
	w->started = true;
	return 0;
}

static void worker_join(struct plug_worker *w)
{
	if (w->started)
		pthread_join(w->thread, NULL);
	pst_queue_free(w->queue);
	if (w->wake >= 0)
		close(w->wake);
	free(w->flight);
}

struct plug_engine *plug_engine_free(struct plug_engine *e)
{
	struct plug_part *part;
	unsigned i;

	if (!e || !plug_engine_is_ours(e))
		return NULL;
	pthread_mutex_lock(&e->lock);
	e->stop = true;
	for (i = 0; i < e->nr_workers; i++)
		wake(&e->workers[i]);
	pthread_mutex_unlock(&e->lock);
	for (i = 0; i < e->nr_workers; i++)
		worker_join(&e->workers[i]);
	/* No worker is left: end what was never started. */
	while ((part = e->first)) {
		e->first = part->next;
		plug_part_fail(part, -ECANCELED, NULL);
		plug_req_parts_end(part->req, 1);
	}
	pthread_cond_destroy(&e->ended);
	pthread_mutex_destroy(&e->lock);
	pthread_mutex_destroy(&e->files_lock);
	free(e);
	return NULL;
}

int plug_engine_new(const struct plug_param *params, size_t nr, struct plug_engine **ret_e)
{
	struct plug_engine *e = calloc(1, sizeof(*e));
	unsigned i;
	int err;

	if (!e)
		return -ENOMEM;
	e->pid = getpid();
	e->last = &e->first;
	err = plug_opts_parse(params, nr, &e->opts);
	if (!err)
		err = plug_cond_init(&e->ended);
	if (err) {
		free(e);
		return err;
	}
	pthread_mutex_init(&e->lock, NULL);
	pthread_mutex_init(&e->files_lock, NULL);
	for (i = 0; i < PLUG_THREADS_MAX; i++) {
		e->workers[i].engine = e;
		e->workers[i].wake = -1;
	}
	/* Workers that run read this number. */
	e->nr_workers = e->opts.threads;
	for (i = 0; i < e->nr_workers && !err; i++)
		err = worker_start_thread(e, &e->workers[i]);
	if (err) {
		plug_engine_free(e);
		return err;
	}
	*ret_e = e;
	return 0;
}
