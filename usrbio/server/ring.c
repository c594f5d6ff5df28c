/* SPDX-License-Identifier: MIT */
/*
 * One ring: its client's entries, which are copied once and checked, and their completions.
 *
 * A completion always has room: an entry is taken only if the ring can hold one more completion,
 * counting completions in the ring and completions of entries in flight.  A client that follows the
 * protocol never has more entries, so a ring with more is broken.
 */
#include <string.h>

#include "base/probe.h"
#include "usrbio/server/executor.h"

/* Estimated time of a cached read without bytes, in ns, and the CPU's copy speed in bytes per
 * ns. */
#define ENTRY_NS 1000u
#define BYTES_PER_NS 8u

/* Limits of one runner while two share a ring: each starts half of the entries, but at least 4
 * of them, and at most SHARE_BYTES per turn. */
#define SHARE_ENTRIES 4u
#define SHARE_BYTES KIB(256)

/* ------------------------------------------------------------------- items */

static uint32_t item_new(struct server_ring *r)
{
	uint32_t i = r->free_item;

	if (i == NO_ITEM)
		i = r->fresh_item++;
	else
		r->free_item = r->items[i].next;
	r->nr_items++;
	return i;
}

static void item_free(struct server_ring *r, uint32_t i)
{
	r->items[i].next = r->free_item;
	r->free_item = i;
	r->nr_items--;
}

/* Add an item to the batch. */
static uint32_t item_add(struct server_ring *r, const struct usrbio_sqe *sqe)
{
	uint32_t i = item_new(r);

	r->items[i] = (struct item){
		.user_data = sqe->user_data,
		.index = sqe->index,
		.next = NO_ITEM,
		.taken = r->executor->clock,
		.first = r->batch_last == NO_ITEM,
	};
	if (r->batch_last != NO_ITEM)
		r->items[r->batch_last].next = i;
	r->batch_last = i;
	return i;
}

static void ring_count(struct server_ring_stats *st, int64_t result)
{
	st->requests++;
	if (result < 0)
		st->errors++;
	else
		st->bytes += (uint64_t)result;
}

/* Count an item in the executor's lane, which the server's metrics show. */
static void tally(const struct server_ring *r, const struct item *it)
{
	const struct executor *ex = r->executor;
	struct usrbio_lane *l = ex->lane;
	uint64_t ns = ex->clock - it->taken;

	usrbio_lane_add(l, TALLY_REQUESTS, 1);
	if (it->result < 0)
		usrbio_lane_add(l, TALLY_ERRORS, 1);
	else
		usrbio_lane_add(l, r->for_read ? TALLY_READ : TALLY_WRITTEN, (uint64_t)it->result);
	usrbio_lane_add(l, TALLY_NS, ns);
	usrbio_lane_add(l, TALLY_BUCKET + latency_bucket(ns), 1);
}

/* Mark the ring as broken: its memory is inconsistent or gone. */
static void ring_break(struct server_ring *r)
{
	if (r->broken)
		return;
	r->broken = r->st.broken = true;
	r->batch.due = BATCH_NEVER;
	ring_drop(r);
}

static void emit(struct server_ring *r, const struct item *it)
{
	struct usrbio_cqe cqe = {
		.index = it->index,
		.result = it->result,
		.user_data = it->user_data,
	};

	PROBE3(ring__done, r, it->user_data, it->result);
	ring_count(&r->st, it->result);
	if (r->executor->lane)
		tally(r, it);
	if (r->broken || r->ending)
		return;
	if (!shm_put(&r->shm, r->cq_head, &cqe)) {
		ring_break(r);
		return;
	}
	r->cq_head = usrbio_ring_next(&r->shm.at, r->cq_head);
	if (list_empty(&r->touched))
		list_add_tail(&r->executor->touched, &r->touched);
}

/* Record an item's result, and publish it in the order of its batch. */
static void item_done(struct server_ring *r, uint32_t i, int64_t result)
{
	struct item *it = &r->items[i];

	it->result = result;
	it->done = true;
	while (it->first && it->done) {
		uint32_t next = it->next;

		emit(r, it);
		item_free(r, i);
		if (next == NO_ITEM) {
			if (r->batch_last == i)
				r->batch_last = NO_ITEM;
			break;
		}
		i = next;
		it = &r->items[i];
		it->first = true;
	}
}

void ring_publish(struct server_ring *r)
{
	list_del(&r->touched);
	if (!r->broken && !r->ending && !shm_publish(&r->shm, r->cq_head))
		ring_break(r);
}

/* --------------------------------------------------------------- requests */

static struct request *request_get(struct server_ring *r)
{
	struct executor *ex = r->executor;
	struct request *q = list_entry(ex->free.prev, struct request, link);

	list_del(&q->link);
	ex->nr_free--;
	q->ring = r;
	r->nr_requests++;
	return q;
}

void ring_settle(struct request *q, int64_t result)
{
	struct server_ring *r = q->ring;
	struct executor *ex = r->executor;

	q->file = NULL;
	q->buffer = NULL;
	list_del(&q->link);
	/* Put the request where request_get() takes the next one: it is still in the CPU's
	 * cache. */
	list_add_tail(&ex->free, &q->link);
	ex->nr_free++;
	if (!--r->nr_requests && r->ending)
		(void)pthread_cond_broadcast(&ex->quiet);
	item_done(r, q->item, result);
}

void ring_drop(struct server_ring *r)
{
	while (!list_empty(&r->waiting))
		ring_settle(list_first(&r->waiting, struct request, link), -EINTR);
	r->batch_left = 0;
}

void ring_cancel(struct server_ring *r, const struct runner *h)
{
	struct list *e;

	list_for_each (e, &r->started) {
		struct request *q = list_entry(e, struct request, link);

		if (q->runner == h)
			(void)pst_queue_cancel(h->q, (uintptr_t)q);
	}
}

/* Start waiting requests in order, until one must keep waiting. */
static bool start_waiting(struct server_ring *r, struct runner *h)
{
	uint64_t most = executor_is_shared(r->executor, r) ? SHARE_BYTES : QUANTUM_BYTES, bytes = 0;

	while (!list_empty(&r->waiting) && bytes < most) {
		struct request *q = list_first(&r->waiting, struct request, link);

		if (!request_start(q, h))
			break;
		bytes += q->args.len;
		list_move_tail(&r->started, &q->link);
	}
	return bytes;
}

void request_back(struct request *q)
{
	struct server_ring *r = q->ring;
	/* executor_forget() skips requests that a runner holds, so check this one here, before
	 * another runner takes it. */
	int err = r->ending || r->broken ? -EINTR : request_check(q);

	if (err < 0) {
		ring_settle(q, err);
		return;
	}
	list_del(&q->link);
	list_add_tail(r->waiting.next, &q->link);
	executor_stall(r->executor, r);
}

/* ------------------------------------------------------------------ entries */

/* Make an item of a copied entry, and a request if the entry is valid. */
static void ring_take(struct server_ring *r, const struct shm_entry *e)
{
	uint32_t i = item_add(r, &e->sqe);
	struct request *q;
	int err;

	PROBE4(ring__take, r, e->sqe.user_data, r->for_read, e->args.len);
	if ((uint32_t)e->sqe.index >= r->shm.at.slots) {
		item_done(r, i, -EINVAL);
		return;
	}
	q = request_get(r);
	q->item = i;
	q->args = e->args;
	list_add_tail(&r->waiting, &q->link);
	err = request_check(q);
	if (err < 0)
		ring_settle(q, err);
}

/*
 * Find the number of entries, and how many more completions the ring can hold.  Return false if the
 * markers are inconsistent.
 */
static bool survey(struct server_ring *r, uint32_t *ret_nr, uint32_t *ret_room)
{
	const struct usrbio_ring *at = &r->shm.at;
	struct shm_markers m;
	uint32_t held;

	if (!shm_look(&r->shm, &m))
		return false;
	if ((uint32_t)m.sq_head >= at->slots || (uint32_t)m.cq_tail >= at->slots)
		return false;
	held = usrbio_ring_held(at, r->cq_head, (uint32_t)m.cq_tail) + r->nr_items;
	if (held > at->slots - 1)
		return false;
	*ret_nr = usrbio_ring_held(at, (uint32_t)m.sq_head, r->sq_tail);
	*ret_room = at->slots - 1 - held;
	return true;
}

/*
 * Return how many more requests the ring may have.  The last ones are reserved for lower
 * priorities; with other rings on the executor, one ring may have half of all.
 */
static uint32_t requests_left(const struct server_ring *r)
{
	const struct executor *ex = r->executor;
	unsigned keep = EXECUTOR_RESERVE * (USRBIO_LOW - r->priority);
	unsigned most = ex->rings.next == ex->rings.prev ? CTX_DEPTH : CTX_DEPTH / 2;

	if (ex->nr_free <= keep || r->nr_requests >= most)
		return 0;
	return MIN(ex->nr_free - keep, most - r->nr_requests);
}

/* Update the estimated time per request from a request's size. */
static void gauge_entries(struct server_ring *r, const struct shm_entry *e)
{
	uint64_t len = MIN(e->args.len, (uint64_t)QUANTUM_BYTES);
	uint32_t ns = atomic_load_explicit(&r->entry_ns, memory_order_relaxed);

	ns = (uint32_t)((3 * (uint64_t)ns + ENTRY_NS + len / BYTES_PER_NS) / 4);
	atomic_store_explicit(&r->entry_ns, ns, memory_order_relaxed);
}

/* Take up to quantum entries. */
static bool take_entries(struct server_ring *r, struct runner *h, unsigned quantum)
{
	struct shm_entry e[QUANTUM];
	uint32_t nr, room, n;

	if (!survey(r, &nr, &room)) {
		ring_break(r);
		return true;
	}
	r->more = false;
	if (!r->batch_left) {
		r->batch_left = batch_next(&r->batch, nr, room);
		r->batch_last = NO_ITEM;
	}
	n = requests_left(r);
	n = MIN(n, quantum);
	n = MIN(n, r->batch_left);
	n = MIN(n, nr);
	if (executor_is_shared(r->executor, r))
		n = MIN(n, MAX(nr / 2, SHARE_ENTRIES));
	if (!n)
		return false;
	if (!shm_take(&r->shm, r->sq_tail, n, e)) {
		ring_break(r);
		return true;
	}
	executor_clock(r->executor);
	r->sq_tail = (r->sq_tail + n) % r->shm.at.slots;
	h->nr_taken += n;
	gauge_entries(r, &e[0]);
	r->batch_left -= n;
	r->more = batch_more(&r->batch, nr - n);
	for (uint32_t i = 0; i < n && !r->broken; i++)
		ring_take(r, &e[i]);
	return true;
}

bool ring_turn(struct server_ring *r, struct runner *h, unsigned quantum)
{
	bool did = start_waiting(r, h);

	if (r->broken || r->ending || !list_empty(&r->waiting))
		return did;
	if (!take_entries(r, h, MIN(quantum, QUANTUM)))
		return did;
	(void)start_waiting(r, h);
	return true;
}

bool ring_hungry(const struct server_ring *r)
{
	return !r->broken && !r->ending && (r->more || r->batch_left || !list_empty(&r->waiting));
}

/* Read both of the client's markers unchecked; survey() checks them later. */
uint64_t ring_work(const struct server_ring *r)
{
	const struct usrbio_ring *at = &r->shm.at;
	uint32_t ns = atomic_load_explicit(&r->entry_ns, memory_order_relaxed), nr;
	struct shm_entries e;

	/* The memory is gone; the thread that serves the ring will notice. */
	if (!shm_entries(&r->shm, &e))
		return ENTRY_NS;
	nr = usrbio_ring_held(at, (uint32_t)e.sq_head, (uint32_t)e.sq_tail);
	return (uint64_t)MIN(nr, at->slots) * MAX(ns, ENTRY_NS);
}

/* -------------------------------------------------------------------- life */

static int ring_check_opts(const struct server_ring_opts *o, const struct usrbio_ring *at)
{
	const uint64_t known = SERVER_RING_READ_UNCOMMITTED | SERVER_RING_FORBID_HOLES;

	if (o->io_depth > (int64_t)at->slots - 1 || o->timeout_ms < 0 || (o->flags & ~known) ||
	    (unsigned)o->priority >= USRBIO_PRIORITIES)
		return -EINVAL;
	return 0;
}

/* Start at the positions in the ring's memory, which an earlier use may have left. */
static int ring_begin(struct server_ring *r)
{
	int32_t sq_tail, cq_head;

	if (!shm_begin(&r->shm, &sq_tail, &cq_head) || (uint32_t)sq_tail >= r->shm.at.slots ||
	    (uint32_t)cq_head >= r->shm.at.slots)
		return -EINVAL;
	r->sq_tail = (uint32_t)sq_tail;
	r->cq_head = (uint32_t)cq_head;
	return 0;
}

int ring_new(const struct server_ring_opts *o, bool guard, struct server_ring **ret)
{
	struct usrbio_ring at;
	struct server_ring *r;
	int err = usrbio_ring_at(o->base, o->size, &at);

	if (!err)
		err = ring_check_opts(o, &at);
	if (err < 0)
		return err;
	r = aligned_alloc(_Alignof(struct server_ring), sizeof(*r));
	if (!r)
		return -ENOMEM;
	*r = (struct server_ring){
		.shm = { .at = at, .base = o->base, .size = o->size, .guard = guard },
		.for_read = o->for_read,
		.forbid_holes = o->flags & SERVER_RING_FORBID_HOLES,
		.priority = o->priority,
		.batch_last = NO_ITEM,
		.free_item = NO_ITEM,
		.items = calloc(at.slots - 1, sizeof(*r->items)),
	};
	list_init(&r->link);
	list_init(&r->run);
	list_init(&r->timed);
	list_init(&r->touched);
	list_init(&r->waiting);
	list_init(&r->started);
	batch_init(&r->batch, o->io_depth, (uint64_t)o->timeout_ms * NSEC_PER_MSEC);
	err = r->items ? ring_begin(r) : -ENOMEM;
	if (err < 0)
		ring_free(r);
	else
		*ret = r;
	return err;
}

void ring_free(struct server_ring *r)
{
	free(r->items);
	free(r);
}
