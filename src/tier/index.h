/* SPDX-License-Identifier: MIT */
/* What policies share: entries by file number, and queues of entries with their bytes. */
#ifndef PST_TIER_INDEX_H
#define PST_TIER_INDEX_H

#include "base/base.h"
#include "base/list.h"

/* A file that a policy remembers. */
struct entry {
	struct entry *chain; /* next one of its bucket */
	struct list link;    /* in the queue that it is in */
	uint64_t id, size;
	uint32_t uses;
	uint8_t queue; /* number of that queue, for the policy */
};

struct index {
	struct entry **buckets;
	size_t nr, nr_buckets; /* a power of two */
};

/* Oldest first. */
struct entry_queue {
	struct list list;
	uint64_t bytes;
};

int index_init(struct index *ix); /* 0 or -ENOMEM */
/* Frees all entries. */
void index_done(struct index *ix);

struct entry *index_find(const struct index *ix, uint64_t id);
/* A new entry, in no queue; NULL: out of memory. */
struct entry *index_add(struct index *ix, uint64_t id, uint64_t size);
/* Free an entry that is in no queue. */
void index_drop(struct index *ix, struct entry *e);

static inline void equeue_init(struct entry_queue *q)
{
	list_init(&q->list);
	q->bytes = 0;
}

static inline void equeue_add(struct entry_queue *q, struct entry *e)
{
	list_add_tail(&q->list, &e->link);
	q->bytes += e->size;
}

static inline void equeue_del(struct entry_queue *q, struct entry *e)
{
	list_del(&e->link);
	q->bytes -= e->size;
}

static inline struct entry *equeue_oldest(const struct entry_queue *q)
{
	return list_empty(&q->list) ? NULL : list_first(&q->list, struct entry, link);
}

#endif
