/* SPDX-License-Identifier: MIT */
#include "tier/index.h"

#define BUCKETS_MIN 64u

static size_t bucket(const struct index *ix, uint64_t id)
{
	return (size_t)(id * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (ix->nr_buckets - 1);
}

int index_init(struct index *ix)
{
	ix->nr = 0;
	ix->nr_buckets = BUCKETS_MIN;
	ix->buckets = calloc(BUCKETS_MIN, sizeof(struct entry *));
	return ix->buckets ? 0 : -ENOMEM;
}

void index_done(struct index *ix)
{
	for (size_t i = 0; i < ix->nr_buckets && ix->buckets; i++) {
		for (struct entry *e = ix->buckets[i], *next; e; e = next) {
			next = e->chain;
			free(e);
		}
	}
	free(ix->buckets);
}

struct entry *index_find(const struct index *ix, uint64_t id)
{
	struct entry *e = ix->buckets[bucket(ix, id)];

	while (e && e->id != id)
		e = e->chain;
	return e;
}

/* Where memory lacks, chains become longer instead. */
static void grow(struct index *ix)
{
	struct index bigger = { calloc(2 * ix->nr_buckets, sizeof(struct entry *)), ix->nr,
				2 * ix->nr_buckets };

	if (!bigger.buckets)
		return;
	for (size_t i = 0; i < ix->nr_buckets; i++) {
		for (struct entry *e = ix->buckets[i], *next; e; e = next) {
			size_t to = bucket(&bigger, e->id);

			next = e->chain;
			e->chain = bigger.buckets[to];
			bigger.buckets[to] = e;
		}
	}
	free(ix->buckets);
	*ix = bigger;
}

struct entry *index_add(struct index *ix, uint64_t id, uint64_t size)
{
	struct entry *e = calloc(1, sizeof(*e));
	size_t to;

	if (!e)
		return NULL;
	if (ix->nr >= ix->nr_buckets)
		grow(ix);
	to = bucket(ix, id);
	e->id = id;
	e->size = size;
	list_init(&e->link);
	e->chain = ix->buckets[to];
	ix->buckets[to] = e;
	ix->nr++;
	return e;
}

void index_drop(struct index *ix, struct entry *e)
{
	struct entry **at = &ix->buckets[bucket(ix, e->id)];

	while (*at != e)
		at = &(*at)->chain;
	*at = e->chain;
	ix->nr--;
	free(e);
}
