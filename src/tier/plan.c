/* SPDX-License-Identifier: MIT */
#include "tier/plan.h"

#include "base/err.h"
#include "tier/object.h"

#define BORDERS (TIER_CLASSES - 1u) /* most borders; see planner.borders */

/* A file that may move. */
struct candidate {
	int64_t id;
	char *name;
	uint64_t size, bytes, accesses, last;
	enum tier_class class;
	bool pinned;
	enum tier_rating rating[BORDERS];
};

struct planner {
	struct tier_set *set;
	unsigned borders;       /* classes minus 1; object counts as a class if it has a root */
	bool has[TIER_CLASSES]; /* per class: there is a usable, writable root */
	struct tier_space space[TIER_CLASSES];
	struct tier_policy *policy[BORDERS];
	struct candidate *files; /* sorted by id, later by by_heat() */
	size_t nr, room;
	struct plan *plan;
};

static int plan_by_id(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	return (x->id > y->id) - (x->id < y->id);
}

static int add_candidate(const struct tier_file *f, void *arg)
{
	struct planner *p = arg;
	struct candidate *c;

	if (f->root >= p->set->nr_roots || !root_usable(&p->set->roots[f->root]))
		return 0;
	if (p->nr == p->room) {
		size_t room = MAX(2 * p->room, (size_t)1024);
		struct candidate *more = reallocarray(p->files, room, sizeof(*more));

		if (!more)
			return err_set(ENOMEM, "out of memory");
		p->files = more;
		p->room = room;
	}
	c = &p->files[p->nr];
	*c = (struct candidate){
		.id = f->id,
		.name = strdup(f->name),
		.size = f->stamp.size,
		.bytes = f->bytes,
		.accesses = f->accesses,
		.last = f->last,
		.class = p->set->roots[f->root].class,
		/* A file on a read-only root cannot be removed from there, so it stays. */
		.pinned = f->pinned || p->set->roots[f->root].read_only,
	};
	if (!c->name)
		return err_set(ENOMEM, "out of memory");
	p->nr++;
	return 0;
}

static int play_access(int64_t id, uint64_t now, void *arg)
{
	const struct candidate key = { .id = id };
	struct planner *p = arg;
	const struct candidate *c = bsearch(&key, p->files, p->nr, sizeof(*p->files), plan_by_id);

	for (unsigned b = 0; c && b < p->borders; b++)
		if (p->set->policy->access(p->policy[b], (uint64_t)id, c->size, now) < 0)
			return err_set(ENOMEM, "out of memory");
	return 0;
}

static int rate_files(struct planner *p)
{
	uint64_t capacity = 0;
	int r;

	for (unsigned b = 0; b < p->borders; b++) {
		capacity += p->space[b].size / 100 * p->set->limits[b].high;
		p->policy[b] = p->set->policy->new (capacity, b);
		if (!p->policy[b])
			return err_set(ENOMEM, "out of memory");
	}
	qsort(p->files, p->nr, sizeof(*p->files), plan_by_id);
	r = catalog_each_access(p->set->catalog, play_access, p);
	if (r < 0)
		return r;
	for (size_t i = 0; i < p->nr; i++)
		for (unsigned b = 0; b < p->borders; b++)
			p->files[i].rating[b] = p->set->policy->rate(p->policy[b],
								     (uint64_t)p->files[i].id);
	/* by_heat() asks for the border below each class. */
	for (size_t i = 0; i < p->nr; i++)
		for (unsigned b = p->borders; b < BORDERS; b++)
			p->files[i].rating[b] = p->files[i].rating[p->borders - 1];
	return 0;
}

/* Order by heat, coldest first: by rating at the border below the class, then by last access. */
static int by_heat(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;
	unsigned bx = MIN((unsigned)x->class, BORDERS - 1),
		 by = MIN((unsigned)y->class, BORDERS - 1);

	if (x->rating[bx] != y->rating[by])
		return x->rating[bx] < y->rating[by] ? -1 : 1;
	if (x->last != y->last)
		return x->last < y->last ? -1 : 1;
	return plan_by_id(a, b);
}

static int add_move(struct planner *p, struct candidate *c, enum tier_class to)
{
	struct plan_move *more = reallocarray(p->plan->moves, p->plan->nr + 1,
					      sizeof(*p->plan->moves));
	char *name = strdup(c->name);

	if (more)
		p->plan->moves = more;
	if (!more || !name) {
		free(name);
		return err_set(ENOMEM, "out of memory");
	}
	more[p->plan->nr++] = (struct plan_move){ name, c->bytes, c->class, to };
	p->space[c->class].used -= c->bytes;
	p->space[to].used += c->bytes;
	c->class = to;
	return 0;
}

static uint64_t plan_mark(const struct planner *p, unsigned class, unsigned per_cent)
{
	return p->space[class].size / 100 * per_cent;
}

/* Return true if adding the bytes keeps a class below its high watermark. */
static bool plan_fits(const struct planner *p, unsigned class, uint64_t bytes)
{
	uint64_t high = plan_mark(p, class, p->set->limits[class].high);

	return p->has[class] && bytes <= high && p->space[class].used <= high - bytes;
}

/* Return the next slower class with room, or TIER_CLASSES. */
static enum tier_class below(const struct planner *p, const struct candidate *c)
{
	unsigned to = c->class + 1;

	while (to < TIER_CLASSES && !plan_fits(p, to, c->bytes))
		to++;
	return (enum tier_class)to;
}

/* Return the fastest class that the policy wants and the set has. */
static enum tier_class plan_wanted(const struct planner *p, const struct candidate *c)
{
	unsigned want = 0;

	while (want < p->borders && c->rating[want] != TIER_HOT)
		want++;
	while (want < TIER_CLASSES && !p->has[want])
		want++;
	return (enum tier_class)want;
}

/* Demote from the slowest class up, so that each class has room for files from faster ones. */
static int demote(struct planner *p)
{
	for (unsigned class = p->borders; class -- > 0;) {
		const struct tier_limits *l = &p->set->limits[class];
		bool must = p->space[class].used > plan_mark(p, class, l->high);

		for (size_t i = 0; i < p->nr; i++) {
			struct candidate *c = &p->files[i];
			enum tier_class to = below(p, c);
			bool low = must && p->space[class].used > plan_mark(p, class, l->low);
			int r;

			if (c->class != class || c->pinned || to == TIER_CLASSES)
				continue;
			if (!low && !(p->set->policy->demotes && plan_wanted(p, c) > class &&
				      plan_wanted(p, c) < TIER_CLASSES))
				continue;
			if (!low && plan_fits(p, plan_wanted(p, c), c->bytes))
				to = plan_wanted(p, c);
			r = add_move(p, c, to);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

/* Promote files, hottest first. */
static int promote(struct planner *p)
{
	for (size_t i = p->nr; i-- > 0;) {
		struct candidate *c = &p->files[i];
		enum tier_class to = plan_wanted(p, c);
		int r;

		if (c->pinned || to >= c->class || !plan_fits(p, to, c->bytes))
			continue;
		r = add_move(p, c, to);
		if (r < 0)
			return r;
	}
	return 0;
}

static void planner_done(struct planner *p)
{
	for (unsigned b = 0; b < BORDERS; b++)
		if (p->policy[b])
			(void)p->set->policy->free(p->policy[b]);
	for (size_t i = 0; i < p->nr; i++)
		free(p->files[i].name);
	free(p->files);
}

int plan_make(struct tier_set *set, struct plan *ret)
{
	_cleanup_(planner_done) struct planner p = { .set = set, .plan = ret };
	int r = 0;

	*ret = (struct plan){ 0 };
	p.borders = object_root(set) < 0 ? BORDERS - 1 : BORDERS;
	for (unsigned i = 0; i < TIER_CLASSES && r == 0; i++)
		r = class_space(set, (enum tier_class)i, &p.space[i]);
	for (unsigned i = 0; i < set->nr_roots; i++)
		if (root_usable(&set->roots[i]) && !set->roots[i].read_only)
			p.has[set->roots[i].class] = true;
	if (r == 0)
		r = catalog_each(set->catalog, add_candidate, &p);
	if (r == 0)
		r = rate_files(&p);
	if (r == 0) {
		qsort(p.files, p.nr, sizeof(*p.files), by_heat);
		r = demote(&p);
	}
	if (r == 0)
		r = promote(&p);
	if (r < 0)
		plan_done(ret);
	return r;
}

void plan_done(struct plan *plan)
{
	for (size_t i = 0; i < plan->nr; i++)
		free(plan->moves[i].name);
	free(plan->moves);
	*plan = (struct plan){ 0 };
}
