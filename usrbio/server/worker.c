// SPDX-License-Identifier: MIT
/*
 * What the owner calls: lives of worker, files, buffers and rings.
 *
 * In a forked child there are no threads, and locks may be taken by nobody: every call sees that
 * first, and leaves everything alone.
 */
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/stat.h>

#include "usrbio/server/lane.h"

#define LANES_DEFAULT 8u

/* In a child every call of libpenstock says so, and this one does nothing else. */
static bool forked(void)
{
	struct pst_limits l = { .sz = sizeof(l) };

	return unlikely(pst_limits_get(&l) == -EOWNERDEAD);
}

/* ------------------------------------------------------------------ worker */

static unsigned default_lanes(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		return 1;
	return MIN((unsigned)CPU_COUNT(&set), LANES_DEFAULT);
}

int worker_new(const struct worker_opts *opts, struct worker **ret)
{
	struct worker_opts none = { 0 };
	const struct worker_opts *o = opts ? opts : &none;
	struct worker *w;

	if (forked())
		return -EOWNERDEAD;
	if (o->threads > LANES_MAX)
		return -EINVAL;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->table.version = 1;
	(void)pthread_mutex_init(&w->table.lock, NULL);
	(void)pthread_mutex_init(&w->lock, NULL);
	w->max_lanes = o->threads ? o->threads : default_lanes();
	w->guard = o->guard;
	if (w->guard)
		shm_guard();
	*ret = w;
	return 0;
}

struct worker *worker_free(struct worker *w)
{
	if (!w || forked())
		return NULL;
	for (unsigned i = 0; i < w->nr_lanes; i++)
		w->lanes[i] = lane_free(w->lanes[i]);
	if (w->guard)
		shm_unguard();
	(void)pthread_mutex_destroy(&w->table.lock);
	(void)pthread_mutex_destroy(&w->lock);
	free(w);
	return NULL;
}

/*
 * Nobody finds them any more; now see every lane outside of a pass.  A lane that comes
 * meanwhile has not found them.
 */
static void forget(struct worker *w, const struct worker_file *f, const struct worker_buffer *b)
{
	unsigned nr;

	(void)pthread_mutex_lock(&w->lock);
	nr = w->nr_lanes;
	(void)pthread_mutex_unlock(&w->lock);
	for (unsigned i = 0; i < nr; i++) {
		lane_enter(w->lanes[i]);
		lane_forget(w->lanes[i], f, b);
		lane_leave(w->lanes[i]);
	}
}

/* ------------------------------------------------------------------- files */

static void file_free(struct worker_file *f)
{
	f->file = pst_file_close(f->file);
	closep(&f->fd);
	if (f->seek_fd >= 0)
		(void)close(f->seek_fd);
	free(f);
}

static int file_open(struct worker_file *f, int fd)
{
	struct stat st;
	int flags, err = pst_file_wrap(fd, 0, &f->file);

	if (err < 0)
		return err;
	f->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	flags = fcntl(fd, F_GETFL);
	if (f->fd < 0 || flags < 0 || fstat(fd, &st) < 0)
		return -errno;
	f->read = (flags & O_ACCMODE) != O_WRONLY;
	f->write = (flags & O_ACCMODE) != O_RDONLY;
	f->dev = st.st_dev;
	f->ino = st.st_ino;
	return 0;
}

int worker_file_add(struct worker *w, uint64_t number, int fd, struct worker_file **ret)
{
	struct worker_file *f;
	int err;

	if (forked())
		return -EOWNERDEAD;
	f = malloc(sizeof(*f));
	if (!f)
		return -ENOMEM;
	*f = (struct worker_file){ .number = number, .fd = -1, .seek_fd = -1 };
	err = file_open(f, fd);
	if (err < 0) {
		file_free(f);
		return err;
	}
	table_file_add(&w->table, f);
	*ret = f;
	return 0;
}

void worker_file_remove(struct worker *w, struct worker_file *f)
{
	if (forked())
		return;
	table_file_del(&w->table, f);
	forget(w, f, NULL);
	file_free(f);
}

/* ----------------------------------------------------------------- buffers */

static int buffer_add(struct worker *w, const uint8_t id[USRBIO_ID_LEN], struct pst_mem *mem,
		      uint64_t len, uint64_t block_size, bool view, struct worker_buffer **ret)
{
	struct worker_buffer *b;

	if (forked())
		return -EOWNERDEAD;
	if (!len || block_size > len)
		return -EINVAL;
	b = malloc(sizeof(*b));
	if (!b)
		return -ENOMEM;
	*b = (struct worker_buffer){
		.mem = mem,
		.len = len,
		.block_size = block_size,
		.host = pst_mem_ptr(mem) != NULL,
		.view = view,
	};
	memcpy(b->id, id, sizeof(b->id));
	table_buffer_add(&w->table, b);
	*ret = b;
	return 0;
}

int worker_buffer_add(struct worker *w, const uint8_t id[USRBIO_ID_LEN], struct pst_mem *mem,
		      uint64_t len, uint64_t block_size, struct worker_buffer **ret)
{
	return buffer_add(w, id, mem, len, block_size, false, ret);
}

int worker_buffer_add_view(struct worker *w, const uint8_t id[USRBIO_ID_LEN], struct pst_mem *mem,
			   uint64_t len, uint64_t block_size, struct worker_buffer **ret)
{
	return buffer_add(w, id, mem, len, block_size, true, ret);
}

bool worker_buffer_known(struct worker *w, const uint8_t id[USRBIO_ID_LEN])
{
	struct table_cache none = { 0 };

	return !forked() && table_buffer(&w->table, &none, id);
}

void worker_buffer_remove(struct worker *w, struct worker_buffer *b)
{
	if (forked())
		return;
	table_buffer_del(&w->table, b);
	forget(w, NULL, b);
	free(b);
}

/* ------------------------------------------------------------------- rings */

/* The lane with the fewest rings, a new one where there may be more.  Under the worker's lock. */
static int lane_pick(struct worker *w, struct lane **ret)
{
	struct lane *best = NULL;

	for (unsigned i = 0; i < w->nr_lanes; i++)
		if (!best || w->lanes[i]->nr_rings < best->nr_rings)
			best = w->lanes[i];
	if ((!best || best->nr_rings) && w->nr_lanes < w->max_lanes) {
		int err = lane_new(w, w->nr_lanes, &w->lanes[w->nr_lanes]);

		if (err >= 0)
			best = w->lanes[w->nr_lanes++];
		else if (!best)
			return err;
	}
	best->nr_rings++;
	*ret = best;
	return 0;
}

int worker_ring_add(struct worker *w, const struct worker_ring_opts *opts, struct worker_ring **ret)
{
	struct worker_ring *r;
	struct lane *l;
	int err;

	if (forked())
		return -EOWNERDEAD;
	err = ring_new(opts, w->guard, &r);
	if (err < 0)
		return err;
	(void)pthread_mutex_lock(&w->lock);
	err = lane_pick(w, &l);
	(void)pthread_mutex_unlock(&w->lock);
	if (err < 0) {
		ring_free(r);
		return err;
	}
	r->lane = l;
	lane_enter(l);
	list_add_tail(&l->rings, &r->link);
	lane_leave(l);
	lane_kick(l, r);
	*ret = r;
	return 0;
}

void worker_ring_remove(struct worker *w, struct worker_ring *r)
{
	struct lane *l = r->lane;
	struct list *e;

	if (forked())
		return;
	lane_enter(l);
	r->ending = true;
	ring_drop(r);
	lane_take_kicked(l);
	list_for_each (e, &r->started)
		(void)pst_queue_cancel(l->q, (uintptr_t)list_entry(e, struct request, link));
	lane_wake(l);
	while (r->nr_requests)
		(void)pthread_cond_wait(&l->quiet, &l->lock);
	list_del(&r->link);
	list_del(&r->run);
	list_del(&r->timed);
	list_del(&r->touched);
	lane_leave(l);
	(void)pthread_mutex_lock(&w->lock);
	l->nr_rings--;
	(void)pthread_mutex_unlock(&w->lock);
	ring_free(r);
}

void worker_ring_kick(struct worker_ring *r)
{
	if (!forked())
		lane_kick(r->lane, r);
}

bool worker_ring_help(struct worker_ring *r)
{
	return !forked() && lane_help(r->lane, r);
}

void worker_ring_stats(struct worker_ring *r, struct worker_ring_stats *ret)
{
	if (forked()) {
		*ret = (struct worker_ring_stats){ 0 };
		return;
	}
	lane_enter(r->lane);
	*ret = r->st;
	lane_leave(r->lane);
}
