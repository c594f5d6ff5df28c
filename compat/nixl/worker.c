/* SPDX-License-Identifier: MIT */
/* A worker thread: it runs parts of transfers in its own queue. */
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plug_int.h"

#define REAP_MAX 64
/* Milliseconds between looks at what no descriptor tells. */
#define LOST_MS 20   /* has the device finished with the memory of a lost request? */
#define REFUSED_MS 5 /* does the queue take prepared requests now? */
/* Milliseconds that a stopping worker waits for lost requests. */
#define STOP_MS 10000

/* End a part that nothing touches any more. */
static void part_settle(struct plug_part *part)
{
	if (part->mem_handle)
		plug_region_end(part->mem, part->mem_handle);
	if (part->file_handle)
		plug_region_end(part->file, part->file_handle);
	part->mem_handle = NULL;
	part->file_handle = NULL;
	plug_req_parts_end(part->req, 1);
}

static bool part_quiet(const struct plug_part *part)
{
	if (part->mem_handle && pst_mem_drain(part->mem_handle->mem, 0))
		return false;
	return !part->req->write || !pst_file_drain(part->file_handle->file, 0);
}

/* Begin to use memory and file.  Return false after a failure, which is noted. */
static bool part_hold(struct plug_part *part)
{
	if (part->mem)
		part->mem_handle = plug_region_begin(part->mem);
	part->file_handle = plug_region_begin(part->file);
	if (part->file_handle && (part->mem_handle || !part->mem))
		return true;
	plug_part_fail(part, -ECANCELED,
		       "memory or file was deregistered: wait for transfers before that");
	return false;
}

static void part_prepare(struct plug_worker *w, struct plug_part *part)
{
	const struct plug_opts *o = &w->engine->opts;
	struct pst_io io = { .user_data = (uintptr_t)part };
	int err;

	/* After a failure of another part, this one would move bytes in vain. */
	if (atomic_load(&part->req->cancel))
		plug_part_fail(part, -ECANCELED, NULL);
	if (atomic_load(&part->req->err) || !part_hold(part)) {
		part_settle(part);
		return;
	}
	io.file = part->file_handle->file;
	if (part->mem) {
		io.op = part->req->write ? PST_OP_WRITE : PST_OP_READ;
		io.flags = o->strict ? PST_IO_STRICT : 0;
		io.policy = o->policy;
		io.mem = part->mem_handle->mem;
		io.segs = part->segs;
		io.nr_segs = part->nr_segs;
	} else {
		io.op = PST_OP_SYNC;
		io.flags = PST_IO_DATASYNC;
	}
	err = pst_queue_prep(w->queue, &io);
	if (err) {
		plug_part_fail(part, err, pst_error_text());
		part_settle(part);
		return;
	}
	part->slot = w->nr_flight;
	w->flight[w->nr_flight++] = part;
	w->nr_prepared++;
}

static void part_complete(struct plug_worker *w, const struct pst_done *done)
{
	struct plug_part *part = (struct plug_part *)(uintptr_t)done->user_data;
	struct plug_part *moved = w->flight[--w->nr_flight];
	char text[512];

	w->flight[part->slot] = moved;
	moved->slot = part->slot;
	if (done->res == -ECANCELED && atomic_load(&part->req->cancel))
		plug_part_fail(part, -ECANCELED, NULL);
	else if (done->res < 0)
		plug_part_fail(part, (int)done->res, pst_done_text(done, text, sizeof(text)));
	else if (part->mem && (uint64_t)done->res != part->len)
		plug_part_fail(part, -ENODATA, "the file ends before that: read less");
	if (!(done->flags & PST_DONE_BUSY) || part_quiet(part)) {
		part_settle(part);
		return;
	}
	plug_log("a request ended, but something may still touch its memory or file: its "
		 "transfer stays in progress until nothing does");
	if (part->mem)
		plug_region_renew(part->mem, part->mem_handle);
	if (part->req->write)
		plug_region_renew(part->file, part->file_handle);
	part->next = w->lost;
	w->lost = part;
}

static void lost_look(struct plug_worker *w)
{
	struct plug_part **at = &w->lost;

	while (*at) {
		struct plug_part *part = *at;

		if (part_quiet(part)) {
			*at = part->next;
			part_settle(part);
		} else {
			at = &part->next;
		}
	}
}

/* Take parts out of the inbox: no more than a fair share, because other workers wake as well. */
static unsigned inbox_take(struct plug_worker *w, struct plug_part **ret, unsigned max)
{
	struct plug_engine *e = w->engine;
	unsigned share, nr = 0;

	pthread_mutex_lock(&e->lock);
	share = e->nr_inbox / e->nr_workers + 1;
	if (max > share)
		max = share;
	while (nr < max && e->first) {
		struct plug_part *part = e->first;

		e->first = part->next;
		if (!e->first)
			e->last = &e->first;
		e->nr_inbox--;
		ret[nr++] = part;
	}
	pthread_mutex_unlock(&e->lock);
	return nr;
}

static void start_parts(struct plug_worker *w)
{
	struct plug_part *parts[32];
	unsigned max = w->engine->opts.depth - w->nr_flight, nr, i;
	int started;

	nr = inbox_take(w, parts, max < 32 ? max : 32);
	for (i = 0; i < nr; i++)
		part_prepare(w, parts[i]);
	if (!w->nr_prepared)
		return;
	started = pst_queue_submit(w->queue);
	if (started > 0)
		w->nr_prepared -= (unsigned)started;
}

/* Cancel what is in the queue for transfers that are being released. */
static void cancel_parts(struct plug_worker *w, bool all)
{
	unsigned i;

	for (i = 0; i < w->nr_flight; i++) {
		struct plug_part *part = w->flight[i];

		if (all)
			atomic_store(&part->req->cancel, true);
		if (atomic_load(&part->req->cancel))
			(void)pst_queue_cancel(w->queue, (uintptr_t)part);
	}
}

/* Note that the worker sleeps, unless there is something to do. */
static bool fall_asleep(struct plug_worker *w)
{
	struct plug_engine *e = w->engine;
	bool asleep;

	pthread_mutex_lock(&e->lock);
	w->full = w->nr_flight == e->opts.depth;
	asleep = !e->stop && e->cancels == w->cancels && (!e->first || w->full);
	w->asleep = asleep;
	pthread_mutex_unlock(&e->lock);
	return asleep;
}

static void wake_up(struct plug_worker *w)
{
	uint64_t count;

	pthread_mutex_lock(&w->engine->lock);
	w->asleep = false;
	pthread_mutex_unlock(&w->engine->lock);
	(void)!read(w->wake, &count, sizeof(count));
}

static void await_work(struct plug_worker *w)
{
	struct pollfd fds[2] = { { .fd = w->wake, .events = POLLIN }, { .fd = -1 } };
	int timeout_ms = w->lost ? LOST_MS : -1;

	if (w->nr_prepared)
		timeout_ms = REFUSED_MS;
	if (w->nr_flight) {
		fds[1] = (struct pollfd){ .fd = pst_queue_fd(w->queue), .events = POLLIN };
		if (fds[1].fd < 0)
			timeout_ms = 1;
	}
	if (!fall_asleep(w))
		return;
	(void)poll(fds, 2, timeout_ms);
	wake_up(w);
}

static unsigned take_completions(struct plug_worker *w)
{
	struct pst_done dones[REAP_MAX];
	int nr, i;

	if (!w->nr_flight)
		return 0;
	nr = pst_queue_reap(w->queue, dones, 0, REAP_MAX, 0);
	for (i = 0; i < nr; i++)
		part_complete(w, &dones[i]);
	/* Requests that were cancelled before they were submitted have ended, too. */
	if (w->nr_prepared > w->nr_flight)
		w->nr_prepared = w->nr_flight;
	return nr > 0 ? (unsigned)nr : 0;
}

/* End everything, so that nothing touches memory when the engine is gone. */
static void abandon_all(struct plug_worker *w)
{
	unsigned ms;

	for (ms = 0; (w->nr_flight || w->lost) && ms < STOP_MS; ms += LOST_MS) {
		cancel_parts(w, true);
		if (w->nr_prepared)
			(void)pst_queue_submit(w->queue);
		take_completions(w);
		lost_look(w);
		if (w->nr_flight || w->lost)
			(void)poll(NULL, 0, LOST_MS);
	}
	if (w->nr_flight || w->lost)
		plug_log("the backend ended while requests may still touch their memory: do not "
			 "free or reuse the memory");
}

void *plug_worker_main(void *arg)
{
	struct plug_worker *w = arg;
	struct plug_engine *e = w->engine;
	unsigned cancels;
	bool stopping;

	for (;;) {
		pthread_mutex_lock(&e->lock);
		stopping = e->stop;
		cancels = e->cancels;
		pthread_mutex_unlock(&e->lock);
		if (stopping)
			break;
		if (cancels != w->cancels) {
			w->cancels = cancels;
			cancel_parts(w, false);
		}
		start_parts(w);
		if (w->lost)
			lost_look(w);
		if (!take_completions(w))
			await_work(w);
	}
	abandon_all(w);
	return NULL;
}
