/* SPDX-License-Identifier: MIT */
/* Least recently used: keep the files with the latest accesses. */
#include "tier/index.h"
#include "tier/policy.h"

struct lru {
	struct tier_policy base;
	uint64_t capacity;
	struct index index;
};

static struct lru *lru_of(const struct tier_policy *p)
{
	return container_of((struct tier_policy *)p, struct lru, base);
}

static struct tier_policy *lru_free(struct tier_policy *p)
{
	if (p) {
		index_done(&lru_of(p)->index);
		free(lru_of(p));
	}
	return NULL;
}

static struct tier_policy *lru_new(uint64_t capacity, unsigned border)
{
	struct lru *l = calloc(1, sizeof(*l));

	(void)border;
	if (!l)
		return NULL;
	l->base.ops = &tier_lru;
	l->capacity = capacity;
	l->base.index = &l->index;
	return index_init(&l->index) < 0 ? lru_free(&l->base) : &l->base;
}

static void lru_drop(struct lru *l, struct entry *e)
{
	index_leave(&l->index, e);
	index_drop(&l->index, e);
}

static int lru_access(struct tier_policy *p, uint64_t id, uint64_t size, uint64_t now)
{
	struct lru *l = lru_of(p);
	struct entry *e = index_find(&l->index, id);
	bool hit = e;

	(void)now;
	if (size > l->capacity) {
		if (e)
			lru_drop(l, e);
		return hit;
	}
	if (!e) {
		e = index_add(&l->index, id, size);
		if (!e)
			return -ENOMEM;
	} else {
		index_leave(&l->index, e);
		e->size = MIN(size, INDEX_SIZE_MAX) & INDEX_SIZE_MAX;
	}
	if (e->uses < 2)
		e->uses++;
	while (l->index.q[0].bytes > l->capacity - size)
		lru_drop(l, index_oldest(&l->index, 0));
	index_enter(&l->index, e, 0);
	return hit;
}

static void lru_forget(struct tier_policy *p, uint64_t id)
{
	struct lru *l = lru_of(p);
	struct entry *e = index_find(&l->index, id);

	if (e)
		lru_drop(l, e);
}

static enum tier_rating lru_rate(const struct tier_policy *p, uint64_t id)
{
	const struct entry *e = index_find(&lru_of(p)->index, id);

	return !e ? TIER_COLD : e->uses > 1 ? TIER_HOT : TIER_ONCE;
}

static bool lru_evict(struct tier_policy *p, struct entry *ret)
{
	struct entry *e = index_oldest(&lru_of(p)->index, 0);

	if (!e)
		return false;
	*ret = *e;
	lru_drop(lru_of(p), e);
	return true;
}

const struct tier_policy_ops tier_lru = {
	.name = "lru",
	.summary = "the files that were used last",
	.cached = 1,
	.new = lru_new,
	.free = lru_free,
	.access = lru_access,
	.forget = lru_forget,
	.rate = lru_rate,
	.evict = lru_evict,
};
