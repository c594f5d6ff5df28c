/* SPDX-License-Identifier: MIT */
/*
 * pst_queue_prep(): check a request and add it to the queue.
 */
#include <inttypes.h>

#include "base/err.h"
#include "core/queue/above.h"
#include "core/queue/cursor.h"
#include "core/queue/object.h"
#include "core/queue/plain.h"
#include "core/queue/queue.h"
#include "core/queue/req.h"

/* Return the flags that the operation does not allow. */
static uint32_t wrong_flags(const struct pst_io *io)
{
	uint32_t known = PST_IO_STRICT | PST_IO_CRC32C;

	if (io->op == PST_OP_SYNC)
		known = PST_IO_DATASYNC;
	else if (io->op == PST_OP_READ)
		known |= PST_IO_VERIFY;
	if (io->op != PST_OP_SYNC && io->flags & PST_IO_CRC32C)
		known |= PST_IO_CRC32C_MEM;
	if (io->op == PST_OP_READ && io->stream)
		known |= PST_IO_STREAM_WAIT;
	/* The stream would continue before the bytes are compared or summed. */
	if (io->flags & PST_IO_STREAM_WAIT)
		known &= ~(PST_IO_VERIFY | PST_IO_CRC32C_MEM);
	return io->flags & ~known;
}

static struct pst_seg inline_seg(const struct pst_io *io)
{
	return (struct pst_seg){ io->file_off, io->mem_off, io->len, 0, 0, 1 };
}

/* Check the pieces of a read or write. */
static int check_pieces(const struct pst_io *io, struct segs_shape *ret)
{
	uint64_t mem_len = io->mem->len;
	struct pst_seg seg;

	if (io->segs) {
		if (!io->nr_segs || io->nr_segs > PST_SEGS_MAX)
			return err_set(EINVAL, "nr_segs is %" PRIu64 ", not 1 to %u", io->nr_segs,
				       PST_SEGS_MAX);
		return segs_check(io->segs, io->nr_segs, mem_len, ret);
	}
	if (unlikely(io->nr_segs))
		return err_set(EINVAL, "nr_segs is set, but segs is NULL");
	if (likely(piece_fits(io->file_off, io->mem_off, io->len, mem_len))) {
		ret->total = io->len;
		return 0;
	}
	seg = inline_seg(io);
	return segs_check(&seg, 1, mem_len, ret);
}

static int prep_check(const struct pst_io *io, struct segs_shape *ret)
{
	const struct pst_file *f = io->file;

	if (unlikely(io->op < PST_OP_READ || io->op > PST_OP_SYNC))
		return err_set(EINVAL, "operation %u is unknown to this version", io->op);
	if (unlikely(io->flags) && wrong_flags(io))
		return err_set(EINVAL, "flags 0x%x do not go with this operation", wrong_flags(io));
	if (unlikely(io->reserved[0] | io->reserved[1] | io->reserved[2]))
		return err_set(EINVAL, "a reserved field is not 0; zero struct pst_io first");
	if (unlikely(!(io->flags & PST_IO_VERIFY) != !io->crc32cs))
		return err_set(EINVAL, "crc32cs and PST_IO_VERIFY go together");
	if (unlikely(!f))
		return err_set(EINVAL, "no file is given");
	if (io->op == PST_OP_SYNC) {
		if (unlikely(io->stream))
			return err_set(EINVAL,
				       "a sync has no memory to order; leave stream NULL: it "
				       "follows the writes before it, and they their streams");
		*ret = (struct segs_shape){ 0 };
		return 0;
	}
	if (unlikely(!io->mem))
		return err_set(EINVAL, "no memory is given");
	if (io->op == PST_OP_READ) {
		if (unlikely(!(f->file->flags & PST_FILE_READ)))
			return err_set(EBADF, "the file is not open for reading");
		if (unlikely(!(io->mem->rights & PST_RIGHT_WRITE)))
			return err_set(EACCES, "the grant of this memory does not allow writing");
	} else {
		if (unlikely(!(f->file->flags & PST_FILE_WRITE)))
			return err_set(EBADF, "the file is not open for writing");
		if (unlikely(!(io->mem->rights & PST_RIGHT_READ)))
			return err_set(EACCES, "the grant of this memory does not allow reading");
	}
	return check_pieces(io, ret);
}

/* Return -EBUSY instead of -EAGAIN, which must mean only that the queue is full. */
static int not_full(int err)
{
	return err == -EAGAIN ? -EBUSY : err;
}

/* Set up the pieces: the inline one, or the caller's segments. */
static inline void prep_piece(struct req *r)
{
	r->seg = inline_seg(&r->io);
	cursor_init(&r->cur, &r->seg, 1);
	r->one_piece = r->can_judge = true;
}

/* Return true if no two pieces of the request can overlap, in the file or in memory. */
static bool pieces_are_apart(const struct req *r)
{
	const struct pst_seg *s = r->cur.segs;

	return r->cur.nr == 1 &&
	       (s->count < 2 || (s->file_stride >= s->len && s->mem_stride >= s->len));
}

static void prep_segs(struct req *r, const struct segs_shape *shape)
{
	r->shape = *shape;
	cursor_init(&r->cur, r->io.segs, r->io.nr_segs);
	r->one_piece = r->io.nr_segs == 1 && r->io.segs->count < 2;
	r->can_judge = pieces_are_apart(r);
}

/* Fill in the request. */
static inline void prep_req(struct pst_queue *q, struct req *r, const struct pst_io *io,
			    uint64_t total)
{
	r->io = *io;
	r->total = r->res.limit = total;
	r->res.err_pos = UINT64_MAX;
	atomic_store_explicit(&r->end_err, 0, memory_order_relaxed);
	r->started = r->stop = r->sync_started = r->on_device = false;
	r->nr_parts = 0;
	r->res.err = r->res.detail = 0;
	r->res.paths = r->res.why = r->res.flags = r->res.crc = 0;
	r->res.wrong = 0;
	req_step(r, REQ_PREP);
	list_move_tail(&q->prepared, &r->link);
	q->nr_prepared++;
}

/* Check a request of any kind, and look up its objects. */
static _noinline_ int prep_other(struct pst_queue *q, const struct pst_io *io)
{
	struct segs_shape shape;
	struct req *r;
	int err;

	err = prep_check(io, &shape);
	if (err < 0)
		return err;
	if (list_empty(&q->free))
		return err_set(EAGAIN,
			       "all %u requests of the queue are in use (%u not quiet); "
			       "reap first, or make the queue deeper",
			       q->depth, q->nr_busy);
	if (io->file->file->ops->backend) {
		err = io_others_add(&q->others, io->file->file->ops->backend, q->ctx->depth, q->efd,
				    q->armed);
		if (err < 0)
			return err;
	}
	r = list_first(&q->free, struct req, link);
	if (io->op != PST_OP_SYNC) {
		if (!mem_on_host(io->mem) || io->stream) {
			err = carry_prep(r, io);
			if (err < 0)
				return not_full(err);
		}
		r->mem_use = use_get(q, &io->mem->obj, &q->last_mem);
		if (!r->mem_use)
			return -ENOMEM;
	}
	r->file_use = use_get(q, &io->file->obj, &q->last_file);
	if (!r->file_use) {
		if (r->mem_use)
			use_put(q, TAKE_PTR(r->mem_use));
		return -ENOMEM;
	}
	prep_req(q, r, io, shape.total);
	r->on_device = io->op != PST_OP_SYNC && !mem_on_host(io->mem);
	if (io->op == PST_OP_SYNC)
		return 0;
	if (io->segs)
		prep_segs(r, &shape);
	else
		prep_piece(r);
	r->one_part = r->one_piece && shape.total <= PART_MAX && mem_on_host(io->mem);
	return 0;
}

int queue_prep(struct pst_queue *q, const struct pst_io *io)
{
	struct req *r;

	if (unlikely(!is_plain(q, io) || list_empty(&q->free)))
		return prep_other(q, io);
	r = list_first(&q->free, struct req, link);
	r->mem_use = q->last_mem;
	r->file_use = q->last_file;
	r->mem_use->nr++;
	r->file_use->nr++;
	prep_req(q, r, io, io->len);
	prep_piece(r);
	r->one_part = io->len <= PART_MAX;
	return 0;
}
