/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "handle.h"
#include "lock.h"

#define CHUNK 256u /* places that are made at once */
#define CHUNKS_MAX 4096u
#define PLACES_MAX (CHUNK * CHUNKS_MAX)

_Static_assert(sizeof(uintptr_t) == 8, "a handle has room for a place and its uses");

/* Never freed, so that looking is safe without a lock. */
struct place {
	_Atomic uintptr_t handle; /* 0: free */
	void *_Atomic object;     /* written before the handle */
	uintptr_t next;           /* the handle that it will have */
	struct place *next_free;
};

/* Written with the lock held. */
static struct table {
	struct place *_Atomic chunks[CHUNKS_MAX];
	unsigned nr;
	struct place *free;
} tables[HANDLE_KINDS];

static struct place *place_of(enum handle_kind kind, const void *handle)
{
	uintptr_t i = (uintptr_t)handle % PLACES_MAX;
	struct place *chunk = atomic_load(&tables[kind].chunks[i / CHUNK]);

	return chunk && handle ? &chunk[i % CHUNK] : NULL;
}

static struct place *more(struct table *t)
{
	struct place *c;

	if (t->nr == CHUNKS_MAX)
		return NULL;
	c = calloc(CHUNK, sizeof(*c));
	if (!c)
		return NULL;
	for (unsigned i = CHUNK; i-- > 0;) {
		c[i].next = PLACES_MAX + t->nr * CHUNK + i;
		c[i].next_free = t->free;
		t->free = &c[i];
	}
	atomic_store(&t->chunks[t->nr++], c);
	return t->free;
}

int handle_new(enum handle_kind kind, void *object, void **ret_handle)
{
	struct table *t = &tables[kind];
	struct place *p;
	int r = 0;

	lock_take(LOCK_HANDLES);
	p = t->free ? t->free : more(t);
	if (p) {
		t->free = p->next_free;
		atomic_store(&p->object, object);
		atomic_store(&p->handle, p->next);
		*ret_handle = (void *)p->next;
		p->next += PLACES_MAX;
	} else {
		r = t->nr == CHUNKS_MAX ? -EMFILE : -ENOMEM;
	}
	lock_drop(LOCK_HANDLES);
	return r;
}

void *handle_get(enum handle_kind kind, const void *handle)
{
	struct place *p = place_of(kind, handle);

	return p && atomic_load(&p->handle) == (uintptr_t)handle ? atomic_load(&p->object) : NULL;
}

void *handle_hide(enum handle_kind kind, const void *handle)
{
	struct place *p = place_of(kind, handle);
	uintptr_t valid = (uintptr_t)handle;

	return p && atomic_compare_exchange_strong(&p->handle, &valid, 0) ? atomic_load(&p->object)
									  : NULL;
}

void handle_show(enum handle_kind kind, const void *handle)
{
	atomic_store(&place_of(kind, handle)->handle, (uintptr_t)handle);
}

void handle_drop(enum handle_kind kind, const void *handle)
{
	struct place *p = place_of(kind, handle);

	lock_take(LOCK_HANDLES);
	p->next_free = tables[kind].free;
	tables[kind].free = p;
	lock_drop(LOCK_HANDLES);
}

void *handle_take(enum handle_kind kind, const void *handle)
{
	void *object = handle_hide(kind, handle);

	if (object)
		handle_drop(kind, handle);
	return object;
}
