/* SPDX-License-Identifier: MIT */
/*
 * Streams of the software device.
 *
 * One thread per device makes the copies, as a DMA engine would: asynchronously, in order within a
 * stream, and taking turns between streams.
 *
 * A stream is a ring of batches with one producer, the stream's user, and one consumer, the
 * device's thread; they share no lock.  The thread runs while the device has streams.
 */
#include <inttypes.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include "base/err.h"
#include "base/fault.h"
#include "base/list.h"
#include "base/thread.h"
#include "base/uaccess.h"
#include "mem/soft.h"

#define BATCHES_MAX 64u    /* maximum batches in flight in a stream; power of two */
#define RESULTS_KEPT 1024u /* last tickets whose result is kept for poll(); power of two */
#define PIECES_FIRST 256u  /* initial room for pieces; power of two */
#define PIECES_MAX 65536u  /* maximum pieces of one batch */
#define SPIN_NS 20000u     /* ns that the thread spins for work before it sleeps */

/* One copy, with its addresses checked and resolved. */
struct piece {
	char *dev;
	char *host;
	uint64_t len;
	bool may_vanish;
};

struct batch {
	uint64_t end; /* number of pieces of the batch and of all earlier batches */
	enum mem_dir dir;
};

struct soft_stream {
	struct mem_stream base;
	struct soft_device *dev;
	uint64_t serial;    /* number of the stream, unique on the device */
	struct list on_dev; /* on dev->streams; under dev->lock */
	bool busy;          /* the thread is copying a batch; under dev->lock */
	int efd;

	/* Written by the user. The thread reads entries up to @head. */
	struct batch batches[BATCHES_MAX];
	struct piece *pieces;
	uint64_t nr_pieces;                 /* length of the ring pieces; power of two */
	uint64_t piece_head;                /* pieces queued since the start; only for the user */
	_Alignas(64) _Atomic uint64_t head; /* latest ticket returned; pairs with next_stream() */

	/* Written by the thread. The user reads entries up to @done. */
	_Alignas(64) _Atomic uint64_t done; /* latest ticket completed; pairs with soft_poll() */
	_Atomic bool signalled;    /* efd was written, and soft_poll() was not called since */
	uint64_t piece_tail;       /* pieces copied since the start; only for the thread */
	int results[RESULTS_KEPT]; /* 0 or a positive errno, by ticket */
};

/* Lock order: ctl, lock. */
struct soft_device {
	unsigned idx;
	pthread_mutex_t ctl; /* covers start and end of the thread */
	unsigned nr_streams;
	pthread_t thread;
	pthread_mutex_t lock; /* covers streams, serial and stop */
	pthread_cond_t quiet; /* signalled when a batch ended */
	struct list streams;  /* in the order of turns: the stream served last is at the end */
	uint64_t serial;      /* number of the latest stream */
	bool stop;
	_Atomic uint32_t work; /* futex: incremented for every queued batch */
	_Atomic bool asleep;
};

static struct soft_device devices[SOFT_DEVICES_MAX];
static bool may_spin;

void soft_streams_init(void)
{
	may_spin = sysconf(_SC_NPROCESSORS_ONLN) > 1;
	for (unsigned i = 0; i < SOFT_DEVICES_MAX; i++) {
		struct soft_device *d = &devices[i];

		d->idx = i;
		(void)pthread_mutex_init(&d->ctl, NULL);
		(void)pthread_mutex_init(&d->lock, NULL);
		(void)pthread_cond_init(&d->quiet, NULL);
		list_init(&d->streams);
	}
}

/* -------------------------------------------------------------- the thread */

/*
 * Tell the thread of new work.  This function increments @work before it reads @asleep; the thread
 * sets @asleep before it sleeps on the old value of @work.  So either this function wakes the
 * thread, or the thread does not sleep.
 */
static void kick(struct soft_device *d)
{
	atomic_fetch_add(&d->work, 1);
	if (atomic_load(&d->asleep))
		(void)syscall(SYS_futex, &d->work, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Wait until d->work differs from @seen. */
static void idle(struct soft_device *d, uint32_t seen)
{
	uint64_t until = now_ns() + SPIN_NS;

	while (may_spin && now_ns() < until) {
		for (unsigned i = 0; i < 16; i++) {
			if (atomic_load(&d->work) != seen)
				return;
			cpu_relax();
		}
	}
	atomic_store(&d->asleep, true);
	while (atomic_load(&d->work) == seen)
		(void)syscall(SYS_futex, &d->work, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
	atomic_store(&d->asleep, false);
}

/* Return the next stream with work; streams take turns.  The lock is held. */
static struct soft_stream *next_stream(struct soft_device *d)
{
	struct list *e;

	list_for_each (e, &d->streams) {
		struct soft_stream *st = list_entry(e, struct soft_stream, on_dev);

		if (atomic_load(&st->head) == atomic_load(&st->done))
			continue;
		list_del(e);
		list_add_tail(&d->streams, e);
		return st;
	}
	return NULL;
}

/* Copy a piece.  Return 0 or a positive errno. */
static int run_piece(const struct piece *p, enum mem_dir dir)
{
	if (p->may_vanish)
		return dir == MEM_TO_DEVICE ? -uaccess_read(p->dev, p->host, p->len)
					    : -uaccess_write(p->host, p->dev, p->len);
	if (dir == MEM_TO_DEVICE)
		memcpy(p->dev, p->host, p->len);
	else
		memcpy(p->host, p->dev, p->len);
	return 0;
}

/* Flip a bit in the target of a piece (fault injection). */
static void piece_spoil(const struct piece *p, enum mem_dir dir)
{
	char *at = (dir == MEM_TO_DEVICE ? p->dev : p->host) + p->len / 2, byte;

	if (dir == MEM_TO_DEVICE || !p->may_vanish) {
		*at ^= 4;
	} else if (uaccess_read(&byte, at, 1) == 0) {
		byte ^= 4;
		(void)uaccess_write(at, &byte, 1);
	}
}

static void run_batch(struct soft_stream *st)
{
	uint64_t ticket = atomic_load(&st->done) + 1;
	const struct batch *b = &st->batches[ticket & (BATCHES_MAX - 1)];
	int err = fault_hit(FAULT_MEM_COPY);
	bool wrong = err == FAULT_WRONG;

	err = wrong ? 0 : err;
	for (; st->piece_tail != b->end; st->piece_tail++) {
		const struct piece *p = &st->pieces[st->piece_tail & (st->nr_pieces - 1)];

		if (!err)
			err = run_piece(p, b->dir);
		if (wrong && !err)
			piece_spoil(p, b->dir);
		wrong = false;
	}
	st->results[ticket & (RESULTS_KEPT - 1)] = err;
	atomic_store(&st->done, ticket);

	/*
	 * One write suffices for all completions until the user polls.  soft_poll() clears
	 * @signalled before it reads @done, so a completion that it misses writes efd again.
	 */
	if (!atomic_exchange(&st->signalled, true))
		(void)eventfd_write(st->efd, 1);
}

static void *thread_main(void *arg)
{
	struct soft_device *d = arg;
	char name[16];

	(void)snprintf(name, sizeof(name), "pst-soft-%u", d->idx);
	(void)pthread_setname_np(pthread_self(), name);

	(void)pthread_mutex_lock(&d->lock);
	for (;;) {
		uint32_t seen = atomic_load(&d->work);
		struct soft_stream *st = next_stream(d);

		if (!st && d->stop)
			break;
		if (st)
			st->busy = true;
		(void)pthread_mutex_unlock(&d->lock);
		if (st)
			run_batch(st);
		else
			idle(d, seen);
		(void)pthread_mutex_lock(&d->lock);
		if (st) {
			st->busy = false;
			(void)pthread_cond_broadcast(&d->quiet);
		}
	}
	(void)pthread_mutex_unlock(&d->lock);
	return NULL;
}

/* End the thread; ctl is held, and no stream exists. */
static void thread_stop(struct soft_device *d)
{
	(void)pthread_mutex_lock(&d->lock);
	d->stop = true;
	(void)pthread_mutex_unlock(&d->lock);
	kick(d);
	(void)pthread_join(d->thread, NULL);
}

/* ----------------------------------------------------------------- streams */

static void stream_freep(struct soft_stream **st)
{
	if (!*st)
		return;
	closep(&(*st)->efd);
	free((*st)->pieces);
	free(*st);
}

int soft_stream_new(unsigned device, struct mem_stream **ret)
{
	_cleanup_(stream_freep) struct soft_stream *st = NULL;
	struct soft_device *d = &devices[device];
	int e, r = 0;

	st = calloc_lines(1, sizeof(*st));
	if (!st)
		return err_set(ENOMEM, "no memory for a stream");
	st->base.ops = &mem_soft_ops;
	st->dev = d;
	st->efd = -1;
	st->nr_pieces = PIECES_FIRST;
	list_init(&st->on_dev);
	st->pieces = malloc(st->nr_pieces * sizeof(*st->pieces));
	if (!st->pieces)
		return err_set(ENOMEM, "no memory for a stream");
	st->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (st->efd < 0) {
		e = errno;
		return err_set(e, "no descriptor for a stream: %s; see RLIMIT_NOFILE (ulimit -n)",
			       err_name(e));
	}

	(void)pthread_mutex_lock(&d->ctl);
	if (!d->nr_streams) {
		d->stop = false;
		r = thread_start(&d->thread, thread_main, d);
	}
	if (!r) {
		d->nr_streams++;
		(void)pthread_mutex_lock(&d->lock);
		st->serial = ++d->serial;
		list_add_tail(&d->streams, &st->on_dev);
		(void)pthread_mutex_unlock(&d->lock);
	}
	(void)pthread_mutex_unlock(&d->ctl);
	if (r < 0)
		return r;
	*ret = &TAKE_PTR(st)->base;
	return 0;
}

void soft_stream_free(struct mem_stream *base)
{
	_cleanup_(stream_freep) struct soft_stream *st = (struct soft_stream *)base;
	struct soft_device *d = st->dev;

	(void)pthread_mutex_lock(&d->lock);
	while (st->busy || atomic_load(&st->done) != atomic_load(&st->head))
		(void)pthread_cond_wait(&d->quiet, &d->lock);
	list_del(&st->on_dev);
	(void)pthread_mutex_unlock(&d->lock);

	(void)pthread_mutex_lock(&d->ctl);
	if (!--d->nr_streams)
		thread_stop(d);
	(void)pthread_mutex_unlock(&d->ctl);
}

/* Enlarge the ring, which is empty, for a batch that is longer than the ring. */
static int grow(struct soft_stream *st, unsigned nr)
{
	uint64_t room = st->nr_pieces;
	struct piece *p;

	while (room < nr)
		room *= 2;
	p = malloc(room * sizeof(*p));
	if (!p)
		return err_set(ENOMEM, "no memory for a batch of %u copies", nr);
	free(st->pieces);
	st->pieces = p;
	st->nr_pieces = room;
	return 0;
}

int soft_copy(struct mem_stream *base, enum mem_dir dir, const struct mem_copy *v, unsigned nr,
	      uint64_t *ret_ticket)
{
	struct soft_stream *st = (struct soft_stream *)base;
	uint64_t head = atomic_load(&st->head), done = atomic_load(&st->done);
	uint64_t tail, ticket = head + 1;
	struct batch *b;
	int r;

	if (nr > PIECES_MAX)
		return err_set(EINVAL, "%u copies in one batch; %u are the most", nr, PIECES_MAX);
	for (unsigned i = 0; i < nr; i++)
		if (v[i].alloc->device != st->dev->idx)
			return err_set(EINVAL, "memory of soft:%u on a stream of soft:%u",
				       v[i].alloc->device, st->dev->idx);

	if (head - done == BATCHES_MAX)
		return err_set(EAGAIN, "the stream has %u batches under way", BATCHES_MAX);
	/* The entry of a completed batch is not reused during the next BATCHES_MAX batches. */
	tail = done ? st->batches[done & (BATCHES_MAX - 1)].end : 0;
	if (st->piece_head - tail + nr > st->nr_pieces) {
		/* The thread reads the ring while a batch is in flight, so the ring cannot be moved
		 * then. */
		if (head != done)
			return err_set(EAGAIN, "the stream has %" PRIu64 " copies under way",
				       st->piece_head - tail);
		r = grow(st, nr);
		if (r < 0)
			return r;
	}

	for (unsigned i = 0; i < nr; i++) {
		st->pieces[st->piece_head++ & (st->nr_pieces - 1)] = (struct piece){
			.dev = soft_bytes(v[i].alloc) + v[i].off,
			.host = v[i].other ? soft_bytes(v[i].other) + v[i].other_off : v[i].host,
			.len = v[i].len,
			.may_vanish = v[i].may_vanish,
		};
	}
	b = &st->batches[ticket & (BATCHES_MAX - 1)];
	b->end = st->piece_head;
	b->dir = dir;
	atomic_store(&st->head, ticket);
	kick(st->dev);
	*ret_ticket = ticket;
	return 0;
}

int soft_poll(struct mem_stream *base, uint64_t ticket)
{
	struct soft_stream *st = (struct soft_stream *)base;
	uint64_t head = atomic_load(&st->head);
	int e;

	if (!ticket || ticket > head)
		return err_set(EINVAL, "ticket %" PRIu64 " was never given out", ticket);
	/* Compare with @head and not with @done, because the thread may be writing the next
	 * result. */
	if (head - ticket >= RESULTS_KEPT)
		return err_set(EINVAL, "ticket %" PRIu64 " is older than the last %u", ticket,
			       RESULTS_KEPT);

	/* Clear @signalled before reading @done; pairs with run_batch(). */
	if (atomic_load(&st->signalled))
		atomic_store(&st->signalled, false);
	if (ticket > atomic_load(&st->done))
		return 0;
	e = st->results[ticket & (RESULTS_KEPT - 1)];
	if (unlikely(e))
		return err_set(e, "the copy on soft:%u failed: %s", st->dev->idx, err_name(e));
	return 1;
}

int soft_stream_fd(struct mem_stream *base)
{
	return ((struct soft_stream *)base)->efd;
}

/* A ticket that a stream must reach.  The serial names the stream, because streams may end and
 * their addresses be reused. */
struct point {
	uint64_t serial;
	uint64_t ticket;
};

/* Return true if the stream has reached the ticket; under the lock.  A stream that does not exist
 * any more waited for its copies. */
static bool reached(const struct soft_device *d, const struct point *p)
{
	struct list *e;

	list_for_each (e, &d->streams) {
		struct soft_stream *st = list_entry(e, struct soft_stream, on_dev);

		if (st->serial == p->serial)
			return atomic_load(&st->done) >= p->ticket;
	}
	return true;
}

int soft_sync(const struct mem_alloc *a)
{
	struct soft_device *d = &devices[a->device];
	_cleanup_(freep) struct point *points = NULL;
	size_t nr = 0, i = 0;
	struct list *e;

	(void)pthread_mutex_lock(&d->lock);
	list_for_each (e, &d->streams)
		nr++;
	points = calloc(nr + 1, sizeof(*points));
	if (points) {
		list_for_each (e, &d->streams) {
			struct soft_stream *st = list_entry(e, struct soft_stream, on_dev);

			points[i++] = (struct point){ st->serial, atomic_load(&st->head) };
		}
		for (i = 0; i < nr; i++)
			while (!reached(d, &points[i]))
				(void)pthread_cond_wait(&d->quiet, &d->lock);
	}
	(void)pthread_mutex_unlock(&d->lock);
	return points ? 0 : err_set(ENOMEM, "no memory to wait for soft:%u", d->idx);
}
