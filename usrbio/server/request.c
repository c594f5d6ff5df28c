/* SPDX-License-Identifier: MIT */
/*
 * One request: the checks of an entry's copy, its way into the queue, and its result.
 */
#include "usrbio/server/hole.h"
#include "usrbio/server/executor.h"

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
	q->dev = f->dev;
	q->ino = f->ino;
	return 0;
}

/* ------------------------------------------------------------------- start */

/* libpenstock wants no two writes under way to the same bytes of a file. */
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
 * May it be started by whoever makes this pass?  A device's engine is started by the first
 * request of a queue for it, which takes its time, and so may a look for holes.
 */
static bool may_block(const struct request *q)
{
	uint64_t bit = UINT64_C(1) << q->ring->executor->idx;

	if (q->ring->forbid_holes)
		return true;
	return !q->buffer->host &&
	       !(atomic_load_explicit(&q->buffer->executors, memory_order_relaxed) & bit);
}

static enum start put(struct request *q, int64_t *ret_result)
{
	struct executor *ex = q->ring->executor;
	struct pst_io io = {
		.op = q->ring->for_read ? PST_OP_READ : PST_OP_WRITE,
		.file = q->file->file,
		.mem = q->buffer->mem,
		.file_off = q->args.file_off,
		.mem_off = q->args.buf_off,
		.len = q->args.len,
		.user_data = (uintptr_t)q,
	};
	int err = pst_queue_prep(ex->q, &io);

	if (err == -EAGAIN)
		return START_LATER;
	if (err < 0) {
		*ret_result = request_result(err);
		return START_OVER;
	}
	if (!q->buffer->host)
		(void)atomic_fetch_or(&q->buffer->executors, UINT64_C(1) << ex->idx);
	/* From here on it is libpenstock that keeps them. */
	q->file = NULL;
	q->buffer = NULL;
	ex->nr_prepared++;
	ex->nr_inflight++;
	return START_TAKEN;
}

enum start request_start(struct request *q, int64_t *ret_result)
{
	struct server_ring *r = q->ring;

	if (!r->for_read && overlaps(q))
		return START_LATER;
	if (unlikely(r->executor->helped && may_block(q))) {
		r->executor->call_thread = true;
		return START_LATER;
	}
	if (unlikely(r->forbid_holes && r->for_read)) {
		int64_t n = hole_cut(q->file, q->args.file_off, q->args.len);

		if (n <= 0) {
			*ret_result = n;
			return START_OVER;
		}
		q->args.len = (uint64_t)n;
	}
	return put(q, ret_result);
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
	/* Not in the list of 3FS, and true. */
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
	struct server_ring_stats *st = &q->ring->st;

	q->ring->executor->nr_inflight--;
	st->paths |= d->paths;
	if (d->why != PST_WHY_NONE) {
		st->why = d->why;
		st->detail = d->detail;
	}
	ring_settle(q, request_result(d->res));
}
