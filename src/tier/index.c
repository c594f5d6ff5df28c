/* SPDX-License-Identifier: MIT */
#include "tier/index.h"

#define BUCKETS_MIN 64u
#define ROOM_MIN 64u
/* The array grows by 1 part in 8.  Its unused part occupies only addresses, and the C library moves
 * large arrays without copying. */
#define GROWTH 8u
/* index_shrink() copies only if the dropped entries exceed the others by more than this number. */
#define UNUSED_MAX 64u

static size_t index_bucket(size_t nr_buckets, uint64_t id)
{
	return (size_t)(id * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (nr_buckets - 1);
}

static uint32_t index_place_of(const struct index *ix, const struct entry *e)
{
	return (uint32_t)(e - ix->entries) + 1;
}

int index_init(struct index *ix)
{
	*ix = (struct index){ .nr_buckets = BUCKETS_MIN };
	ix->buckets = calloc(BUCKETS_MIN, sizeof(*ix->buckets));
	return ix->buckets ? 0 : -ENOMEM;
}

void index_done(struct index *ix)
{
	free(ix->entries);
	free(ix->buckets);
}

struct entry *index_find(const struct index *ix, uint64_t id)
{
	struct entry *e = index_at(ix, ix->buckets[index_bucket(ix->nr_buckets, id)]);

	while (e && e->id != id)
		e = index_at(ix, e->chain);
	return e;
}

void index_prefetch(const struct index *ix, uint64_t id)
{
	__builtin_prefetch(&ix->buckets[index_bucket(ix->nr_buckets, id)]);
}

static int rehash(struct index *ix, size_t nr_buckets)
{
	uint32_t *bigger = calloc(nr_buckets, sizeof(*bigger));

	if (!bigger)
		return -ENOMEM;
	for (size_t i = 0; i < ix->nr_buckets; i++) {
		for (uint32_t at = ix->buckets[i], next; at; at = next) {
			struct entry *e = index_at(ix, at);
			size_t to = index_bucket(nr_buckets, e->id);

			next = e->chain;
			e->chain = bigger[to];
			bigger[to] = at;
		}
	}
	free(ix->buckets);
	ix->buckets = bigger;
	ix->nr_buckets = nr_buckets;
	return 0;
}

static int index_grow(struct index *ix, size_t room)
{
	struct entry *more;

	/* Positions are stored in 32 bits. */
	if (room >= UINT32_MAX)
		return -ENOMEM;
	more = reallocarray(ix->entries, room, sizeof(*more));
	if (!more)
		return -ENOMEM;
	ix->entries = more;
	ix->room = room;
	return 0;
}

int index_reserve(struct index *ix, size_t nr)
{
	size_t buckets = ix->nr_buckets;

	if (ix->made + nr > ix->room && index_grow(ix, ix->made + nr) < 0)
		return -ENOMEM;
	while (buckets < ix->nr + nr)
		buckets *= 2;
	return buckets > ix->nr_buckets ? rehash(ix, buckets) : 0;
}

void index_shrink(struct index *ix)
{
	struct index to;

	if (ix->made <= 2 * ix->nr + UNUSED_MAX || index_init(&to) < 0)
		return;
	/* Without memory for a copy, the index stays as it is. */
	if (index_reserve(&to, ix->nr) < 0) {
		index_done(&to);
		return;
	}
	for (unsigned q = 0; q < INDEX_QUEUES; q++) {
		for (struct entry *e = index_oldest(ix, q); e; e = index_newer(ix, e)) {
			struct entry *copy = index_add(&to, e->id, e->size);

			copy->uses = e->uses;
			copy->user = e->user;
			index_enter(&to, copy, q);
		}
	}
	index_done(ix);
	*ix = to;
}

struct entry *index_add(struct index *ix, uint64_t id, uint64_t size)
{
	struct entry *e = index_at(ix, ix->free);
	uint32_t *to;

	if (!e && ix->made == ix->room &&
	    index_grow(ix, ix->room + MAX(ix->room / GROWTH, (size_t)ROOM_MIN)) < 0)
		return NULL;
	/* If there is no memory for more buckets, chains just become longer. */
	if (ix->nr >= ix->nr_buckets)
		(void)rehash(ix, 2 * ix->nr_buckets);
	if (e)
		ix->free = e->chain;
	else
		e = &ix->entries[ix->made++];
	to = &ix->buckets[index_bucket(ix->nr_buckets, id)];
	*e = (struct entry){
		.id = id,
		.size = MIN(size, INDEX_SIZE_MAX) & INDEX_SIZE_MAX,
		.queue = INDEX_NO_QUEUE,
		.chain = *to,
	};
	*to = index_place_of(ix, e);
	ix->nr++;
	return e;
}

void index_drop(struct index *ix, struct entry *e)
{
	uint32_t *at = &ix->buckets[index_bucket(ix->nr_buckets, e->id)],
		 place = index_place_of(ix, e);

	while (*at != place)
		at = &index_at(ix, *at)->chain;
	*at = e->chain;
	e->chain = ix->free;
	ix->free = place;
	ix->nr--;
}

void index_enter(struct index *ix, struct entry *e, unsigned queue)
{
	struct entry_queue *q = &ix->q[queue];
	uint32_t place = index_place_of(ix, e);

	e->queue = queue & 0xff;
	e->next = 0;
	e->prev = q->last;
	if (q->last)
		index_at(ix, q->last)->next = place;
	else
		q->first = place;
	q->last = place;
	q->nr++;
	q->bytes += e->size;
}

void index_leave(struct index *ix, struct entry *e)
{
	struct entry_queue *q = &ix->q[e->queue];

	if (e->prev)
		index_at(ix, e->prev)->next = e->next;
	else
		q->first = e->next;
	if (e->next)
		index_at(ix, e->next)->prev = e->prev;
	else
		q->last = e->prev;
	q->nr--;
	q->bytes -= e->size;
	e->queue = INDEX_NO_QUEUE;
}
