/* SPDX-License-Identifier: MIT */
/*
 * S3-FIFO (Yang and others, SOSP 2023), counted in bytes: a small queue of a tenth of the cache for
 * new files, a main queue for files that are used again, and the numbers of files evicted from the
 * small queue.
 */
#include "tier/index.h"
#include "tier/policy.h"

enum { SMALL, MAIN, GHOST };

#define USES_MAX 3u /* largest count of uses: two bits, as in the paper */

struct s3fifo {
	struct tier_policy base;
	uint64_t capacity;
	struct index index;
};

static struct s3fifo *s3_of(const struct tier_policy *p)
{
	return container_of((struct tier_policy *)p, struct s3fifo, base);
}

static struct tier_policy *s3fifo_free(struct tier_policy *p)
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
	s->base.index = &s->index;
	return index_init(&s->index) < 0 ? s3fifo_free(&s->base) : &s->base;
}

static void move_to(struct s3fifo *s, struct entry *e, uint8_t queue)
{
	index_leave(&s->index, e);
	index_enter(&s->index, e, queue);
}

static void s3fifo_drop(struct s3fifo *s, struct entry *e)
{
	index_leave(&s->index, e);
	index_drop(&s->index, e);
}

/* Handle the oldest new file.  If it was used again, move it to the main queue and return false.
 * Otherwise evict it into *ret, remember its number, and return true. */
static bool evict_small(struct s3fifo *s, struct entry *ret)
{
	struct entry *e = index_oldest(&s->index, SMALL);

	if (e->uses > 1) {
		e->uses = 0;
		move_to(s, e, MAIN);
		return false;
	}
	*ret = *e;
	move_to(s, e, GHOST);
	while (s->index.q[GHOST].bytes > s->capacity - s->capacity / 10)
		s3fifo_drop(s, index_oldest(&s->index, GHOST));
	return true;
}

static bool evict_main(struct s3fifo *s, struct entry *ret)
{
	struct entry *e = index_oldest(&s->index, MAIN);

	if (!e->uses) {
		*ret = *e;
		s3fifo_drop(s, e);
		return true;
	}
	e->uses--;
	move_to(s, e, MAIN);
	return false;
}

/* Take one step; return true if it evicted a file. */
static bool evict_step(struct s3fifo *s, struct entry *ret)
{
	if (s->index.q[SMALL].bytes > s->capacity / 10 || !index_oldest(&s->index, MAIN))
		return evict_small(s, ret);
	return evict_main(s, ret);
}

static void s3fifo_make_room(struct s3fifo *s, uint64_t size)
{
	struct entry gone;

	while (s->index.q[SMALL].bytes + s->index.q[MAIN].bytes > s->capacity - size)
		(void)evict_step(s, &gone);
}

static int s3_access(struct tier_policy *p, uint64_t id, uint64_t size, uint64_t now)
{
	struct s3fifo *s = s3_of(p);
	struct entry *e = index_find(&s->index, id);
	bool ghost = e && e->queue == GHOST, was_there = e && !ghost;

	(void)now;
	/* A file whose size has changed is treated as new, so that room is made first. */
	if (e && e->queue != GHOST && e->size == size) {
		if (e->uses < USES_MAX)
			e->uses++;
		return 1;
	}
	if (e)
		s3fifo_drop(s, e);
	if (size > s->capacity)
		return was_there;
	s3fifo_make_room(s, size);
	e = index_add(&s->index, id, size);
	if (!e)
		return -ENOMEM;
	index_enter(&s->index, e, ghost ? MAIN : SMALL);
	return 0;
}

static void s3_forget(struct tier_policy *p, uint64_t id)
{
	struct entry *e = index_find(&s3_of(p)->index, id);

	if (e)
		s3fifo_drop(s3_of(p), e);
}

static enum tier_rating s3_rate(const struct tier_policy *p, uint64_t id)
{
	const struct entry *e = index_find(&s3_of(p)->index, id);

	if (!e || e->queue == GHOST)
		return TIER_COLD;
	return e->queue == MAIN || e->uses ? TIER_HOT : TIER_ONCE;
}

static bool s3_evict(struct tier_policy *p, struct entry *ret)
{
	struct s3fifo *s = s3_of(p);

	while (index_oldest(&s->index, SMALL) || index_oldest(&s->index, MAIN))
		if (evict_step(s, ret))
			return true;
	return false;
}

const struct tier_policy_ops tier_s3fifo = {
	.name = "s3fifo",
	.summary = "new files in a small queue, those used again in the main one",
	.cached = 2,
	.new = s3_new,
	.free = s3fifo_free,
	.access = s3_access,
	.forget = s3_forget,
	.rate = s3_rate,
	.evict = s3_evict,
};
