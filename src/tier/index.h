/* SPDX-License-Identifier: MIT */
/*
 * What policies share: entries by file number, and queues of entries with their bytes.
 *
 * An entry takes 32 bytes and 4 to 8 of the table that finds it: entries are in one array and name
 * each other by their place there.  A pointer to one is valid until the next index_add().
 */
#ifndef PST_TIER_INDEX_H
#define PST_TIER_INDEX_H

#include "base/base.h"

#define INDEX_QUEUES 4u     /* most queues of a policy */
#define INDEX_NO_QUEUE 255u /* the queue of an entry that is in none */
#define INDEX_USES_MAX 255u /* largest entry.uses */
#define INDEX_SIZE_BITS 48  /* of entry.size: files up to 256 TiB; larger ones count as that */
#define INDEX_SIZE_MAX ((UINT64_C(1) << INDEX_SIZE_BITS) - 1)

/* A file that a policy remembers.  Places are positions in the array plus 1; 0 is none. */
struct entry {
	uint64_t id;
	uint64_t size : INDEX_SIZE_BITS;
	uint64_t uses : 8;
	uint64_t queue : 8;  /* number of the queue that it is in, for the policy */
	uint32_t chain;      /* next one of its bucket, or next free one */
	uint32_t next, prev; /* in its queue */
	uint32_t user;       /* of who uses the policy; 0 in a new entry */
};

/* Oldest first. */
struct entry_queue {
	uint32_t first, last, nr;
	uint64_t bytes;
};

struct index {
	struct entry *entries;
	uint32_t *buckets;
	size_t nr, nr_buckets; /* entries in use; a power of two */
	size_t made, room;     /* entries that were ever in use; that the array has room for */
	uint32_t free;         /* first unused one of those made */
	struct entry_queue q[INDEX_QUEUES];
};

int index_init(struct index *ix); /* 0 or -ENOMEM */
/* Frees all entries. */
void index_done(struct index *ix);

struct entry *index_find(const struct index *ix, uint64_t id);
/* A new entry, in no queue; NULL: out of memory. */
struct entry *index_add(struct index *ix, uint64_t id, uint64_t size);
/* Free an entry that is in no queue. */
void index_drop(struct index *ix, struct entry *e);

/* Have what index_find() needs in the CPU's caches soon. */
void index_prefetch(const struct index *ix, uint64_t id);

/* Make room for so many more entries at once.  0 or -ENOMEM. */
int index_reserve(struct index *ix, size_t nr);

/* Free the memory of dropped entries if they are most of those made.  All entries must be in a
 * queue; pointers to them are invalid afterwards. */
void index_shrink(struct index *ix);

/* Put an entry that is in no queue behind the newest of one. */
void index_enter(struct index *ix, struct entry *e, unsigned queue);
/* Take an entry out of its queue. */
void index_leave(struct index *ix, struct entry *e);

static inline struct entry *index_at(const struct index *ix, uint32_t place)
{
	return place ? &ix->entries[place - 1] : NULL;
}

static inline struct entry *index_oldest(const struct index *ix, unsigned queue)
{
	return index_at(ix, ix->q[queue].first);
}

/* The next newer entry of its queue, or NULL. */
static inline struct entry *index_newer(const struct index *ix, const struct entry *e)
{
	return index_at(ix, e->next);
}

/* Memory that is in use, in bytes. */
static inline uint64_t index_memory(const struct index *ix)
{
	return ix->made * sizeof(struct entry) + ix->nr_buckets * sizeof(uint32_t);
}

#endif
