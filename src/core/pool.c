// SPDX-License-Identifier: MIT
/*
 * The staging memory of an engine: slots, allocated and pinned several at a time.
 */
#include <inttypes.h>
#include <sys/mman.h>

#include "base/err.h"
#include "base/log.h"
#include "core/pool.h"

#define ARENA_SLOTS 8u

static void arena_free(struct engine *e, struct arena *a)
{
	store_buf_free(a->sbuf);
	mem_unpin(e->ops, e->device, a->buf, a->len);
	(void)munmap(a->buf, a->len);
	free(a);
}

/* Anonymous memory, because io_uring cannot register memory of a device's driver. */
static int arena_new(struct engine *e, unsigned nr, struct arena **ret)
{
	struct arena *a = calloc(1, sizeof(*a) + nr * sizeof(a->jobs[0]));
	int r;

	if (!a)
		return err_set(ENOMEM, "out of memory");
	a->nr = nr;
	a->len = nr * e->slot_size;
	a->buf = mmap(NULL, a->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (a->buf == MAP_FAILED) {
		r = err_set(ENOMEM, "no memory for %" PRIu64 " bytes of staging slots", a->len);
		free(a);
		return r;
	}
	(void)madvise(a->buf, a->len, MADV_HUGEPAGE);
	r = mem_pin(e->ops, e->device, a->buf, a->len);
	if (r < 0) {
		(void)munmap(a->buf, a->len);
		free(a);
		return r;
	}
	r = store_buf_new(a->buf, a->len, &a->sbuf);
	if (r < 0) {
		arena_free(e, a);
		return r;
	}
	for (unsigned i = 0; i < nr; i++) {
		struct job *j = &a->jobs[i];

		j->engine = e;
		j->buf = a->buf + i * e->slot_size;
		j->sbuf = a->sbuf;
		list_init(&j->link);
	}
	*ret = a;
	return 0;
}

static void pool_add(struct engine *e, struct arena *a)
{
	a->next = e->arenas;
	e->arenas = a;
	e->nr_slots += a->nr;
	for (unsigned i = a->nr; i-- > 0;) {
		a->jobs[i].next_free = e->free;
		e->free = &a->jobs[i];
	}
}

void pool_grow(struct engine *e)
{
	unsigned nr = MIN(ARENA_SLOTS, e->max_slots - e->nr_slots);
	struct arena *a;
	int r;

	if (e->growing || !nr)
		return;
	e->growing = true;
	pthread_mutex_unlock(&e->lock);
	r = arena_new(e, nr, &a);
	pthread_mutex_lock(&e->lock);
	e->growing = false;
	if (r < 0) {
		log_warn("the staging pool stays at %u slots: %s, ignoring", e->nr_slots,
			 err_text());
		e->max_slots = e->nr_slots;
		return;
	}
	pool_add(e, a);
}

int pool_start(struct engine *e)
{
	struct arena *a;
	int r = arena_new(e, MIN(ARENA_SLOTS, e->max_slots), &a);

	if (r == 0)
		pool_add(e, a);
	return r;
}

void pool_free(struct engine *e)
{
	while (e->arenas) {
		struct arena *a = e->arenas;

		e->arenas = a->next;
		arena_free(e, a);
	}
}
