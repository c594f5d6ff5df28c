/* SPDX-License-Identifier: MIT */
/*
 * Fixed thresholds: at least 100 accesses for the fastest class, at least 10 for the second.  All
 * other files belong on the third; only watermarks move files to the class object.
 * Counts never decay.  File size and total size do not matter: only watermarks limit the bytes.
 */
#include "tier/index.h"
#include "tier/policy.h"

static const uint32_t thresholds[] = { 100, 10, 0 };

struct literal {
	struct tier_policy base;
	uint32_t threshold;
	struct index index;
};

static struct literal *literal_of(const struct tier_policy *p)
{
	return container_of((struct tier_policy *)p, struct literal, base);
}

static struct tier_policy *literal_free(struct tier_policy *p)
{
	if (p) {
		index_done(&literal_of(p)->index);
		free(literal_of(p));
	}
	return NULL;
}

static struct tier_policy *literal_new(uint64_t capacity, unsigned border)
{
	struct literal *l = calloc(1, sizeof(*l));

	(void)capacity;
	if (!l)
		return NULL;
	l->base.ops = &tier_literal;
	l->threshold = thresholds[MIN(border, (unsigned)ARRAY_SIZE(thresholds) - 1)];
	return index_init(&l->index) < 0 ? literal_free(&l->base) : &l->base;
}

static int literal_access(struct tier_policy *p, uint64_t id, uint64_t size, uint64_t now)
{
	struct literal *l = literal_of(p);
	struct entry *e = index_find(&l->index, id);
	bool hit = e && e->uses >= l->threshold;

	(void)now;
	if (!e)
		e = index_add(&l->index, id, size);
	if (!e)
		return -ENOMEM;
	if (e->uses < INDEX_USES_MAX)
		e->uses++;
	return hit;
}

static void literal_forget(struct tier_policy *p, uint64_t id)
{
	struct literal *l = literal_of(p);
	struct entry *e = index_find(&l->index, id);

	if (e)
		index_drop(&l->index, e);
}

static enum tier_rating literal_rate(const struct tier_policy *p, uint64_t id)
{
	const struct entry *e = index_find(&literal_of(p)->index, id);
	uint32_t uses = e ? (uint32_t)e->uses : 0;

	return uses >= literal_of(p)->threshold ? TIER_HOT : TIER_COLD;
}

const struct tier_policy_ops tier_literal = {
	.name = "literal",
	.summary = "100 accesses or more: nvme; 10 to 99: ssd; fewer: hdd",
	.demotes = true,
	.new = literal_new,
	.free = literal_free,
	.access = literal_access,
	.forget = literal_forget,
	.rate = literal_rate,
};
