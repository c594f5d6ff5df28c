/* SPDX-License-Identifier: MIT */
/*
 * Batches: up to 32 transfers by one call of the library.
 *
 * Setting one up costs more than most transfers, so they are kept and used again.  An entry
 * that the library refuses keeps all of them from starting.  One that it finds fault with
 * later makes it forget what became of the others: the batch is then broken, and what its
 * entries use stays in use for good, as with one that is given back too early.  Cancelling is
 * not used: the library loses track over it, too.
 *
 * In its compat mode a call waits without end when more entries are under way than it has
 * buffers, 32 at least; there are never more here.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "base/err.h"
#include "base/fork.h"
#include "base/list.h"
#include "base/log.h"
#include "gds/cufile/internal.h"

struct entry {
	struct cufile_taken taken;
	uint64_t len;
	bool write, moving;
};

struct cufile_batch {
	struct list link; /* of those that nobody has */
	cuf_batch handle;
	unsigned nr, left; /* entries; those that are not done */
	bool broken;
	atomic_bool inside; /* a call is, and may be there for ever */
	struct entry v[CUFILE_BATCH_MAX];
	/* The library may look at them until they are done. */
	struct cuf_io_params params[CUFILE_BATCH_MAX];
};

static struct {
	pthread_mutex_t lock; /* not held while the library is called */
	struct list ready;    /* set up, for the next who wants one */
	struct list lost;     /* given back with transfers under way */
	unsigned moving;      /* entries of all */
} batches = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.ready = LIST_INIT(batches.ready),
	.lost = LIST_INIT(batches.lost),
};

/* -------------------------------------------------------------- life cycle */

static struct cufile_batch *take_ready(void)
{
	struct cufile_batch *b = NULL;

	(void)pthread_mutex_lock(&batches.lock);
	if (!list_empty(&batches.ready)) {
		b = list_first(&batches.ready, struct cufile_batch, link);
		list_del(&b->link);
	}
	(void)pthread_mutex_unlock(&batches.lock);
	return b;
}

static int set_up(struct cufile_batch **ret)
{
	struct cufile_batch *b = calloc(1, sizeof(*b));
	struct cuf_error e;

	if (!b)
		return err_set(ENOMEM, "out of memory");
	list_init(&b->link);
	e = cuf.cuFileBatchIOSetUp(&b->handle, CUFILE_BATCH_MAX);
	if (e.err) {
		free(b);
		return cufile_err(e, "set up a batch");
	}
	*ret = b;
	return 0;
}

int cufile_batch_get(struct cufile_batch **ret)
{
	struct cufile_batch *b;
	struct cufile_info info;
	int r = cufile_hold();

	if (r < 0)
		return r;
	cufile_info(&info);
	if (!info.batch)
		r = err_set(EOPNOTSUPP, "this cuFile has no batches");
	b = r == 0 ? take_ready() : NULL;
	if (r == 0 && !b)
		r = set_up(&b);
	if (r < 0) {
		cufile_drop();
		return r;
	}
	*ret = b;
	return 0;
}

int cufile_batch_put(struct cufile_batch *b)
{
	bool lost = atomic_load(&b->inside);
	int r = fork_guard();

	if (r < 0)
		return r;
	lost = lost || b->left || b->broken;
	(void)pthread_mutex_lock(&batches.lock);
	list_add_tail(lost ? &batches.lost : &batches.ready, &b->link);
	(void)pthread_mutex_unlock(&batches.lock);
	if (lost)
		return err_set(EBUSY, "transfers of a batch of cuFile were never seen done");
	cufile_drop();
	return 0;
}

void cufile_batches_end(void)
{
	struct cufile_batch *b;

	while ((b = take_ready())) {
		cuf.cuFileBatchIODestroy(b->handle);
		free(b);
	}
}

/* ---------------------------------------------------------------- starting */

static int reserve(unsigned nr)
{
	int r = 0;

	(void)pthread_mutex_lock(&batches.lock);
	if (nr > CUFILE_BATCH_MAX - batches.moving)
		r = err_set(EAGAIN, "%u transfers in batches of cuFile are under way",
			    batches.moving);
	else
		batches.moving += nr;
	(void)pthread_mutex_unlock(&batches.lock);
	return r;
}

static void unreserve(unsigned nr)
{
	(void)pthread_mutex_lock(&batches.lock);
	batches.moving -= nr;
	(void)pthread_mutex_unlock(&batches.lock);
}

static int entry_take(struct cufile_batch *b, unsigned i, const struct cufile_io *io)
{
	struct entry *e = &b->v[i];
	int r = cufile_take(io, &e->taken);

	if (r < 0)
		return r;
	e->len = io->len;
	e->write = io->flags & CUFILE_IO_WRITE;
	e->moving = true;
	b->params[i] = (struct cuf_io_params){
		.mode = CUF_BATCH,
		.batch = { .base = (void *)(uintptr_t)e->taken.base,
			   .file_off = (off_t)io->file_off,
			   .base_off = (off_t)e->taken.base_off,
			   .len = io->len },
		.file = e->taken.handle,
		.opcode = e->write ? CUF_WRITE : CUF_READ,
		.cookie = (void *)(uintptr_t)(i + 1),
	};
	return 0;
}

static void entry_untake(struct cufile_batch *b, unsigned i)
{
	b->v[i].moving = false;
	b->left--;
	unreserve(1);
	cufile_untake(&b->v[i].taken);
}

/* Is it certain that no entry was started? */
static bool nothing_ran(int code)
{
	return code == CUF_INVALID_VALUE || code == CUF_BATCH_FULL ||
	       code == CUF_INTERNAL_BATCH_SUBMIT_ERROR || code == CUF_BATCH_NOCOMPAT_ERROR;
}

static int submit(struct cufile_batch *b)
{
	struct cuf_error e = cuf.cuFileBatchIOSubmit(b->handle, b->nr, b->params, 0);
	int r;

	if (!e.err)
		return 0;
	r = cufile_err(e, "start a batch of %u", b->nr);
	if (nothing_ran(e.err))
		return r;
	b->broken = true;
	return err_set(EIO, "%s; what of it was started is not known", err_text());
}

static int start(struct cufile_batch *b, const struct cufile_io *v, unsigned nr)
{
	int r;

	if (!nr || nr > CUFILE_BATCH_MAX || b->left || b->broken)
		return err_set(EINVAL, "a batch takes 1 to %u transfers, after its last are done",
			       CUFILE_BATCH_MAX);
	r = reserve(nr);
	if (r < 0)
		return r;
	b->nr = b->left = 0;
	while (r == 0 && b->nr < nr) {
		r = entry_take(b, b->nr, &v[b->nr]);
		if (r == 0)
			b->left = ++b->nr;
	}
	if (r < 0)
		unreserve(nr - b->nr);
	else
		r = submit(b);
	if (r < 0 && !b->broken)
		for (unsigned i = 0; i < b->nr; i++)
			entry_untake(b, i);
	return r;
}

int cufile_batch_start(struct cufile_batch *b, const struct cufile_io *v, unsigned nr)
{
	int r = fork_guard();

	if (r < 0)
		return r;
	atomic_store(&b->inside, true);
	r = start(b, v, nr);
	atomic_store(&b->inside, false);
	return r;
}

/* ------------------------------------------------------------------ ending */

static int broken(struct cufile_batch *b, const char *why)
{
	b->broken = true;
	return err_set(EIO, "a batch of cuFile is broken: %s", why);
}

/* 1 with what an event says; 0 when it says nothing yet; -EIO when it makes no sense. */
static int event(struct cufile_batch *b, const struct cuf_io_event *ev, struct cufile_done *ret)
{
	uintptr_t i = (uintptr_t)ev->cookie - 1;
	struct entry *e;
	int64_t n = (int64_t)ev->ret;

	if (ev->status == CUF_WAITING || ev->status == CUF_PENDING)
		return 0;
	if (i >= b->nr || !b->v[i].moving)
		return broken(b, "it reports a transfer that is not under way");
	e = &b->v[i];
	/* Failed without a reason, or with one that is none. */
	if (ev->status != CUF_COMPLETE && n >= 0)
		n = -1;
	ret->idx = (unsigned)i;
	ret->res = cufile_result(n, 0, e->len, e->write);
	entry_untake(b, (unsigned)i);
	return 1;
}

static int take_done(struct cufile_batch *b, unsigned timeout_ms, struct cufile_done *ret,
		     unsigned max)
{
	struct cuf_io_event ev[CUFILE_BATCH_MAX] = { { .cookie = NULL } };
	struct timespec ts = { .tv_sec = timeout_ms / 1000,
			       .tv_nsec = (long)(timeout_ms % 1000 * NSEC_PER_MSEC) };
	unsigned room = MIN(max, b->left), nr = room, done = 0;
	struct cuf_error e;
	int r = 0;

	if (!b->broken && !room)
		return 0;
	if (b->broken)
		return broken(b, "it lost track of its transfers");
	e = cuf.cuFileBatchIOGetStatus(b->handle, timeout_ms ? 1 : 0, &nr, ev, &ts);
	if (e.err) {
		(void)cufile_err(e, "say what became of a batch");
		return broken(b, err_text());
	}
	if (nr > room)
		return broken(b, "it reports more transfers than it was asked for");
	for (unsigned i = 0; r >= 0 && i < nr; i++) {
		r = event(b, &ev[i], &ret[done]);
		done += r > 0;
	}
	return done ? (int)done : r;
}

int cufile_batch_poll(struct cufile_batch *b, unsigned timeout_ms, struct cufile_done *ret,
		      unsigned max)
{
	int r = fork_guard();

	if (r < 0)
		return r;
	atomic_store(&b->inside, true);
	r = take_done(b, timeout_ms, ret, max);
	atomic_store(&b->inside, false);
	return r;
}
