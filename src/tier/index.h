/* SPDX-License-Identifier: MIT */
/*
 * Data structures of policies: entries found by file number, and queues of entries that count
 * bytes.
 *
 * An entry takes 32 bytes plus 4 to 8 bytes of hash table.  Entries are in one array and refer to
 * each other by position.  A pointer to an entry is valid until the next index_add().
 */
#ifndef PST_TIER_INDEX_H
#define PST_TIER_INDEX_H

#include "base/base.h"

#define INDEX_QUEUES 4u     /* most queues of a policy */
#define INDEX_NO_QUEUE 255u /* value of entry.queue outside of any queue */
#define INDEX_USES_MAX 255u /* largest value of entry.uses */
#define INDEX_SIZE_BITS 48  /* bits of entry.size; larger files count as 256 TiB */
#define INDEX_SIZE_MAX ((UINT64_C(1) << INDEX_SIZE_BITS) - 1)

/* A file that a policy remembers.  chain, next and prev are array positions plus 1; 0 means
 * none. */
struct entry {
	uint64_t id;
	uint64_t size : INDEX_SIZE_BITS;
	uint64_t uses : 8;
	uint64_t queue : 8;  /* number of the queue that holds the entry; or NO_QUEUE */
	uint32_t chain;      /* next entry of the bucket, or next free entry */
	uint32_t next, prev; /* neighbours in the queue */
	uint32_t user;       /* for the policy's user; 0 in a new entry */
};

/* A queue, oldest entry first. */
struct entry_queue {
	uint32_t first, last, nr;
	uint64_t bytes;
};

struct index {
	struct entry *entries;
	uint32_t *buckets;
	size_t nr, nr_buckets; /* entries in use; buckets, a power of two */
	size_t made, room;     /* entries ever used; length of the array */
	uint32_t free;         /* position plus 1 of the first free entry; 0: none */
	struct entry_queue q[INDEX_QUEUES];
};

int index_init(struct index *ix); /* return 0 or -ENOMEM */
/* Free all entries. */
void index_done(struct index *ix);

struct entry *index_find(const struct index *ix, uint64_t id);
/* Add an entry, in no queue yet; return NULL if out of memory. */
struct entry *index_add(struct index *ix, uint64_t id, uint64_t size);
/* Free an entry, which must be in no queue. */
void index_drop(struct index *ix, struct entry *e);

/* Prefetch the memory that index_find() will read. */
void index_prefetch(const struct index *ix, uint64_t id);

/* Allocate room for nr more entries at once.  Return 0 or -ENOMEM. */
int index_reserve(struct index *ix, size_t nr);

/* Free the memory of dropped entries if they are most of those made.  All entries must be in a
 * queue; pointers to them are invalid afterwards. */
void index_shrink(struct index *ix);

/* Append an entry, which is in no queue, to a queue as the newest one. */
void index_enter(struct index *ix, struct entry *e, unsigned queue);
/* Remove an entry from its queue. */
void index_leave(struct index *ix, struct entry *e);

static inline struct entry *index_at(const struct index *ix, uint32_t place)
{
	return place ? &ix->entries[place - 1] : NULL;
}

static inline struct entry *index_oldest(const struct index *ix, unsigned queue)
{
	return index_at(ix, ix->q[queue].first);
}

/* Return the next newer entry of its queue, or NULL. */
static inline struct entry *index_newer(const struct index *ix, const struct entry *e)
{
	return index_at(ix, e->next);
}

/* Return the bytes of memory in use. */
static inline uint64_t index_memory(const struct index *ix)
{
	return ix->made * sizeof(struct entry) + ix->nr_buckets * sizeof(uint32_t);
}

#endif
