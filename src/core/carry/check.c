/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/err.h"
#include "base/log.h"
#include "core/carry/check.h"
#include "core/queue/cursor.h"
#include "core/queue/object.h"
#include "core/queue/req.h"
#include "core/sched/above.h"
#include "core/sched/turns.h"
#include "core/sched/wake.h"

#define COPY_BYTES MIB(1) /* bytes copied to the host at a time, for memory without checksums */
#define COPY_PIECES 16u   /* maximum copies to the host before the worker does other work */

/* The state of a worker that computes the checksums of one request after another. */
struct check {
	struct mem_sums *sums; /* created on first use */
	bool no_sums;          /* the device cannot compute checksums */
	bool by_copy;          /* compute the request's checksums on the host */
	char *copy;            /* buffer of COPY_BYTES for checksums on the host, or NULL */

	struct req *req;
	struct cursor at;  /* pieces whose checksums were not started */
	uint64_t piece;    /* index of the piece at cursor at */
	uint64_t nr_ended; /* pieces whose checksums were compared or combined */
	uint32_t crc;      /* checksum of all bytes so far */

	/* The checksums of runs are compared. A run is a contiguous range of bytes that a write
	 * staged; req_engine()->crcs has its checksum. */
	bool compares; /* the request has runs of staged bytes */
	bool differs;  /* one of the runs differs from the memory */
	unsigned cut;  /* index of the first run that ends after the cursor */
	unsigned run;  /* index of the run that is being compared */
	uint32_t run_crc;
	uint64_t run_len; /* bytes of the run that run_crc covers */

	unsigned nr; /* ranges whose checksums are being computed, one for each piece */
	struct mem_range v[MEM_RANGES];
	bool staged[MEM_RANGES]; /* the range lies in a run */
	uint32_t want[MEM_RANGES];
	uint32_t got[MEM_RANGES];
};

/* Return true if the jobs' checksums cover all bytes of the request. */
static bool jobs_took_all(const struct req *r)
{
	uint64_t len = 0;

	for (unsigned i = 0; i < req_engine(r)->nr_crcs; i++)
		len += req_engine(r)->crcs[i].len;
	return len == r->res.limit;
}

static int crc_range_cmp(const void *a, const void *b)
{
	const struct crc_range *x = a, *y = b;

	return x->pos < y->pos ? -1 : x->pos > y->pos;
}

static void check_sort(struct req_engine *re)
{
	if (re->nr_crcs)
		qsort(re->crcs, re->nr_crcs, sizeof(*re->crcs), crc_range_cmp);
}

bool check_jobs_crc(struct req *r, uint32_t *ret)
{
	struct req_engine *re = req_engine(r);
	uint64_t at = 0;

	check_sort(re);
	*ret = 0;
	for (unsigned i = 0; i < re->nr_crcs && re->crcs[i].pos == at; i++) {
		*ret = crc32c_combine(*ret, re->crcs[i].crc, re->crcs[i].len);
		at += re->crcs[i].len;
	}
	return at == r->res.limit;
}

/*
 * Join the checksums of neighbouring jobs to runs.  A path that moves pieces without slots leaves
 * gaps between them, whose bytes no CPU has seen.
 */
static void join_runs(struct req_engine *re)
{
	unsigned nr = 0;

	check_sort(re);
	for (unsigned i = 0; i < re->nr_crcs; i++) {
		struct crc_range *last = nr ? &re->crcs[nr - 1] : NULL, *next = &re->crcs[i];

		if (last && last->pos + last->len == next->pos) {
			last->crc = crc32c_combine(last->crc, next->crc, next->len);
			last->len += next->len;
		} else {
			re->crcs[nr++] = *next;
		}
	}
	re->nr_crcs = nr;
}

/* Cut the piece at the cursor where a run begins or ends.  Return true if the piece lies in a
 * run. */
static bool check_cut(struct check *c, struct piece *p)
{
	const struct req_engine *re = req_engine(c->req);
	const struct crc_range *v = re->crcs;

	while (c->cut < re->nr_crcs && v[c->cut].pos + v[c->cut].len <= p->pos)
		c->cut++;
	if (c->cut == re->nr_crcs)
		return false;
	v += c->cut;
	if (p->pos < v->pos) {
		p->len = MIN(p->len, v->pos - p->pos);
		return false;
	}
	p->len = MIN(p->len, v->pos + v->len - p->pos);
	return true;
}

/* Add a range to the checksum of its run.  At the run's end, compare the sum with that of the
 * staged bytes: if they differ, the write took other bytes out of the device's memory. */
static void check_run(struct check *c, uint32_t crc, uint64_t len)
{
	const struct crc_range *v = &req_engine(c->req)->crcs[c->run];

	c->run_crc = crc32c_combine(c->run_crc, crc, len);
	c->run_len += len;
	if (c->run_len < v->len)
		return;
	c->differs |= c->run_crc != v->crc;
	c->run_crc = 0;
	c->run_len = 0;
	c->run++;
}

bool check_take(struct req *r)
{
	struct req_engine *re = req_engine(r);
	struct engine *e = re->share->engine;

	if (r->stop || r->res.err || re->checked || re->dead)
		return false;
	if (!(r->io.flags & REQ_CHECKS) && (!r->res.limit || jobs_took_all(r)))
		return false;
	re->checked = true;
	re->nr_jobs++;
	re->nr_touch++;
	list_add_tail(&e->checks, &re->check);
	atomic_fetch_add(&e->nr_checks, 1);
	engine_wake_of(e, e->nr_workers);
	return true;
}

/* Remove the request from e->checks. */
static void check_leave_list(struct req *r)
{
	list_del(&req_engine(r)->check);
	atomic_fetch_sub(&req_engine(r)->share->engine->nr_checks, 1);
}

void check_stop(struct req *r)
{
	if (list_empty(&req_engine(r)->check))
		return;
	check_leave_list(r);
	req_engine(r)->nr_jobs--;
	req_engine(r)->nr_touch--;
}

/* Return a request to its queue after its check.  @err is a positive errno if the checksums could
 * not be computed.  Otherwise @wrong is the index of the first piece that differs, at @wrong_pos
 * bytes in piece order, or UINT64_MAX. */
static void check_end(struct worker *w, int err, uint64_t wrong, uint64_t wrong_pos)
{
	struct check *c = w->check;
	struct req *r = c->req;
	struct engine *e = w->engine;

	pthread_mutex_lock(&e->lock);
	if (c->compares && !err && req_engine(r)->crcs_lost)
		err = ENOMEM;
	if (!req_engine(r)->dead && !r->stop) {
		if (wrong != UINT64_MAX) {
			req_settle(r, wrong_pos, r->total - wrong_pos, 0, EBADMSG);
			r->res.wrong = wrong;
		} else if (err && (c->compares || r->io.flags & PST_IO_VERIFY)) {
			req_settle(r, 0, r->total, 0, err);
		} else if (!err && c->differs) {
			log_warn("what was written is not what lies in %s:%u: a copy was wrong",
				 e->ops->name, e->device);
			req_settle(r, 0, r->total, 0, EBADMSG);
		} else if (!err) {
			r->res.crc = c->crc;
			req_engine(r)->has_crc = true;
			req_engine(r)->verified = true;
		}
	}
	req_engine(r)->nr_jobs--;
	req_engine(r)->nr_touch--;
	c->req = NULL;
	w->check_runs = false;
	engine_return(r);
	pthread_mutex_unlock(&e->lock);
}

/*
 * Set up the next ranges, one for each piece.  Return their number, 0 at the end.  The caller's
 * segments and checksums are read under the engine's lock, because the caller may change them once
 * the request is stopped.
 */
static unsigned check_ranges(struct worker *w)
{
	const struct pst_mem *m = req_mem(w->check->req);
	struct check *c = w->check;
	struct req *r = c->req;
	/* Do only a few copies at a time: they block the worker, which has other work. */
	unsigned most = c->by_copy ? COPY_PIECES : MEM_RANGES;
	uint64_t len = 0, bytes = c->by_copy ? COPY_BYTES : UINT64_MAX;
	struct piece p;

	c->nr = 0;
	pthread_mutex_lock(&w->engine->lock);
	while (!r->stop && c->nr < most && len < bytes && cursor_peek(&c->at, &p) &&
	       p.pos < r->res.limit && p.len <= r->res.limit - p.pos) {
		c->staged[c->nr] = c->compares && check_cut(c, &p);
		c->v[c->nr] = (struct mem_range){ .alloc = m->region->alloc,
						  .off = m->off + p.mem_off,
						  .len = p.len };
		if (r->io.flags & PST_IO_VERIFY)
			c->want[c->nr] = r->io.crc32cs[c->piece];
		c->nr++;
		c->piece++;
		len += p.len;
		cursor_skip(&c->at, p.len);
	}
	/* The file ends in this piece.  Without PST_IO_VERIFY, the checksum covers the bytes of the
	 * piece that arrived. */
	if (!r->stop && !c->nr && !(r->io.flags & PST_IO_VERIFY) && cursor_peek(&c->at, &p) &&
	    p.pos < r->res.limit) {
		c->v[c->nr++] = (struct mem_range){ .alloc = m->region->alloc,
						    .off = m->off + p.mem_off,
						    .len = r->res.limit - p.pos };
		c->staged[0] = false;
		c->at.seg = c->at.nr;
	}
	pthread_mutex_unlock(&w->engine->lock);
	return c->nr;
}

/* Compare and combine the checksums of the ranges.  Return false if a checksum is wrong. */
static bool check_compare(struct check *c)
{
	for (unsigned i = 0; i < c->nr; i++) {
		if ((c->req->io.flags & PST_IO_VERIFY) && c->got[i] != c->want[i])
			return false;
		c->crc = crc32c_combine(c->crc, c->got[i], c->v[i].len);
		if (c->staged[i])
			check_run(c, c->got[i], c->v[i].len);
		c->nr_ended++;
	}
	return true;
}

/* Compute the checksums of the ranges on the host.  Return 0 or -errno. */
static int check_by_copy(struct worker *w)
{
	struct check *c = w->check;
	int r = w->stream ? 0 : mem_stream_new(w->engine->ops, w->engine->device, &w->stream);

	if (!c->copy)
		c->copy = malloc(COPY_BYTES);
	if (!c->copy)
		return -ENOMEM;
	for (unsigned i = 0; r == 0 && i < c->nr; i++) {
		const struct mem_range *v = &c->v[i];

		c->got[i] = 0;
		for (uint64_t at = 0, n; r == 0 && at < v->len; at += n) {
			n = MIN(v->len - at, COPY_BYTES);
			r = mem_copy_wait(w->stream, v->alloc, MEM_FROM_DEVICE, v->off + at,
					  c->copy, n);
			c->got[i] = crc32c(c->got[i], c->copy, n);
		}
	}
	return r;
}

/* Return the position in the request, in bytes, of the piece with this index. */
static uint64_t check_pos_of(const struct req *r, uint64_t piece)
{
	struct cursor at;
	struct piece p;

	cursor_init(&at, r->cur.segs, r->cur.nr);
	at.apart = true;
	for (; cursor_peek(&at, &p) && piece; piece--)
		cursor_skip(&at, p.len);
	return at.pos;
}

/* End a check that found a wrong checksum, or fewer bytes than the pieces have. */
static void check_end_wrong(struct worker *w)
{
	struct req *r = w->check->req;
	uint64_t piece = w->check->nr_ended, pos = 0;

	pthread_mutex_lock(&w->engine->lock);
	if (!r->stop)
		pos = check_pos_of(r, piece);
	pthread_mutex_unlock(&w->engine->lock);
	check_end(w, 0, piece, pos);
}

/* Start the checksums of the next ranges, or end the check. */
static void check_next(struct worker *w)
{
	struct check *c = w->check;
	struct req *r = c->req;
	int err;

	if (check_ranges(w)) {
		err = c->by_copy ? -EOPNOTSUPP : c->sums->ops->sums_start(c->sums, c->v, c->nr);
		if (err == 0) {
			w->check_runs = true;
			return;
		}
		if (err == -EOPNOTSUPP) {
			c->by_copy = true;
			err = check_by_copy(w);
		}
		if (err < 0) {
			log_warn("no checksums of what arrived: %s", err_text());
			check_end(w, -err, UINT64_MAX, 0);
		} else if (!check_compare(c)) {
			check_end_wrong(w);
		}
		return; /* checks_progress() calls this function again */
	}
	if ((r->io.flags & PST_IO_VERIFY) && r->res.limit < r->total)
		check_end_wrong(w);
	else
		check_end(w, 0, UINT64_MAX, 0);
}

/* Poll the device.  Return true if the check made progress. */
static bool check_poll(struct worker *w)
{
	struct check *c = w->check;
	int r = c->sums->ops->sums_poll(c->sums, c->got);

	if (!r)
		return false;
	w->check_runs = false;
	if (r < 0)
		check_end(w, -r, UINT64_MAX, 0);
	else if (!check_compare(c))
		check_end_wrong(w);
	else
		check_next(w);
	return true;
}

/* Take a request off e->checks, or return NULL. */
static struct req *check_next_req(struct engine *e)
{
	struct req *r = NULL;

	pthread_mutex_lock(&e->lock);
	if (!list_empty(&e->checks)) {
		r = req_by_link(e->checks.next, check);
		check_leave_list(r);
	}
	pthread_mutex_unlock(&e->lock);
	return r;
}

static void check_begin(struct worker *w, struct req *r)
{
	const struct mem_ops *ops = w->engine->ops;
	struct check *c = w->check;

	c->req = r;
	c->piece = c->nr_ended = 0;
	c->crc = 0;
	c->compares = r->io.op == PST_OP_WRITE && r->io.flags & PST_IO_CRC32C_MEM;
	if (c->compares)
		join_runs(req_engine(r));
	c->differs = false;
	c->cut = c->run = 0;
	c->run_crc = 0;
	c->run_len = 0;
	cursor_init(&c->at, r->cur.segs, r->cur.nr);
	c->at.apart = r->io.flags & PST_IO_VERIFY;
	if (!c->sums && !c->no_sums)
		c->no_sums = !ops->sums_new || ops->sums_new(w->engine->device, &c->sums) < 0;
	c->by_copy = c->no_sums;
	check_next(w);
}

bool checks_progress(struct worker *w)
{
	struct req *r;

	if (checks_run(w))
		return check_poll(w);
	if (w->check && w->check->req) {
		check_next(w);
		return true;
	}
	if (likely(!atomic_load_explicit(&w->engine->nr_checks, memory_order_relaxed)))
		return false;
	if (!w->check)
		w->check = calloc(1, sizeof(*w->check));
	r = w->check ? check_next_req(w->engine) : NULL;
	if (!r)
		return false;
	check_begin(w, r);
	return true;
}

void checks_done(struct worker *w)
{
	struct check *c = w->check;

	if (!c)
		return;
	if (c->sums)
		c->sums->ops->sums_free(c->sums);
	free(c->copy);
	free(c);
}
