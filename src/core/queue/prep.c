/* SPDX-License-Identifier: MIT */
/*
 * pst_queue_prep(): check a request and put it into the queue.
 */
#include <inttypes.h>

#include "base/cancel.h"
#include "base/err.h"
#include "core/engine/share.h"
#include "core/path/plan.h"
#include "core/queue/cursor.h"
#include "core/queue/object.h"
#include "core/queue/queue.h"
#include "core/queue/req.h"

static int prep_check(const struct pst_io *io, uint64_t *ret_total, const struct pst_seg **segs)
{
	const struct pst_file *f = io->file;
	bool sync = io->op == PST_OP_SYNC;
	uint32_t known = sync ? PST_IO_DATASYNC : PST_IO_STRICT | PST_IO_CRC32C;

	if (io->op == PST_OP_READ && io->stream)
		known |= PST_IO_STREAM_WAIT;

	if (unlikely(io->op < PST_OP_READ || io->op > PST_OP_SYNC))
		return err_set(EINVAL, "operation %u is unknown to this version", io->op);
	if (unlikely(io->flags & ~known))
		return err_set(EINVAL, "flags 0x%x do not go with this operation",
			       io->flags & ~known);
	if (unlikely(io->reserved[0] | io->reserved[1] | io->reserved[2] | io->reserved[3]))
		return err_set(EINVAL, "a reserved field is not 0; zero struct pst_io first");
	if (unlikely(!f))
		return err_set(EINVAL, "no file is given");
	if (unlikely(sync && io->stream))
		return err_set(EINVAL, "a sync has no memory to order; leave stream NULL: it "
				       "follows the writes before it, and they their streams");
	*ret_total = 0;
	if (sync)
		return 0;
	if (unlikely(!io->mem))
		return err_set(EINVAL, "no memory is given");
	if (io->op == PST_OP_READ) {
		if (unlikely(!(f->lf->flags & PST_FILE_READ)))
			return err_set(EBADF, "the file is not open for reading");
		if (unlikely(!(io->mem->rights & PST_RIGHT_WRITE)))
			return err_set(EACCES, "the grant of this memory does not allow writing");
	} else {
		if (unlikely(!(f->lf->flags & PST_FILE_WRITE)))
			return err_set(EBADF, "the file is not open for writing");
		if (unlikely(!(io->mem->rights & PST_RIGHT_READ)))
			return err_set(EACCES, "the grant of this memory does not allow reading");
	}
	if (io->segs) {
		if (!io->nr_segs || io->nr_segs > PST_SEGS_MAX)
			return err_set(EINVAL, "nr_segs is %" PRIu64 ", not 1 to %u", io->nr_segs,
				       PST_SEGS_MAX);
		*segs = io->segs;
		return segs_check(io->segs, io->nr_segs, io->mem->len, ret_total);
	}
	if (unlikely(io->nr_segs))
		return err_set(EINVAL, "nr_segs is set, but segs is NULL");
	return segs_check(*segs, 1, io->mem->len, ret_total);
}

/* It is looked at again at submit; here there is a sentence for it. */
static int prep_stream(const struct pst_io *io, struct share *share)
{
	const struct mem_alloc *a = io->mem->region->alloc;
	bool barrier = io->flags & PST_IO_STREAM_WAIT;
	int err;

	NO_CANCEL(); /* pst_queue_prep() leaves it to us */
	err = mem_order_check(a->ops, a->device, io->stream, barrier);

	return err == 0 && barrier ? order_prepare(share) : err;
}

/* -EAGAIN says only one thing: reap first. */
static int not_full(int err)
{
	return err == -EAGAIN ? -EBUSY : err;
}

int queue_prep(struct pst_queue *q, const struct pst_io *io)
{
	struct pst_seg inline_seg = { io->file_off, io->mem_off, io->len, 0, 0, 1 };
	const struct pst_seg *segs = &inline_seg;
	struct share *share = NULL;
	struct req *r;
	uint64_t total;
	int err;

	err = prep_check(io, &total, &segs);
	if (unlikely(err < 0))
		return err;
	if (unlikely(list_empty(&q->free)))
		return err_set(EAGAIN,
			       "all %u requests of the queue are in use (%u not quiet); "
			       "reap first, or make the queue deeper",
			       q->depth, q->nr_busy);
	r = list_first(&q->free, struct req, link);
	if (io->op != PST_OP_SYNC) {
		if (!mem_on_host(io->mem)) {
			const struct mem_alloc *a = io->mem->region->alloc;

			err = engine_share(q, a->ops, a->device, &share);
			if (err < 0)
				return not_full(err);
		}
		if (unlikely(io->stream)) {
			err = prep_stream(io, share);
			if (err < 0)
				return not_full(err);
		}
		r->mem_use = use_get(q, &io->mem->obj);
		if (unlikely(!r->mem_use))
			return -ENOMEM;
	}
	r->file_use = use_get(q, &io->file->obj);
	if (unlikely(!r->file_use)) {
		req_release(r);
		return -ENOMEM;
	}
	list_del(&r->link);
	r->io = *io;
	r->seg = inline_seg;
	r->share = share;
	r->order = NULL;
	r->plan = (struct plan){ 0 };
	cursor_init(&r->cur, io->segs ? io->segs : &r->seg, io->segs ? io->nr_segs : 1);
	r->one_piece = r->cur.nr == 1 && r->cur.segs->count < 2;
	r->can_judge = plan_can_judge(r);
	r->total = r->limit = total;
	r->state = REQ_PREPARED;
	r->end_err = 0;
	r->stop = r->ended = r->started = false;
	r->nr_parts = 0;
	r->edge_pos = UINT64_MAX;
	r->starting = r->second = r->left = r->sync_started = r->dead = false;
	r->nr_jobs = r->nr_touch = r->nr_file = 0;
	r->redo = NULL;
	r->handed_back = false;
	r->nr_crcs = r->max_crcs = 0;
	r->err_pos = UINT64_MAX;
	r->err = 0;
	r->paths = r->why = r->flags = r->crc = 0;
	r->detail = 0;
	r->proof = NULL;
	r->proof_len = 0;
	list_add_tail(&q->prepared, &r->link);
	q->nr_prepared++;
	return 0;
}
