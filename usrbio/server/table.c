/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "usrbio/server/table.h"

static inline uint32_t spread(uint64_t x)
{
	return (uint32_t)(x * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

static inline uint32_t hash_id(const uint8_t id[USRBIO_ID_LEN])
{
	uint64_t a, b;

	memcpy(&a, id, sizeof(a));
	memcpy(&b, id + sizeof(a), sizeof(b));
	return spread(a ^ b * 3);
}

/* Invalidate all entries of caches.  Caller holds the lock. */
static void changed(struct table *t)
{
	(void)atomic_fetch_add(&t->version, 1);
}

static inline void cache_check(const struct table *t, struct table_cache *c)
{
	uint64_t v = atomic_load_explicit(&t->version, memory_order_acquire);

	if (likely(c->version == v))
		return;
	*c = (struct table_cache){ .version = v };
}

/* ------------------------------------------------------------------- files */

void table_file_add(struct table *t, struct server_file *f)
{
	struct server_file **head = &t->files[spread(f->number) % TABLE_BUCKETS];

	(void)pthread_mutex_lock(&t->lock);
	f->next = *head;
	*head = f;
	changed(t);
	(void)pthread_mutex_unlock(&t->lock);
}

void table_file_del(struct table *t, struct server_file *f)
{
	struct server_file **at = &t->files[spread(f->number) % TABLE_BUCKETS];

	(void)pthread_mutex_lock(&t->lock);
	while (*at != f)
		at = &(*at)->next;
	*at = f->next;
	changed(t);
	(void)pthread_mutex_unlock(&t->lock);
}

static inline bool file_does(const struct server_file *f, bool write)
{
	return write ? f->write : f->read;
}

static struct server_file *file_find(struct table *t, uint32_t hash, uint64_t number, bool write,
				     int *ret_err)
{
	struct server_file *f;

	*ret_err = -EBADF;
	(void)pthread_mutex_lock(&t->lock);
	for (f = t->files[hash % TABLE_BUCKETS]; f; f = f->next) {
		if (f->number != number)
			continue;
		if (file_does(f, write))
			break;
		*ret_err = -EACCES;
	}
	(void)pthread_mutex_unlock(&t->lock);
	return f;
}

struct server_file *table_file(struct table *t, struct table_cache *c, uint64_t number, bool write,
			       int *ret_err)
{
	struct server_file **place, *f;
	uint32_t hash;

	cache_check(t, c);
	f = c->file;
	if (likely(f && f->number == number && file_does(f, write)))
		return f;
	hash = spread(number);
	place = &c->files[hash % TABLE_CACHE];
	f = *place;
	if (!f || f->number != number || !file_does(f, write)) {
		f = file_find(t, hash, number, write, ret_err);
		if (f)
			*place = f;
	}
	c->file = f;
	return f;
}

/* ----------------------------------------------------------------- buffers */

void table_buffer_add(struct table *t, struct server_buffer *b)
{
	struct server_buffer **at = &t->buffers[hash_id(b->id) % TABLE_BUCKETS], **it;

	(void)pthread_mutex_lock(&t->lock);
	for (it = at; b->view && *it; it = &(*it)->next)
		if ((*it)->len >= b->len && memcmp((*it)->id, b->id, sizeof(b->id)) == 0)
			at = &(*it)->next;
	b->next = *at;
	*at = b;
	changed(t);
	(void)pthread_mutex_unlock(&t->lock);
}

void table_buffer_del(struct table *t, struct server_buffer *b)
{
	struct server_buffer **at = &t->buffers[hash_id(b->id) % TABLE_BUCKETS];

	(void)pthread_mutex_lock(&t->lock);
	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	changed(t);
	(void)pthread_mutex_unlock(&t->lock);
}

static struct server_buffer *buffer_find(struct table *t, uint32_t hash,
					 const uint8_t id[USRBIO_ID_LEN])
{
	struct server_buffer *b;

	(void)pthread_mutex_lock(&t->lock);
	for (b = t->buffers[hash % TABLE_BUCKETS]; b; b = b->next)
		if (memcmp(b->id, id, USRBIO_ID_LEN) == 0)
			break;
	(void)pthread_mutex_unlock(&t->lock);
	return b;
}

struct server_buffer *table_buffer(struct table *t, struct table_cache *c,
				   const uint8_t id[USRBIO_ID_LEN])
{
	struct server_buffer **place, *b;
	uint32_t hash;

	cache_check(t, c);
	b = c->buffer;
	if (likely(b && memcmp(b->id, id, USRBIO_ID_LEN) == 0))
		return b;
	hash = hash_id(id);
	place = &c->buffers[hash % TABLE_CACHE];
	b = *place;
	if (!b || memcmp(b->id, id, USRBIO_ID_LEN) != 0) {
		b = buffer_find(t, hash, id);
		if (b)
			*place = b;
	}
	c->buffer = b;
	return b;
}
