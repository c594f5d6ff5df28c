/* SPDX-License-Identifier: MIT */
/*
 * S3-FIFO (Yang and others, SOSP 2023), in bytes: a small queue of a tenth of the cache for new
 * files, a main queue for those used again, and the numbers of files that left the small one.
 */
#include "tier/index.h"
#include "tier/policy.h"

enum { SMALL, MAIN, GHOST, QUEUES };

#define USES_MAX 3u /* as in the paper: two bits */

struct s3fifo {
	struct tier_policy base;
	uint64_t capacity;
	struct index index;
	struct entry_queue q[QUEUES];
};

static struct s3fifo *s3_of(const struct tier_policy *p)
{
	return container_of((struct tier_policy *)p, struct s3fifo, base);
}

static struct tier_policy *s3_free(struct tier_policy *p)
{
	if (p) {
		index_done(&s3_of(p)->index);
		free(s3_of(p));
	}
	return NULL;
}

static struct tier_policy *s3_new(uint64_t capacity, unsigned border)
{
	struct s3fifo *s = calloc(1, sizeof(*s));

	(void)border;
	if (!s)
		return NULL;
	s->base.ops = &tier_s3fifo;
	s->capacity = capacity;
	for (unsigned i = 0; i < QUEUES; i++)
		equeue_init(&s->q[i]);
	return index_init(&s->index) < 0 ? s3_free(&s->base) : &s->base;
}

static void move_to(struct s3fifo *s, struct entry *e, uint8_t queue)
{
	equeue_del(&s->q[e->queue], e);
	e->queue = queue;
	equeue_add(&s->q[queue], e);
}

static void drop(struct s3fifo *s, struct entry *e)
{
	equeue_del(&s->q[e->queue], e);
	index_drop(&s->index, e);
}

/* The oldest new file: used again, it stays in the main queue; else its number alone does. */
static void evict_small(struct s3fifo *s)
{
	struct entry *e = equeue_oldest(&s->q[SMALL]);

	if (e->uses > 1) {
		e->uses = 0;
		move_to(s, e, MAIN);
		return;
	}
	move_to(s, e, GHOST);
	while (s->q[GHOST].bytes > s->capacity - s->capacity / 10)
		drop(s, equeue_oldest(&s->q[GHOST]));
}

static void evict_main(struct s3fifo *s)
{
	struct entry *e = equeue_oldest(&s->q[MAIN]);

	if (!e->uses) {
		drop(s, e);
		return;
	}
	e->uses--;
	move_to(s, e, MAIN);
}

static void make_room(struct s3fifo *s, uint64_t size)
{
	while (s->q[SMALL].bytes + s->q[MAIN].bytes > s->capacity - size) {
		if (s->q[SMALL].bytes > s->capacity / 10 || list_empty(&s->q[MAIN].list))
			evict_small(s);
		else
			evict_main(s);
	}
}

static int s3_access(struct tier_policy *p, uint64_t id, uint64_t size, uint64_t now)
{
	struct s3fifo *s = s3_of(p);
	struct entry *e = index_find(&s->index, id);
	bool ghost = e && e->queue == GHOST, was_there = e && !ghost;

	(void)now;
	/* A file whose size has changed begins anew: room is made before it enters. */
	if (e && e->queue != GHOST && e->size == size) {
		e->uses = MIN(e->uses + 1, USES_MAX);
		return 1;
	}
	if (e)
		drop(s, e);
	if (size > s->capacity)
		return was_there;
	make_room(s, size);
	e = index_add(&s->index, id, size);
	if (!e)
		return -ENOMEM;
	e->queue = ghost ? MAIN : SMALL;
	equeue_add(&s->q[e->queue], e);
	return 0;
}

static void s3_forget(struct tier_policy *p, uint64_t id)
{
	struct entry *e = index_find(&s3_of(p)->index, id);

	if (e)
		drop(s3_of(p), e);
}

static enum tier_rating s3_rate(const struct tier_policy *p, uint64_t id)
{
	const struct entry *e = index_find(&s3_of(p)->index, id);

	if (!e || e->queue == GHOST)
		return TIER_COLD;
	return e->queue == MAIN || e->uses ? TIER_HOT : TIER_ONCE;
}

const struct tier_policy_ops tier_s3fifo = {
	.name = "s3fifo",
	.summary = "new files in a small queue, those used again in the main one",
	.new = s3_new,
	.free = s3_free,
	.access = s3_access,
	.forget = s3_forget,
	.rate = s3_rate,
};
