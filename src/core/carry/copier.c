/* SPDX-License-Identifier: MIT */
#include <sys/eventfd.h>

#include "base/err.h"
#include "core/carry/copier.h"
#include "core/carry/job.h"
#include "core/sched/above.h"
#include "core/sched/engine.h"

int copier_init(struct engine *e)
{
	struct copier *c = &e->copier;

	(void)pthread_mutex_init(&c->lock, NULL);
	list_init(&c->filled);
	for (unsigned i = 0; i < COPIER_BATCHES; i++)
		list_init(&c->batches[i].jobs);
	if (!mem_copies(e->ops))
		return 0; /* the device's requests use other paths, without a copier */
	return mem_stream_new(e->ops, e->device, &c->stream);
}

void copier_done(struct engine *e)
{
	struct copier *c = &e->copier;

	if (c->stream)
		mem_stream_free(c->stream);
	(void)pthread_mutex_destroy(&c->lock);
}

void copier_add(struct engine *e, struct job *j)
{
	struct copier *c = &e->copier;

	list_add_tail(&c->filled, &j->link);
	if (!atomic_fetch_add(&c->nr, 1))
		atomic_store(&c->moved_at, now_ns());
	atomic_fetch_add(&c->nr_warm, j->warm);
	atomic_fetch_add(&c->nr_bytes, j->len);
	atomic_fetch_add(&c->nr_filled, 1);
}

/* Return true if another batch may start; under the copier's lock. */
static bool copier_has_room(const struct copier *c)
{
	return c->nr_batches < COPIER_BATCHES && !c->full;
}

/* A batch that is being assembled. */
struct next {
	struct list jobs;
	unsigned nr_copies; /* copies in copier.v */
	unsigned nr_sgls;   /* lists in copier.sgls */
	uint64_t bytes;
};

/* Return true if the job may join the batch.  A job that must be alone joins only an empty batch.
 * A batch never mixes jobs that have a list of copies with jobs that have none. */
static bool copier_fits(const struct next *n, const struct job *j)
{
	if (list_empty(&n->jobs))
		return true;
	if (j->alone || n->bytes + j->len > COPIER_BYTES)
		return false;
	return j->sgl.nr ? !n->nr_copies && n->nr_sgls < MEM_SGLS
			 : !n->nr_sgls && n->nr_copies + j->nr_spans <= COPIER_PIECES;
}

/* Move waiting jobs that fit together into the next batch. */
static void take_filled(struct engine *e, struct next *n)
{
	struct copier *c = &e->copier;
	bool go_on = true;

	pthread_mutex_lock(&e->lock);
	while (go_on && !list_empty(&c->filled)) {
		struct job *j = list_first(&c->filled, struct job, link);

		if (!copier_fits(n, j))
			break;
		list_move_tail(&n->jobs, &j->link);
		atomic_fetch_sub(&c->nr_filled, 1);
		n->bytes += j->len;
		if (j->sgl.nr)
			c->sgls[n->nr_sgls++] = j->sgl;
		else
			n->nr_copies = job_copies(j, c->v, n->nr_copies);
		go_on = !j->alone;
	}
	pthread_mutex_unlock(&e->lock);
}

static int next_copy(struct copier *c, const struct next *n, uint64_t *ret_ticket)
{
	return n->nr_sgls ? mem_sgl_copy(c->stream, c->sgls, n->nr_sgls, ret_ticket)
			  : mem_copy(c->stream, MEM_TO_DEVICE, c->v, n->nr_copies, ret_ticket);
}

/* Put jobs back at the head of the waiting list, under the engine's lock. */
static void put_back(struct engine *e, struct list *jobs, bool alone)
{
	struct copier *c = &e->copier;

	while (!list_empty(jobs)) {
		struct job *j = list_entry(jobs->prev, struct job, link);

		j->alone |= alone;
		if (alone)
			j->sgl.nr = 0;
		list_del(&j->link);
		list_add_tail(c->filled.next, &j->link);
		atomic_fetch_add(&c->nr_filled, 1);
	}
}

static bool has_one(const struct list *jobs)
{
	return jobs->next == jobs->prev;
}

/*
 * Handle a batch that failed or could not start.  If it has several jobs, any of them may be the
 * cause, so copy each job alone.  If the device refuses the list of a single job, copy it without
 * the list.
 */
static void batch_failed(struct engine *e, struct list *jobs, int err, struct list *ret_ended)
{
	bool no_sgl = err == EOPNOTSUPP && list_first(jobs, struct job, link)->sgl.nr;

	if (has_one(jobs) && !no_sgl) {
		list_first(jobs, struct job, link)->copy_err = err;
		list_move_tail(ret_ended, jobs->next);
		return;
	}
	pthread_mutex_lock(&e->lock);
	put_back(e, jobs, true);
	pthread_mutex_unlock(&e->lock);
}

/* Start the next batch, under the copier's lock.  Return false if no batch was started. */
static bool batch_start(struct engine *e, struct list *ret_ended)
{
	struct copier *c = &e->copier;
	struct batch *b = &c->batches[(c->first + c->nr_batches) % COPIER_BATCHES];
	struct next next = { .jobs = LIST_INIT(next.jobs) };
	struct list *jobs = &next.jobs;
	uint32_t by;
	int r;

	take_filled(e, &next);
	if (list_empty(jobs))
		return false;
	r = next_copy(c, &next, &b->ticket);
	if (r == -EAGAIN && c->nr_batches) {
		pthread_mutex_lock(&e->lock);
		put_back(e, jobs, false);
		pthread_mutex_unlock(&e->lock);
		c->full = true;
		return false;
	}
	if (r < 0) {
		batch_failed(e, jobs, -r, ret_ended);
		return true;
	}
	by = mem_copied_by(c->stream);
	while (!list_empty(jobs)) {
		struct job *j = list_first(jobs, struct job, link);

		job_copying(j, by);
		list_move_tail(&b->jobs, &j->link);
	}
	c->nr_batches++;
	return true;
}

/* Poll the oldest batch.  Clear the stream's descriptor first, so that a batch that ends during the
 * poll makes the descriptor readable again. */
static int batch_poll(struct copier *c)
{
	int fd = mem_stream_fd(c->stream);
	eventfd_t v;

	if (fd >= 0)
		(void)eventfd_read(fd, &v);
	return mem_poll(c->stream, c->batches[c->first].ticket);
}

/* End the oldest batch if the device has copied it, under the copier's lock.  Return true if so. */
static bool copier_batch_end(struct engine *e, struct list *ret_ended)
{
	struct copier *c = &e->copier;
	struct batch *b = &c->batches[c->first];
	int r = c->nr_batches ? batch_poll(c) : 0;

	if (!r)
		return false;
	c->first = (c->first + 1) % COPIER_BATCHES;
	c->nr_batches--;
	c->full = false;
	if (r < 0)
		batch_failed(e, &b->jobs, -r, ret_ended);
	while (!list_empty(&b->jobs))
		list_move_tail(ret_ended, b->jobs.next);
	return true;
}

/* End finished batches and start new ones, under the copier's lock.  Return true if a batch ended
 * or started. */
static bool batches_move(struct engine *e, struct list *ret_ended)
{
	struct copier *c = &e->copier;
	bool moved = false;

	while (copier_batch_end(e, ret_ended))
		moved = true;
	while (copier_has_room(c) && atomic_load(&c->nr_filled) && batch_start(e, ret_ended))
		moved = true;
	if (moved)
		atomic_store(&c->moved_at, now_ns());
	return moved;
}

bool copier_progress(struct worker *w)
{
	struct engine *e = w->engine;
	struct copier *c = &e->copier;
	struct list ended = LIST_INIT(ended), *el;
	bool moved = false, again;
	uint64_t bytes = 0;
	unsigned nr = 0, nr_warm = 0;

	if (!atomic_load(&c->nr))
		return false;
	do {
		if (pthread_mutex_trylock(&c->lock) != 0)
			break; /* the thread with the lock will check for waiting jobs again */
		moved |= batches_move(e, &ended);
		again = copier_has_room(c);
		pthread_mutex_unlock(&c->lock);
	} while (again && atomic_load(&c->nr_filled));
	if (list_empty(&ended))
		return moved;
	list_for_each (el, &ended) {
		const struct job *j = list_entry(el, struct job, link);

		nr++;
		nr_warm += j->warm;
		bytes += j->len;
	}
	atomic_fetch_sub(&c->nr_bytes, bytes);
	atomic_fetch_sub(&c->nr_warm, nr_warm);
	atomic_fetch_sub(&c->nr, nr);
	jobs_copied(w, &ended);
	return true;
}
