/* SPDX-License-Identifier: MIT */
/*
 * One ring.  The position up to which entries are claimed is private.  The markers advance in
 * order, even if batches end in another order.
 */
#include <errno.h>
#include <stdlib.h>

#include "foreign_daemon.h"

struct ring {
	pthread_mutex_t lock;
	struct wire_ring wire;
	int depth;
	uint64_t timeout_ns;

	int32_t claimed;  /* position: entries before it are in batches or done */
	int32_t sqe_tail; /* copy of the marker */
	int32_t cqe_head;
	int32_t nr_running; /* requests in batches */
	bool *done;         /* completed entries after sqe_tail */
	uint64_t due_ns;    /* start time of a partial batch; 0: none */
};

int ring_new(struct iov *iov, struct ring **ret_ring)
{
	struct ring *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	(void)pthread_mutex_init(&r->lock, NULL);
	if (!wire_ring_at(iov->base, iov->size, &r->wire) || iov->key.depth > r->wire.n - 1) {
		ring_free(r);
		return -EINVAL;
	}
	r->depth = iov->key.depth;
	r->timeout_ns = (uint64_t)iov->key.timeout_ms * 1000000;
	r->done = calloc((size_t)r->wire.n, sizeof(bool));
	if (!r->done) {
		ring_free(r);
		return -ENOMEM;
	}
	if (sem_init(r->wire.done, 1, 0) < 0)
		abort();
	*ret_ring = r;
	return 0;
}

void ring_free(struct ring *r)
{
	if (!r)
		return;
	(void)pthread_mutex_destroy(&r->lock);
	free(r->done);
	free(r);
}

/* Return the number of slots between two positions. */
static int32_t distance(const struct ring *r, int32_t from, int32_t to)
{
	return (to - from + r->wire.n) % r->wire.n;
}

static int32_t advance(const struct ring *r, int32_t at, int32_t by)
{
	return (int32_t)(((int64_t)at + by) % r->wire.n);
}

/* Return how many queued requests form a batch now, with room for that many completions. */
static int32_t batch_size(struct ring *r, int32_t queued, int32_t room, uint64_t now_ns)
{
	int32_t most = queued < room ? queued : room;

	if (r->depth > 0)
		return most >= r->depth ? r->depth : 0;
	if (r->depth == 0)
		return most;
	if (queued >= -r->depth || !r->timeout_ns)
		return most < -r->depth ? most : -r->depth;
	/* A partial batch waits for more entries, but not longer than the timeout. */
	if (!queued)
		r->due_ns = 0;
	else if (!r->due_ns)
		r->due_ns = now_ns + r->timeout_ns;
	return r->due_ns && now_ns >= r->due_ns ? most : 0;
}

static struct batch *take(struct iov *iov, int32_t n)
{
	struct ring *r = iov->ring;
	struct batch *b = calloc(1, sizeof(*b) + (size_t)n * sizeof(b->io[0]));

	if (!b)
		abort();
	b->iov = iov;
	b->first = r->claimed;
	b->n = n;
	iov_ref(iov);
	for (int32_t i = 0; i < n; i++) {
		struct wire_sqe sqe = r->wire.sqes[advance(r, r->claimed, i)];

		b->io[i].index = sqe.index;
		b->io[i].userdata = sqe.userdata;
		b->io[i].fd = -1;
		if (sqe.index >= 0 && sqe.index < r->wire.n)
			b->io[i].args = r->wire.args[sqe.index];
		else
			b->io[i].result = -EINVAL;
	}
	r->claimed = advance(r, r->claimed, n);
	r->nr_running += n;
	r->due_ns = 0;
	return b;
}

struct batch *ring_claim(struct iov *iov, uint64_t now_ns, uint64_t *wake_ns)
{
	struct ring *r = iov->ring;
	struct batch *b = NULL;
	int32_t head, tail, room, n;

	(void)pthread_mutex_lock(&r->lock);
	head = atomic_load(&r->wire.marks->sqe_head);
	tail = atomic_load(&r->wire.marks->cqe_tail);
	if (head >= 0 && head < r->wire.n && tail >= 0 && tail < r->wire.n) {
		room = r->wire.n - 1 - r->nr_running - distance(r, tail, r->cqe_head);
		n = room > 0 ? batch_size(r, distance(r, r->claimed, head), room, now_ns) : 0;
		if (n > 0)
			b = take(iov, n);
		else if (r->due_ns > now_ns && (!*wake_ns || *wake_ns > r->due_ns))
			*wake_ns = r->due_ns;
	}
	(void)pthread_mutex_unlock(&r->lock);
	return b;
}

/* Return slots to the client in order, even if a later batch ends first. */
static void give_back(struct ring *r, const struct batch *b)
{
	for (int32_t i = 0; i < b->n; i++)
		r->done[advance(r, b->first, i)] = true;
	while (r->done[r->sqe_tail]) {
		r->done[r->sqe_tail] = false;
		r->sqe_tail = advance(r, r->sqe_tail, 1);
	}
	atomic_store(&r->wire.marks->sqe_tail, r->sqe_tail);
}

void ring_complete(struct batch *b)
{
	struct ring *r = b->iov->ring;

	(void)pthread_mutex_lock(&r->lock);
	give_back(r, b);
	for (int32_t i = 0; i < b->n; i++) {
		struct wire_cqe *cqe = &r->wire.cqes[r->cqe_head];

		cqe->index = b->io[i].index;
		cqe->result = b->io[i].result;
		cqe->userdata = b->io[i].userdata;
		r->cqe_head = advance(r, r->cqe_head, 1);
		atomic_store(&r->wire.marks->cqe_head, r->cqe_head);
	}
	r->nr_running -= b->n;
	(void)pthread_mutex_unlock(&r->lock);
	(void)sem_post(r->wire.done);
	iov_unref(b->iov);
	free(b);
}
