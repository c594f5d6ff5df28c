/* SPDX-License-Identifier: MIT */
/*
 * The objects that a queue has requests on: a hash table by address, under the queue's lock.  This
 * file also has the slow parts of unlocking a queue, because they release objects.
 */
#include "base/cancel.h"
#include "base/err.h"
#include "base/log.h"
#include "base/work.h"
#include "core/queue/above.h"
#include "core/queue/object.h"
#include "core/queue/queue.h"

#define BITS_MIN 6u

bool object_unref(struct object *obj)
{
	/* acq_rel: accesses by other holders happen before release(). */
	return atomic_fetch_sub_explicit(&obj->refs, 1, memory_order_acq_rel) == 1;
}

void object_put(struct object *obj)
{
	if (object_unref(obj))
		obj->release(obj);
}

static struct use **use_bucket(struct pst_queue *q, const struct object *obj)
{
	/* Fibonacci hashing: the product's upper bits depend on all of the address. */
	return &q->uses[(uintptr_t)obj * UINT64_C(0x9e3779b97f4a7c15) >> (64 - q->uses_bits)];
}

bool uses_init(struct pst_queue *q)
{
	q->uses_bits = BITS_MIN;
	q->uses = calloc((size_t)1 << BITS_MIN, sizeof(struct use *));
	return q->uses;
}

/* Double the number of buckets.  Without memory, keep the table as it is. */
static void uses_grow(struct pst_queue *q)
{
	size_t nr = (size_t)1 << q->uses_bits;
	struct use **old = q->uses, **more = calloc(2 * nr, sizeof(struct use *)), **to, *next;

	if (!more)
		return;
	q->uses = more;
	q->uses_bits++;
	for (size_t i = 0; i < nr; i++)
		for (struct use *u = old[i]; u; u = next) {
			next = u->next;
			to = use_bucket(q, u->obj);
			u->next = *to;
			*to = u;
		}
	free(old);
}

struct use *use_find(struct pst_queue *q, struct object *obj, struct use **last)
{
	struct use **head = use_bucket(q, obj), *u;

	for (u = *head; u; u = u->next)
		if (u->obj == obj) {
			*last = u;
			return u;
		}
	u = malloc(sizeof(*u));
	if (!u) {
		(void)err_set(ENOMEM, "out of memory");
		return NULL;
	}
	if (++q->nr_uses > 1u << q->uses_bits) {
		uses_grow(q);
		head = use_bucket(q, obj);
	}
	*u = (struct use){ .next = *head, .obj = obj };
	atomic_fetch_add_explicit(&obj->refs, 1, memory_order_relaxed);
	*head = *last = u;
	return u;
}

void use_drop(struct pst_queue *q, struct use *u)
{
	struct use **at = use_bucket(q, u->obj);

	while (*at != u)
		at = &(*at)->next;
	*at = u->next;
	q->nr_uses--;
	if (q->last_mem == u)
		q->last_mem = NULL;
	if (q->last_file == u)
		q->last_file = NULL;
	if (q->last_lower == u)
		q->last_lower = NULL;
	ways_forget(q); /* the plan identifies its file by address, which another file may get */
	/* Dropping the last reference closes a file or frees memory, so no lock is held. */
	u->next = q->dropped;
	q->dropped = u;
}

static void release_all(struct use *list)
{
	struct use *next;

	for (struct use *u = list; u; u = next) {
		next = u->next;
		u->obj->release(u->obj);
		free(u);
	}
}

static void release_run(struct work *w)
{
	release_all(container_of(w, struct use, work));
}

void use_end(struct use *dropped)
{
	struct use *next, *hang = NULL;

	NO_CANCEL(); /* pst_queue_prep() does not disable thread cancellation */
	for (struct use *u = dropped; u; u = next) {
		next = u->next;
		if (!object_unref(u->obj)) {
			free(u);
			continue;
		}
		if (u->obj->hangs) {
			u->next = hang;
			hang = u;
			continue;
		}
		u->obj->release(u->obj);
		free(u);
	}
	if (likely(!hang))
		return;
	/* Use another thread: the caller is mostly pst_queue_reap(), which must keep deadlines. */
	work_init(&hang->work, release_run);
	if (work_spawn(&hang->work, "pst-close", true) == 0)
		return;
	log_warn("a file that may hang is closed within the call: %s", err_text());
	release_all(hang);
}

unsigned use_count(struct pst_queue *q, const struct object *obj)
{
	for (struct use *u = *use_bucket(q, obj); u; u = u->next)
		if (u->obj == obj)
			return u->nr;
	return 0;
}

void use_release(struct pst_queue *q, const struct object *obj)
{
	for (struct use *u = *use_bucket(q, obj); u; u = u->next)
		if (u->obj == obj) {
			if (!u->nr)
				use_drop(q, u);
			return;
		}
}

void use_release_dying(struct pst_queue *q)
{
	for (size_t i = 0; i < (size_t)1 << q->uses_bits; i++)
		for (struct use *u = q->uses[i], *next; u; u = next) {
			next = u->next;
			if (!u->nr && atomic_load(&u->obj->dying))
				use_drop(q, u);
		}
}

void use_release_all(struct pst_queue *q)
{
	for (size_t i = 0; i < (size_t)1 << q->uses_bits; i++)
		while (q->uses[i])
			use_drop(q, q->uses[i]);
}

void queue_unlock_to(struct pst_queue *q, struct use **dropped)
{
	do {
		if (unlikely(atomic_load_explicit(&q->look, memory_order_relaxed))) {
			atomic_store(&q->look, false);
			use_release_dying(q);
		}
		while (unlikely(dropped && q->dropped)) {
			struct use *u = q->dropped;

			q->dropped = u->next;
			u->next = *dropped;
			*dropped = u;
		}
		lock_drop(&q->lock);
		/* Pairs with registry_release(), which sets @look and then tries the lock: either
		 * registry_release() gets the lock, or this thread sees @look. */
	} while (unlikely(atomic_load(&q->look)) && lock_try(&q->lock));
}

void queue_unlock_slow(struct pst_queue *q)
{
	struct use *dropped = NULL;

	queue_unlock_to(q, &dropped);
	if (dropped)
		use_end(dropped);
}
