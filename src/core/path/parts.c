/* SPDX-License-Identifier: MIT */
/*
 * Requests on memory that the CPU reaches: host memory, or device memory through a window.
 *
 * A request is cut into parts.  A part is one file operation, straight between file and memory.
 * The caller's thread starts and settles it, inside submit and reap.
 *
 * In a read, O_DIRECT moves the aligned middle of each piece.  Its edges are plain reads of exactly
 * those bytes, in a second pass.  A write is aligned as a whole or takes no O_DIRECT at all
 * (plan.c).  So nothing outside the request is ever read, modified and written back.  A write may
 * have to wait for other writes of the file (file/writers.c).
 */
#include <fcntl.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/uaccess.h"
#include "window/copy.h"
#include "core/path/parts.h"
#include "core/path/plan.h"
#include "core/path/proof.h"
#include "core/path/small.h"
#include "core/path/window_cache.h"
#include "core/queue/cursor.h"
#include "core/queue/object.h"
#include "core/queue/queue.h"
#include "core/queue/req.h"

/* O_DIRECT moves [start, end) of a piece; nothing where start >= end. */
struct middle {
	uint64_t start, end;
	int unit; /* what a better aligned piece would have to meet */
};

static struct middle piece_middle(const struct req *r, uint64_t off, uint64_t len, const void *addr)
{
	const struct local_file *lf = req_local(r);
	uint64_t unit = r->io.op == PST_OP_WRITE ? MAX(PAGE, lf->off_align) : lf->off_align;
	struct middle m = { align_up(off, unit), align_down(off + len, unit), (int)unit };

	if (((uintptr_t)addr + (m.start - off)) & (lf->mem_align - 1))
		m = (struct middle){ off + len, off + len, (int)lf->mem_align };
	return m;
}

/* Where the piece begins; it is cut to the bytes that are contiguous there.  NULL: there is no
 * window.  *ret_cached is set where there is one. */
static char *piece_addr(struct req *r, struct piece *p, struct cached_window **ret_cached)
{
	const struct pst_mem *m = req_mem(r);
	uint64_t room = p->len;
	char *addr;
	int err;

	if (likely(!r->plan.dev))
		return (char *)m->region->alloc->host + m->off + p->mem_off;
	addr = small_addr(r, p, &room, ret_cached, &err);
	if (!addr)
		req_reason(r, PST_WHY_NO_WINDOW, err);
	p->len = MIN(p->len, room);
	return addr;
}

/* Parts of one piece meet on the file's blocks. */
static uint64_t part_len(const struct req *r, uint64_t off, uint64_t len)
{
	uint64_t unit = MAX(PAGE, req_local(r)->off_align);

	return len <= PART_MAX ? len : align_down(off + PART_MAX, unit) - off;
}

static bool hop_is(const struct req *r, unsigned hop, uint32_t path)
{
	return hop < r->plan.nr_hops && r->plan.hop[hop] == path;
}

static struct proof *direct_proof(const struct req *r)
{
	return r->io.file->direct[r->io.op == PST_OP_WRITE ? PROOF_WRITE : PROOF_READ];
}

static void part_free(struct part *p)
{
	struct pst_queue *q = p->req->q;

	if (unlikely(p->cached_window))
		window_cache_put(&q->cache_user, TAKE_PTR(p->cached_window));
	p->in_flight = false;
	list_del(&p->link);
	p->next = q->parts;
	q->parts = p;
	q->nr_parts++;
}

struct part *part_new(struct req *r)
{
	struct pst_queue *q = r->q;
	struct part *p = q->parts;

	/* Every request can get one part; only parts beyond q->depth may become a request's
	 * second. */
	if (!p || (r->nr_parts && q->nr_parts <= q->depth))
		return NULL;
	q->parts = p->next;
	q->nr_parts--;
	p->req = r;
	p->proving = false;
	list_add_tail(&r->parts, &p->link);
	r->nr_parts++;
	return p;
}

/* The hop through the page cache; nr_hops when the caller listed none. */
static unsigned plain_hop(const struct req *r)
{
	unsigned hop = 0;

	while (hop < r->plan.nr_hops && !hop_is(r, hop, PST_PATH_BUFFERED))
		hop++;
	return hop;
}

/* May the part's write start?  If not by O_DIRECT, then perhaps through the page cache. */
static bool part_may_write(struct part *p)
{
	struct req *r = p->req;
	unsigned plain;

	if (likely(writers_begin(&p->op)))
		return true;
	plain = plain_hop(r);
	if (!(p->op.flags & IO_OP_DIRECT) || plain == r->plan.nr_hops ||
	    (r->io.flags & PST_IO_STRICT))
		return false;
	req_reason(r, PST_WHY_MIXED, 0);
	p->hop = (uint8_t)plain;
	p->op.flags = 0;
	return writers_begin(&p->op);
}

void part_queue(struct part *p)
{
	struct pst_queue *q = p->req->q;
	int r;

	if (p->op.kind == IO_WRITE && unlikely(!part_may_write(p))) {
		writers_wait(&p->op);
		p->next = q->parked;
		q->parked = p;
		return;
	}
	p->in_flight = true;
	r = q->backend->queue(q->ctx, &p->op);

	/* The I/O context has room for every part there is. */
	if (r < 0) {
		p->op.res = r;
		p->op.moved = 0;
		log_error("the I/O context refused a part: %s", err_name(r));
		part_done(p);
	}
}

static void part_fill(struct part *p, unsigned hop, uint64_t off, void *buf, uint64_t len,
		      uint64_t pos)
{
	struct req *r = p->req;
	const struct pst_mem *m = req_mem(r);
	uint8_t flags = 0;

	if (hop_is(r, hop, PST_PATH_DIRECT))
		flags = IO_OP_DIRECT;
	else if (hop_is(r, hop, PST_PATH_CACHED) && plan_nowait(req_local(r)))
		flags = IO_OP_NOWAIT;
	p->hop = (uint8_t)hop;
	p->pos = pos;
	p->op.file = req_local(r);
	p->op.reg = m->region->reg;
	p->op.buf = buf;
	p->op.off = off;
	p->op.len = len;
	p->op.kind = r->io.op == PST_OP_WRITE ? IO_WRITE : IO_READ;
	p->op.flags = flags;
}

/* Bytes from pos on are left for the second pass. */
static void leave_edge(struct req *r, uint64_t pos)
{
	r->edge_pos = MIN(r->edge_pos, pos);
}

/* Where the engine is the fallback, a window serves only reads out of the page cache. */
static unsigned nr_hops(const struct req *r)
{
	return r->plan.restage && r->io.op == PST_OP_READ ? 1 : r->plan.nr_hops;
}

/*
 * The hop for off..off+len, from the given one on.  *ret_skip and *ret_len cut the range
 * to what that hop can move; the rest are edges.  nr_hops when there is none.
 */
static unsigned hop_choose(struct req *r, unsigned hop, uint64_t off, uint64_t len, uint64_t pos,
			   const void *addr, uint64_t *ret_skip, uint64_t *ret_len)
{
	*ret_skip = 0;
	*ret_len = len;
	for (; hop < nr_hops(r); hop++) {
		struct middle m;

		if (hop_is(r, hop, PST_PATH_BUFFERED))
			break;
		if (hop_is(r, hop, PST_PATH_CACHED)) {
			if (plan_try_cached(r, off, len))
				break;
			if (r->plan.listed)
				req_reason(r, PST_WHY_NOT_RESIDENT, 0);
			continue;
		}
		if (proof_is_bad(direct_proof(r))) {
			req_reason(r, PST_WHY_NOT_PROVEN, 0);
			continue;
		}
		if (req_local(r)->direct_bad) {
			req_reason(r, PST_WHY_DIRECT_ERROR, 0);
			continue;
		}
		m = piece_middle(r, off, len, addr);
		if (m.start == off && m.end == off + len)
			break;
		req_reason(r, PST_WHY_UNALIGNED, m.unit);
		/* A write is not aligned where an earlier hop stopped short. */
		if (m.start >= m.end || r->io.op == PST_OP_WRITE)
			continue;
		if (plain_hop(r) == r->plan.nr_hops)
			return nr_hops(r);
		leave_edge(r, m.start > off ? pos : pos + (m.end - off));
		*ret_skip = m.start - off;
		*ret_len = m.end - m.start;
		break;
	}
	return hop;
}

/* No hop is left: the bytes from pos on do not arrive, unless the engine brings them. */
static void no_hop(struct req *r, uint64_t pos, uint64_t len)
{
	char text[200];

	if (r->plan.restage) {
		r->left = true;
		req_settle(r, pos, len, 0, 0);
		return;
	}
	req_settle(r, pos, len, 0, EOPNOTSUPP);
	(void)err_set(EOPNOTSUPP, "no hop is left for this request: %s",
		      pst_why_text(r->why, r->detail, text, sizeof(text)));
}

/*
 * This thread copies what the page cache holds when the I/O context is flushed, and meanwhile
 * looks at no deadline and no cancel.  So it does a bounded part at a time, within
 * pst_queue_submit() a small one, and the rest in pst_queue_reap().
 */
static bool may_copy(struct req *r, unsigned hop, uint64_t off, uint64_t len)
{
	struct pst_queue *q = r->q;

	if (r->io.op != PST_OP_READ || hop_is(r, hop, PST_PATH_DIRECT))
		return true;
	if (likely(len <= q->copy_left)) {
		q->copy_left -= len;
		return true;
	}
	/* Bytes that have to come from the disk are not there to be copied. */
	if (hop_is(r, hop, PST_PATH_BUFFERED) && !plan_resident(req_local(r), off, len))
		return true;
	q->more = true;
	return false;
}

/* One part of the first pass; false when none could be started now. */
static bool start_first(struct req *r)
{
	struct piece pc;
	struct part *p;
	uint64_t len, skip = 0, n = 0;
	unsigned hop;
	char *addr;

	if (!cursor_peek(&r->cur, &pc))
		return false;
	p = part_new(r);
	if (!p)
		return false;
	addr = piece_addr(r, &pc, &p->cached_window);
	len = part_len(r, pc.file_off, pc.len);
	hop = nr_hops(r);
	if (likely(addr))
		hop = hop_choose(r, 0, pc.file_off, len, pc.pos, addr, &skip, &n);
	if (hop < nr_hops(r) && !may_copy(r, hop, pc.file_off, len)) {
		r->nr_parts--;
		part_free(p);
		return false;
	}
	cursor_skip(&r->cur, len);
	if (hop == nr_hops(r)) {
		no_hop(r, pc.pos, len);
		r->nr_parts--;
		part_free(p);
		return true;
	}
	part_fill(p, hop, pc.file_off + skip, addr + skip, n, pc.pos + skip);
	part_queue(p);
	return true;
}

/* The edges that the first pass left. */
static bool start_second(struct req *r)
{
	struct cached_window *cached_window = NULL;
	uint64_t len;
	struct middle m;
	struct piece pc;
	struct part *p;
	char *addr;

	for (;;) {
		if (!cursor_peek(&r->cur, &pc))
			return false;
		/* Nothing that goes into a window has edges. */
		addr = piece_addr(r, &pc, &cached_window);
		m = piece_middle(r, pc.file_off, pc.len, addr);
		if (m.start < m.end) {
			if (m.start > pc.file_off) {
				len = m.start - pc.file_off;
				break;
			}
			cursor_skip(&r->cur, m.end - m.start);
			continue;
		}
		len = part_len(r, pc.file_off, pc.len);
		/* A read without a middle went through the page cache in the first pass; what
		 * is left of a piece whose middle was skipped is its tail. */
		if (r->cur.off)
			break;
		cursor_skip(&r->cur, pc.len);
	}
	p = part_new(r);
	if (!p)
		return false;
	cursor_skip(&r->cur, len);
	part_fill(p, plain_hop(r), pc.file_off, addr, len, pc.pos);
	part_queue(p);
	return true;
}

static void parts_check_end(struct req *r)
{
	if (r->nr_parts || r->starting)
		return;
	if (r->left && !r->stop && !r->err) {
		small_give_up(r);
		return;
	}
	if (!r->stop && !r->err && !cursor_at_end(&r->cur))
		return;
	if (r->stop && r->left)
		req_settle(r, r->limit, r->total - r->limit, 0, r->end_err);
	if (r->stop && !cursor_at_end(&r->cur))
		req_settle(r, r->cur.pos, r->total - r->cur.pos, 0, r->end_err);
	if (r->edge_pos != UINT64_MAX && !r->second) {
		if (!r->err && !r->stop) {
			r->second = true;
			cursor_init(&r->cur, r->cur.segs, r->cur.nr);
			parts_start(r);
			return;
		}
		req_settle(r, r->edge_pos, r->total - r->edge_pos, 0,
			   r->stop ? r->end_err : r->err);
	}
	queue_finish(r);
}

void parts_start(struct req *r)
{
	/* A part that the I/O context refuses is done at once, and must not end the request in
	 * here. */
	r->starting = true;
	if (!r->stop)
		while (!r->err && !r->left && (r->second ? start_second(r) : start_first(r)))
			;
	r->starting = false;
	/* A request that found no free part, or has to let others go first, waits on q->started. */
	if (!cursor_at_end(&r->cur) && !r->err && !r->left && !r->stop && list_empty(&r->link))
		list_add_tail(&r->q->started, &r->link);
	parts_check_end(r);
}

void parts_sync(struct req *r)
{
	struct part *p = part_new(r);

	if (!p) {
		if (list_empty(&r->link))
			list_add_tail(&r->q->started, &r->link);
		return;
	}
	r->sync_started = true;
	p->hop = 0;
	p->pos = 0;
	p->op.file = req_local(r);
	p->op.reg = NULL;
	p->op.buf = NULL;
	p->op.off = p->op.len = 0;
	p->op.kind = r->io.flags & PST_IO_DATASYNC ? IO_FDATASYNC : IO_FSYNC;
	p->op.flags = 0;
	part_queue(p);
}

void parts_unpark(struct pst_queue *q)
{
	struct part *p, *next;

	registry_progress(&q->dropped);
	p = TAKE_PTR(q->parked);
	for (; p; p = next) {
		next = p->next;
		if (p->req->stop) {
			io_op_begin(&p->op);
			p->op.res = -ECANCELED;
			part_done(p);
		} else {
			part_queue(p);
		}
	}
}

void parts_cancel(struct req *r)
{
	struct pst_queue *q = r->q;
	struct list *e;

	list_for_each (e, &r->parts) {
		struct part *p = list_entry(e, struct part, link);

		if (p->in_flight)
			q->backend->cancel(q->ctx, &p->op);
	}
}

/* O_DIRECT was refused, not failed: what the kernel says to what it cannot do. */
static bool direct_refused(int err)
{
	return err == EINVAL || err == EOPNOTSUPP || err == ENOTBLK;
}

/* Send what is left of a part through the next hop. */
static void part_next_hop(struct part *p, uint64_t got)
{
	struct req *r = p->req;
	uint64_t off = p->op.off + got, len = p->op.len - got, pos = p->pos + got, skip, n;
	char *addr = (char *)p->op.buf + got;
	unsigned hop = p->hop + 1u;

	/* Edges inside a piece are not the piece's own: the second pass would not find them. */
	if (got && hop_is(r, hop, PST_PATH_DIRECT) && piece_middle(r, off, len, addr).start != off)
		hop++;
	hop = hop_choose(r, hop, off, len, pos, addr, &skip, &n);
	if (hop == nr_hops(r) || r->stop) {
		if (r->stop)
			req_settle(r, pos, len, 0, r->end_err);
		else
			no_hop(r, pos, len);
		part_free(p);
		parts_check_end(r);
		return;
	}
	r->nr_parts++;
	part_fill(p, hop, off + skip, addr + skip, n, pos + skip);
	part_queue(p);
}

static void part_remember_proof(struct part *p, uint64_t got)
{
	struct req *r = p->req;
	struct proof *proof = direct_proof(r);

	if (r->proof_len || !got || proof_state(proof) == PST_STATE_PROVEN)
		return;
	r->proof = proof;
	r->proof_off = p->op.off;
	r->proof_len = MIN(got, PROOF_MAX);
	r->proof_data = p->op.buf;
}

void part_done(struct part *p)
{
	struct req *r = p->req;
	struct io_op *op = &p->op;
	uint64_t got = op->moved;
	int err = op->res < 0 ? (int)-op->res : 0;

	r->nr_parts--;
	p->in_flight = false;
	writers_end(op);
	if (r->ended) {
		/* Its completion went out; this only makes it quiet. */
		part_free(p);
		if (!r->nr_parts)
			queue_finish(r);
		return;
	}
	if (p->proving) {
		int64_t res = op->res;

		part_free(p);
		parts_proof_done(r, res);
		return;
	}
	if (op->kind == IO_FSYNC || op->kind == IO_FDATASYNC) {
		if (err)
			r->err = err == ECANCELED ? r->end_err : err;
		part_free(p);
		queue_finish(r);
		return;
	}
	if (op->pinned)
		r->flags |= PST_DONE_PINNED;
	if (op->pin_err)
		req_reason(r, PST_WHY_MEMLOCK, op->pin_err);
	if (got)
		req_moved(r, r->plan.hop[p->hop], got);
	if (got && r->plan.dev) {
		copy_fence_stores(); /* the kernel's into the window */
		req_moved(r, r->plan.dev, got);
	}
	if (err == ECANCELED && r->stop)
		err = r->end_err;

	if (op->flags & IO_OP_NOWAIT) {
		bool miss = err == EAGAIN || err == EOPNOTSUPP ||
			    (!err && got < op->len && !plan_at_end(op->file, op->off + got));

		if (!r->stop) /* a cancel says nothing of the page cache */
			plan_cached(r, !miss && !err);
		if (miss) {
			if (r->plan.listed)
				req_reason(r, PST_WHY_NOT_RESIDENT, 0);
			part_next_hop(p, got);
			return;
		}
	}
	if (hop_is(r, p->hop, PST_PATH_DIRECT)) {
		if (direct_refused(err)) {
			atomic_store(&req_local(r)->direct_bad, true);
			req_reason(r, PST_WHY_DIRECT_ERROR, err);
			log_info("O_DIRECT refused with %s, going on without", err_name(err));
			part_next_hop(p, got);
			return;
		}
		part_remember_proof(p, got);
	}
	req_settle(r, p->pos, op->len, got, err);
	/* Nothing is behind the end of the file: a request of one piece does not ask for it. */
	if (!err && got < op->len && r->one_piece && !r->second)
		r->cur.seg = r->cur.nr;
	part_free(p);
	parts_check_end(r);
}
