/* SPDX-License-Identifier: MIT */
/*
 * ARC, adaptive replacement cache (Megiddo and Modha, FAST 2003), counted in bytes.
 *
 * The queues ONCE and OFTEN are the cache: files used once recently, and files used at least twice.
 * GONE_ONCE and GONE_OFTEN remember files evicted from them.  An access to a file in GONE_ONCE
 * means that ONCE is too small, so its target grows; an access to one in GONE_OFTEN shrinks the
 * target.
 *
 * The paper remembers as many bytes as fit into the cache, and starts with a target of 0. Here each
 * memory holds twice the cache, and the target starts at half of the cache: on traces of LLM
 * requests ("bench/tiers") this hits more often with small caches, and as often as LRU with large
 * ones.
 */
#include "tier/index.h"
#include "tier/policy.h"

enum { ONCE, OFTEN, GONE_ONCE, GONE_OFTEN };

#define GHOSTS 2u /* capacity of each memory of gone files, in cache capacities */

struct arc {
	struct tier_policy base;
	uint64_t capacity;
	uint64_t target; /* bytes that ONCE should hold */
	struct index index;
};

static struct arc *arc_of(const struct tier_policy *p)
{
	return container_of((struct tier_policy *)p, struct arc, base);
}

static struct tier_policy *arc_free(struct tier_policy *p)
{
	if (p) {
		index_done(&arc_of(p)->index);
		free(arc_of(p));
	}
	return NULL;
}

static struct tier_policy *arc_new(uint64_t capacity, unsigned border)
{
	struct arc *a = calloc(1, sizeof(*a));

	(void)border;
	if (!a)
		return NULL;
	a->base.ops = &tier_arc;
	a->capacity = capacity;
	a->target = capacity / 2;
	a->base.index = &a->index;
	return index_init(&a->index) < 0 ? arc_free(&a->base) : &a->base;
}

static void arc_drop(struct arc *a, struct entry *e)
{
	index_leave(&a->index, e);
	index_drop(&a->index, e);
}

/* Evict one file from the cache and remember it. */
static struct entry *evict(struct arc *a, bool from_gone_often)
{
	uint64_t once = a->index.q[ONCE].bytes;
	bool first = once && (once > a->target || (from_gone_often && once >= a->target));
	uint8_t from = first || !a->index.q[OFTEN].bytes ? ONCE : OFTEN;
	struct entry *e = index_oldest(&a->index, from);

	index_leave(&a->index, e);
	index_enter(&a->index, e, from == ONCE ? GONE_ONCE : GONE_OFTEN);
	return e;
}

static void arc_trim(struct arc *a, unsigned queue)
{
	while (a->index.q[queue].bytes / GHOSTS > a->capacity)
		arc_drop(a, index_oldest(&a->index, queue));
}

/* Return a * b / c without overflow of the product. */
static uint64_t scale(uint64_t a, uint64_t b, uint64_t c)
{
	return c ? (uint64_t)((__uint128_t)a * b / c) : 0;
}

static void adapt(struct arc *a, const struct entry *e)
{
	uint64_t once = a->index.q[GONE_ONCE].bytes, often = a->index.q[GONE_OFTEN].bytes, step;

	if (e->queue == GONE_ONCE) {
		step = MAX((uint64_t)e->size, scale(e->size, often, once));
		a->target = MIN(a->capacity, a->target + step);
	} else if (e->queue == GONE_OFTEN) {
		step = MAX((uint64_t)e->size, scale(e->size, once, often));
		a->target -= MIN(a->target, step);
	}
}

static int arc_access(struct tier_policy *p, uint64_t id, uint64_t size, uint64_t now)
{
	struct arc *a = arc_of(p);
	struct entry *e = index_find(&a->index, id);
	bool hit = e && e->queue <= OFTEN, known = e, ghost_often;

	(void)now;
	if (size > a->capacity) {
		if (e)
			arc_drop(a, e);
		return hit;
	}
	if (!e)
		e = index_add(&a->index, id, size);
	if (!e)
		return -ENOMEM;
	ghost_often = known && e->queue == GONE_OFTEN;
	if (known) {
		adapt(a, e);
		index_leave(&a->index, e);
		e->size = MIN(size, INDEX_SIZE_MAX) & INDEX_SIZE_MAX;
	}
	while (a->index.q[ONCE].bytes + a->index.q[OFTEN].bytes > a->capacity - size)
		(void)evict(a, ghost_often);
	index_enter(&a->index, e, known ? OFTEN : ONCE);
	arc_trim(a, GONE_ONCE);
	arc_trim(a, GONE_OFTEN);
	return hit;
}

static void arc_forget(struct tier_policy *p, uint64_t id)
{
	struct arc *a = arc_of(p);
	struct entry *e = index_find(&a->index, id);

	if (e)
		arc_drop(a, e);
}

static enum tier_rating arc_rate(const struct tier_policy *p, uint64_t id)
{
	const struct entry *e = index_find(&arc_of(p)->index, id);

	return !e || e->queue > OFTEN ? TIER_COLD : e->queue == OFTEN ? TIER_HOT : TIER_ONCE;
}

static bool arc_evict(struct tier_policy *p, struct entry *ret)
{
	struct arc *a = arc_of(p);

	if (!index_oldest(&a->index, ONCE) && !index_oldest(&a->index, OFTEN))
		return false;
	*ret = *evict(a, false);
	arc_trim(a, GONE_ONCE);
	arc_trim(a, GONE_OFTEN);
	return true;
}

const struct tier_policy_ops tier_arc = {
	.name = "arc",
	.summary = "the files used last, and those used often, as much of each as hits more",
	.cached = 2,
	.new = arc_new,
	.free = arc_free,
	.access = arc_access,
	.forget = arc_forget,
	.rate = arc_rate,
	.evict = arc_evict,
};
