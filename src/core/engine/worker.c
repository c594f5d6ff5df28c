/* SPDX-License-Identifier: MIT */
/*
 * The threads of an engine, each with an I/O context to files and a stream of the device.
 */
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include "base/err.h"
#include "base/thread.h"
#include "topo/numa.h"
#include "core/engine/engine.h"
#include "core/engine/job.h"
#include "core/queue/queue.h"

#define SPIN_MAX MIB(1) /* bytes of a copy worth spinning for, */
#define SPIN_NS 60000u  /* that long: more than it should take */
#define POLL_NS 20000u  /* between two looks at what can only be polled */

/* A short copy on a stream that can only be polled is done before a sleep would end. */
static bool spin_for_copy(struct worker *w)
{
	const struct job *j;
	uint64_t end;

	if (list_empty(&w->copying))
		return false;
	j = list_first(&w->copying, struct job, link);
	if (j->len > SPIN_MAX)
		return false;
	end = now_ns() + SPIN_NS;
	do {
		if (mem_poll(w->stream, j->ticket))
			return true;
	} while (now_ns() < end);
	return false;
}

/* Nanoseconds until the worker asks a path without slots again whether it has room; UINT64_MAX for
 * never. */
static uint64_t pieces_nap(struct engine *e)
{
	uint64_t at, now;

	pthread_mutex_lock(&e->lock);
	at = e->pieces_look;
	pthread_mutex_unlock(&e->lock);
	if (likely(at == UINT64_MAX))
		return at;
	now = now_ns();
	return at - MIN(now, at);
}

/* Sleep until the I/O context, the stream or a new request has something for us. */
static void worker_sleep(struct worker *w)
{
	struct engine *e = w->engine;
	int sfd = mem_stream_fd(w->stream);
	struct pollfd pfd[2] = { { .fd = w->efd, .events = POLLIN },
				 { .fd = sfd, .events = POLLIN } };
	bool copying = !list_empty(&w->copying) || !list_empty(&w->to_copy);
	uint64_t ns = (copying && sfd < 0) || w->flush_again ? POLL_NS : UINT64_MAX;
	struct timespec nap;
	eventfd_t v;

	if (sfd < 0 && spin_for_copy(w))
		return;
	/* Another's write ends without waking us, and so does a request that is stopped. */
	if (w->mover.parked || w->mover.blocked)
		ns = MIN(ns, NAP_NS);
	ns = MIN(ns, order_nap(w));
	ns = MIN(ns, pieces_nap(e));
	nap.tv_sec = (time_t)(ns / NSEC_PER_SEC);
	nap.tv_nsec = (long)(ns % NSEC_PER_SEC);
	(void)e->backend->arm(w->ctx, w->efd, true);
	io_others_arm(&w->others, w->efd, true);
	(void)ppoll(pfd, sfd >= 0 ? 2 : 1, ns == UINT64_MAX ? NULL : &nap, NULL);
	(void)e->backend->arm(w->ctx, w->efd, false);
	io_others_arm(&w->others, w->efd, false);
	(void)eventfd_read(w->efd, &v);
	if (sfd >= 0)
		(void)eventfd_read(sfd, &v);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct engine *e = w->engine;
	char name[16];
	bool stop = false;

	(void)snprintf(name, sizeof(name), "pst-%.6s-%u", e->ops->name, e->device);
	(void)pthread_setname_np(pthread_self(), name);
	numa_stay(e->node);
	/* Naps are short; the kernel would make each 50 us longer. */
	(void)prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
	while (!stop) {
		bool moved = order_watch(e);
		struct job *j;

		/* One at a time, so that its copies run while the next is read. */
		j = engine_next(w);
		moved |= j != NULL;
		if (!j || !j->grouped)
			group_start(w);
		if (j)
			job_start(w, j);
		moved |= worker_progress(w);
		if (moved)
			continue;
		pthread_mutex_lock(&e->lock);
		stop = e->stop;
		/* From here on a new request writes efd; one that came before is found below. */
		w->sleeping = true;
		pthread_mutex_unlock(&e->lock);
		if (!stop) {
			struct job *late = engine_next(w);

			if (late)
				job_start(w, late);
			else
				worker_sleep(w);
		}
		pthread_mutex_lock(&e->lock);
		w->sleeping = false;
		pthread_mutex_unlock(&e->lock);
	}
	return NULL;
}

int worker_init(struct worker *w, struct engine *e)
{
	int r;

	w->engine = e;
	w->efd = -1;
	list_init(&w->to_copy);
	list_init(&w->copying);
	list_init(&w->group);
	w->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->efd < 0)
		return err_set(errno, "no descriptor for a worker: %s", err_name(errno));
	r = io_ctx_new(e->backend, CTX_DEPTH, &w->ctx);
	if (r == 0)
		r = e->backend->arm(w->ctx, w->efd, true); /* later ones do not fail */
	if (r < 0)
		return r;
	w->mover = (struct mover){
		.backend = e->backend, .ctx = w->ctx, .others = &w->others, .efd = w->efd
	};
	return mem_stream_new(e->ops, e->device, &w->stream);
}

int worker_start(struct worker *w)
{
	int r = thread_start(&w->thread, worker_main, w);

	w->started = r == 0;
	return r;
}

void worker_done(struct worker *w)
{
	if (w->started) {
		(void)eventfd_write(w->efd, 1);
		(void)pthread_join(w->thread, NULL);
	}
	if (w->stream)
		mem_stream_free(w->stream);
	io_others_free(&w->others);
	if (w->ctx)
		io_ctx_free(w->ctx);
	closep(&w->efd);
}
