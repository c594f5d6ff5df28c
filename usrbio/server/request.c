/* SPDX-License-Identifier: MIT */
/* Execute one request: check the copy of an entry, queue it, and record its result. */
#include "usrbio/server/hole.h"
#include "usrbio/server/executor.h"
#include "usrbio/server/named.h"

/* Time limit of requests on files of a storage service, whose server may hang: 30 s, the same as
 * for system calls on a mount. */
#define NAMED_NS (30 * NSEC_PER_SEC)

/* ------------------------------------------------------------------ checks */

static int check_buffer(const struct server_buffer *b, uint64_t off, uint64_t len)
{
	if (off >= b->len || len > b->len - off)
		return -EINVAL;
	if (b->block_size && off / b->block_size != (off + len - 1) / b->block_size)
		return -EINVAL;
	return 0;
}

int request_check(struct request *q)
{
	struct server_ring *r = q->ring;
	const struct usrbio_args *a = &q->args;
	struct table *t = &r->executor->w->table;
	struct server_buffer *b;
	struct server_file *f;
	int err;

	if (!a->len || a->len > INT64_MAX || a->file_off > INT64_MAX - a->len)
		return -EINVAL;
	f = table_file(t, &r->executor->cache, a->file, !r->for_read, &err);
	if (!f)
		return err;
	b = table_buffer(t, &r->executor->cache, a->buf_id);
	if (!b)
		return -EINVAL;
	err = check_buffer(b, a->buf_off, a->len);
	if (err < 0)
		return err;
	q->file = f;
	q->buffer = b;
	q->mem = b->mem;
	q->mem_off = a->buf_off;
	q->told = f->told && !r->for_read;
	q->dev = f->dev;
	q->ino = f->ino;
	return 0;
}

/* ------------------------------------------------------------------- start */

/* Return true if an earlier unfinished write overlaps: libpenstock does not allow two concurrent
 * writes to the same bytes of a file. */
static bool overlaps(const struct request *q)
{
	struct list *e;

	list_for_each (e, &q->ring->started) {
		const struct request *o = list_entry(e, struct request, link);
		uint64_t start = o->args.file_off, end = start + o->args.len;

		if (o->ino == q->ino && o->dev == q->dev &&
		    start < q->args.file_off + q->args.len && q->args.file_off < end)
			return true;
	}
	return false;
}

/*
 * Return true if starting the request may block: the first request of a queue for a device starts
 * the device's engine, and lseek(2) may block when it looks for holes.  A request through a window
 * needs no engine.
 */
static bool may_block(const struct request *q, const struct runner *h)
{
	const struct server_buffer *b = q->buffer;

	if (q->ring->forbid_holes)
		return true;
	if (!b->device || runner_knows(h, b->device))
		return false;
	return !b->import || !import_fits(b->import, q->ring->for_read, q->args.len);
}

bool request_start(struct request *q, struct runner *h)
{
	struct server_ring *r = q->ring;

	if (!r->for_read && overlaps(q))
		return false;
	if (unlikely(h->helps && may_block(q, h))) {
		r->executor->call_thread = true;
		r->executor->call_device = q->buffer->device;
		return false;
	}
	q->runner = h;
	q->out = true;
	q->next = NULL;
	*h->last = q;
	h->last = &q->next;
	return true;
}

/* -------------------------------------------------------------------- move */

static void over(struct request *q, int64_t result)
{
	q->step = REQUEST_OVER;
	q->result = result;
	q->paths = q->why = 0;
}

static void over_by(struct request *q, const struct pst_done *d)
{
	over(q, request_result(d->res));
	q->paths = d->paths;
	q->why = d->why;
	q->detail = d->detail;
}

/* Take a slot for a small request through a window; for a write, load the bytes into it. */
static int take_slot(struct request *q)
{
	struct import *im = q->buffer->import;
	int err = stage_take(&q->runner->stage, &q->slot);

	if (err < 0)
		return err;
	q->import = import_ref(im);
	q->mem = slot_mem(&q->slot);
	q->mem_off = slot_off(&q->slot);
	return q->ring->for_read
		       ? 0
		       : import_load(im, q->args.buf_off, slot_ptr(&q->slot), q->args.len);
}

bool request_open(struct request *q)
{
	struct pst_file *file = q->file->file;
	int err = file ? 0 : named_file(q->file->named, &file);

	q->mem = NULL;
	if (err < 0 && err != -EAGAIN)
		over(q, request_result(err));
	if (err < 0)
		return false;
	/* Several threads may store this, always the same pointer. */
	q->file->file = file;
	q->mem = q->buffer->mem;
	return true;
}

void request_place(struct request *q)
{
	struct import *im = q->buffer->import;
	int err;

	q->mem = NULL;
	q->mem_off = q->args.buf_off;
	err = import_fits(im, q->ring->for_read, q->args.len) ? take_slot(q)
							      : import_mem(im, &q->mem);
	if (err < 0)
		request_unplace(q);
	if (err < 0 && err != -EAGAIN)
		over(q, request_result(err));
}

static void put_slot(struct request *q, bool busy)
{
	stage_put(&q->runner->stage, &q->slot, busy);
	import_unref(TAKE_PTR(q->import));
}

void request_unplace(struct request *q)
{
	if (q->slot.stage)
		put_slot(q, false);
	if (q->buffer->import)
		q->mem = NULL;
}

void request_land(struct request *q, struct pst_done *d)
{
	if (q->ring->for_read && d->res > 0) {
		int r = import_store(q->import, q->args.buf_off, slot_ptr(&q->slot),
				     (uint64_t)d->res);

		if (r < 0)
			d->res = r;
	}
	d->paths |= PST_PATH_BIT(PST_PATH_WINDOW);
	put_slot(q, d->flags & PST_DONE_BUSY);
}

void request_tried(struct request *q, struct pst_done *d)
{
	q->step = REQUEST_AGAIN;
	if (d->res == -EAGAIN)
		return;
	if (unlikely(q->slot.stage))
		request_land(q, d);
	over_by(q, d);
}

void request_prep(struct request *q)
{
	struct pst_io io = request_io(q);
	int r;

	if (q->file->named)
		io.deadline_ns = now_ns() + NAMED_NS;

	if (unlikely(q->ring->forbid_holes && q->ring->for_read)) {
		int64_t n = hole_cut(q->file, io.file_off, io.len);

		if (n <= 0) {
			over(q, n);
			return;
		}
		io.len = (uint64_t)n;
	}
	r = pst_queue_prep(q->runner->q, &io);
	if (r < 0 && r != -EAGAIN)
		over(q, request_result(r));
	else
		q->step = r < 0 ? REQUEST_AGAIN : REQUEST_PREPARED;
}

static void prepared(struct request *q)
{
	struct runner *h = q->runner;

	if (q->buffer->device && !q->slot.stage && !runner_knows(h, q->buffer->device))
		h->devices[h->nr_devices++ % RUNNER_DEVICES] = q->buffer->device;
	/* libpenstock now holds references to file and memory. */
	q->file = NULL;
	q->buffer = NULL;
	h->nr_prepared++;
	h->nr_inflight++;
}

/* Record the request's result. */
static void request_settle(struct request *q)
{
	struct server_ring_stats *st = &q->ring->st;

	st->paths |= q->paths;
	if (q->ring->executor->lane)
		for (uint32_t set = q->paths; set; set &= set - 1)
			usrbio_lane_add(q->ring->executor->lane,
					TALLY_PATH + (unsigned)__builtin_ctz(set) % TALLY_PATHS, 1);
	if (q->why != PST_WHY_NONE) {
		st->why = q->why;
		st->detail = q->detail;
	}
	ring_settle(q, q->result);
}

void request_moved(struct request *q)
{
	q->out = false;
	switch (q->step) {
	case REQUEST_PREPARED:
		prepared(q);
		break;
	case REQUEST_OVER:
		request_settle(q);
		break;
	case REQUEST_AGAIN:
		request_back(q);
	}
}

/* ------------------------------------------------------------------ result */

int64_t request_result(int64_t res)
{
	if (res >= 0)
		return res;
	switch (-res) {
	case EINVAL:
	case EBADF:
	case EPERM:
	case EROFS:
	case ENOSPC:
	case ENOENT:
	case ENODATA:
	case EACCES:
	case EMFILE:
	case EINTR:
	case ENOMEM:
	case EFBIG:
	case ENOSYS:
	case EREMOTEIO:
	case EIO:
	/* 3FS's list lacks these errors, but clients can handle them. */
	case EBUSY:
	case EDQUOT:
	case EFAULT:
	case ENODEV:
	case EOPNOTSUPP:
	case ESTALE:
	case ETIMEDOUT:
		return res;
	case ECANCELED:
		return -EINTR;
	case ERANGE:
	case EOVERFLOW:
		return -EINVAL;
	default:
		return -EIO;
	}
}

void request_done(struct request *q, const struct pst_done *d)
{
	q->runner->nr_inflight--;
	over_by(q, d);
	request_settle(q);
}
