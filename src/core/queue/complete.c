/* SPDX-License-Identifier: MIT */
/*
 * The end of a request: prove its path if that is due, complete it once, and release it when
 * nothing of it is in flight.
 */
#include <assert.h>
#include <string.h>

#include "base/probe.h"
#include "core/queue/above.h"
#include "core/queue/object.h"
#include "core/queue/queue.h"
#include "core/queue/req.h"

/* Report the end of the request to the paths in r->tell. */
static inline void tell_over(struct req *r)
{
	if (likely(!r->tell))
		return;
	ways_over(r);
	r->tell = 0;
}

static inline void release(struct req *r)
{
	if (unlikely(r->on_device))
		carry_release(r);
	tell_over(r);
	if (unlikely(r->upper))
		lower_end(r);
	if (r->mem_use)
		use_put(r->q, TAKE_PTR(r->mem_use));
	if (r->file_use)
		use_put(r->q, TAKE_PTR(r->file_use));
}

/* Let syncs start that waited for a completed write.  Do not start them here, because the caller
 * may be iterating over q->inflight. */
static void writes_done(struct pst_queue *q, uint64_t seq)
{
	struct list *e, *n;

	q->nr_writes--;
	list_for_each_safe (e, n, &q->held) {
		struct req *s = list_entry(e, struct req, waits);

		if (s->seq > seq && --s->nr_before == 0) {
			list_move_tail(&q->started, &s->waits);
			q->more = true;
		}
	}
}

/* Apply the caller's flags: fail a strict request that has a reason, and compute a checksum. */
static _cold_ void complete_flags(struct req *r)
{
	/* Memory that could not be pinned costs time but does not change the path. */
	if ((r->io.flags & PST_IO_STRICT) && r->res.why != PST_WHY_NONE &&
	    r->res.why != PST_WHY_MEMLOCK && !r->res.err) {
		r->res.err = EOPNOTSUPP;
		r->res.limit = 0;
	}
	if ((r->io.flags & PST_IO_VERIFY) && !req_is_late(r) && !r->res.err)
		carry_verify(r);
	if ((r->io.flags & PST_IO_CRC32C) && !req_is_late(r) && carry_crc(r))
		r->res.flags |= PST_DONE_CRC32C;
}

static _cold_ void complete_count_error(struct counters *st, int err)
{
	count(&st->errors, 1);
	if (err == ETIMEDOUT)
		count(&st->timeouts, 1);
	else if (err == ECANCELED)
		count(&st->canceled, 1);
}

/* Put the completion where pst_queue_reap() finds it. */
static inline void queue_complete(struct req *r)
{
	struct pst_queue *q = r->q;
	struct counters *st = &q->st;

	if (unlikely(r->io.flags))
		complete_flags(r);
	list_move_tail(&q->done, &r->link);
	q->nr_done++;
	if (unlikely(!list_empty(&r->waits)))
		list_del(&r->waits);
	if (list_empty(&q->inflight))
		q->next_deadline = PST_NO_DEADLINE;

	PROBE6(request__done, r->q, r->io.op, r->res.limit, r->res.paths, r->res.err,
	       r->io.user_data);
	count(&st->requests, 1);
	if (unlikely(r->res.err))
		complete_count_error(st, r->res.err);
	count_reason(st, r->res.why);
	for (uint32_t set = r->res.paths; set; set &= set - 1) {
		unsigned path = (unsigned)__builtin_ctz(set);

		count(&st->bytes[path], r->res.hop_bytes[path]);
		r->res.hop_bytes[path] = 0;
	}
	gauge(&q->nr_inflight, -1);
	if (r->started)
		writes_done(q, r->seq);
}

/* Clear BUSY: the request completed earlier, and its last operation has ended now. */
static _cold_ void late_no_more(struct req *r)
{
	memset(r->res.hop_bytes, 0, sizeof(r->res.hop_bytes));
	gauge(&r->q->nr_busy, -1);
	r->res.flags &= ~PST_DONE_BUSY; /* matters only if the completion is not yet reaped */
}

/* Run the unusual actions of a step. */
static _cold_ void act(struct req *r, unsigned acts)
{
	assert(acts);
	if (acts & LIFE_LATE)
		late_no_more(r);
	if (acts & LIFE_COMPLETE) {
		queue_complete(r);
		tell_over(r); /* do not wait: operations on a file that hangs may never end */
	}
	if (acts & LIFE_RELEASE)
		release(r);
	if (acts & LIFE_FREE)
		list_move_tail(&r->q->free, &r->link);
}

void req_act(struct req *r, const struct life_step *s)
{
	r->state = s->next;
	if (unlikely(s->acts != (LIFE_COMPLETE | LIFE_RELEASE))) {
		act(r, s->acts);
		return;
	}
	queue_complete(r);
	release(r);
}
