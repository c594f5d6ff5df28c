/* SPDX-License-Identifier: MIT */
#include "base/handle.h"

_Static_assert(sizeof(uintptr_t) == 8, "a handle has room for an index and its uses");

/* The entry of one index in a table.  Entries are never freed, so that lookups are safe without a
 * lock. */
struct handle_slot {
	_Atomic uintptr_t handle; /* the valid handle of this index, or 0 */
	void *_Atomic object;     /* written before the handle */
	uintptr_t next;           /* the next handle of this index; only the thread that took the
				   * slot off the free list uses it */
	_Atomic uint32_t next_free;
};

static struct handle_slot *slot_at(struct handle_table *t, uint32_t idx)
{
	struct handle_slot *chunk = atomic_load(&t->chunks[idx / HANDLE_CHUNK]);

	return chunk ? &chunk[idx % HANDLE_CHUNK] : NULL;
}

static struct handle_slot *slot_of(struct handle_table *t, uintptr_t handle)
{
	return handle ? slot_at(t, handle % HANDLES_MAX) : NULL;
}

/* ------------------------------------------------------- the list of free ones */

/* Return a list head with an incremented count of changes.  If the list has changed, its head then
 * differs even if its first slot is the same. */
static uint64_t head_of(uint64_t old, uint32_t first)
{
	return ((old >> 32) + 1) << 32 | first;
}

/* Push a chain of slots; first and last are indices. */
static void handle_push(struct handle_table *t, uint32_t first, uint32_t last)
{
	struct handle_slot *end = slot_at(t, last);
	uint64_t head = atomic_load(&t->free);

	do
		atomic_store(&end->next_free, (uint32_t)head);
	while (!atomic_compare_exchange_weak(&t->free, &head, head_of(head, first + 1)));
}

static struct handle_slot *pop(struct handle_table *t)
{
	uint64_t head = atomic_load(&t->free);
	struct handle_slot *s;
	uint32_t next;

	do {
		/* Not NULL, because a slot on the free list is in an existing chunk. */
		s = (uint32_t)head ? slot_at(t, (uint32_t)head - 1) : NULL;
		if (!s)
			return NULL;
		next = atomic_load(&s->next_free);
	} while (!atomic_compare_exchange_weak(&t->free, &head, head_of(head, next)));
	return s;
}

/* Return the index of the first chunk that does not exist. */
static uint32_t chunks_end(struct handle_table *t)
{
	uint32_t i = 0;

	while (i < t->max / HANDLE_CHUNK && atomic_load(&t->chunks[i]))
		i++;
	return i;
}

/* Add a chunk of free slots.  Threads that come here at the same time each add one. */
static int handle_grow(struct handle_table *t)
{
	struct handle_slot *none, *c = NULL;
	uint32_t i, first;

	while ((i = chunks_end(t)) < t->max / HANDLE_CHUNK) {
		if (!c)
			c = calloc(HANDLE_CHUNK, sizeof(*c));
		if (!c)
			return -ENOMEM;
		first = i * HANDLE_CHUNK;
		for (uint32_t k = 0; k < HANDLE_CHUNK; k++) {
			c[k].next = HANDLES_MAX + first + k;
			atomic_store(&c[k].next_free, first + k + 2);
		}
		none = NULL;
		if (atomic_compare_exchange_strong(&t->chunks[i], &none, c)) {
			handle_push(t, first, first + HANDLE_CHUNK - 1);
			return 0;
		}
	}
	free(c);
	return -EMFILE;
}

/* ----------------------------------------------------------------- handles */

int handle_new(struct handle_table *t, void *object, uintptr_t *ret_handle)
{
	struct handle_slot *s;
	int r = 0;

	while ((s = pop(t)) == NULL && r == 0) {
		atomic_fetch_add(&t->growing, 1);
		r = handle_grow(t);
		/* Another thread may have added the last chunk, and not have put its slots on the
		 * free list yet. */
		if (atomic_fetch_sub(&t->growing, 1) > 1 && r == -EMFILE)
			r = 0;
	}
	if (!s)
		return r;
	atomic_store(&s->object, object);
	*ret_handle = s->next;
	atomic_store(&s->handle, s->next);
	return 0;
}

void *handle_get(struct handle_table *t, uintptr_t handle)
{
	struct handle_slot *s = slot_of(t, handle);
	void *object;

	if (!s || atomic_load(&s->handle) != handle)
		return NULL;
	/* A handle's object never changes, and a handle is never reused.  So if the handle is valid
	 * before and after the object is read, the object belongs to it. */
	object = atomic_load(&s->object);
	return atomic_load(&s->handle) == handle ? object : NULL;
}

void *handle_hide(struct handle_table *t, uintptr_t handle)
{
	struct handle_slot *s = slot_of(t, handle);
	uintptr_t valid = handle;

	return s && atomic_compare_exchange_strong(&s->handle, &valid, 0) ? atomic_load(&s->object)
									  : NULL;
}

void handle_show(struct handle_table *t, uintptr_t handle)
{
	atomic_store(&slot_of(t, handle)->handle, handle);
}

void handle_drop(struct handle_table *t, uintptr_t handle)
{
	uint32_t idx = handle % HANDLES_MAX;

	slot_at(t, idx)->next = handle + HANDLES_MAX;
	handle_push(t, idx, idx);
}

void *handle_take(struct handle_table *t, uintptr_t handle)
{
	void *object = handle_hide(t, handle);

	if (object)
		handle_drop(t, handle);
	return object;
}
