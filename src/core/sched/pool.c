/* SPDX-License-Identifier: MIT */
#include <inttypes.h>

#include "base/err.h"
#include "base/limit.h"
#include "base/log.h"
#include "core/queue/idle.h"
#include "core/sched/above.h"
#include "core/sched/arena.h"
#include "core/sched/engine.h"
#include "core/sched/pool.h"
#include "core/sched/share.h"
#include "core/sched/wake.h"

#define GROW_MAX MIB(64)            /* maximum bytes by which a pool grows at a time */
#define BUILTIN_PER_ENGINE MIB(256) /* bytes of the limit for each engine, if no limit was set */
#define RESERVE_WAIT_NS NSEC_PER_SEC
#define GROW_AGAIN_NS NSEC_PER_SEC
#define OWN_SLOTS 4u      /* maximum free slots that a worker keeps */
#define FEED_BYTES MIB(8) /* bytes of slots for reads that a stream waits for */
#define FEED_MAX MIB(64)  /* maximum bytes of slots for feeds, hanging reads included */

/* Lock order: pools, engine.  pinned_bytes, the bytes of all pools, grows only under pools.lock. */
static struct {
	pthread_mutex_t lock;
	struct list list;
	_Atomic unsigned nr;      /* number of pools */
	_Atomic uint64_t reserve; /* bytes: sum of all pools' reserve */
} pools = { .lock = PTHREAD_MUTEX_INITIALIZER, .list = LIST_INIT(pools.list) };

/* -------------------------------------------------------------- the bound */

/* Return the default limit in bytes.  The limit is never below what queues have reserved, even
 * after engines ended. */
static uint64_t builtin(void)
{
	uint64_t reserve = pools.reserve, all = pools.nr * BUILTIN_PER_ENGINE;

	return MAX(all ? all : BUILTIN_PER_ENGINE, reserve);
}

/* Charge len bytes to the limit before they are pinned. */
static int sched_pool_charge(uint64_t len)
{
	uint64_t bound;
	bool fits;

	pthread_mutex_lock(&pools.lock);
	bound = limit_get(LIMIT_POOL, builtin());
	fits = pinned_bytes <= bound && len <= bound - pinned_bytes;
	if (fits)
		pinned_bytes += len;
	pthread_mutex_unlock(&pools.lock);
	if (fits)
		return 0;
	return err_set(EBUSY,
		       "%" PRIu64 " bytes of pinned memory are needed and the staging pool's bound "
		       "of %" PRIu64 " leaves no room; raise it (pst_limits_set(), PST_POOL)",
		       len, bound);
}

static void pool_pause(void)
{
	(void)nanosleep(&(struct timespec){ .tv_nsec = (long)NSEC_PER_MSEC }, NULL);
}

int pool_charge(uint64_t len)
{
	uint64_t end = now_ns() + RESERVE_WAIT_NS;
	int r = sched_pool_charge(len);

	/* Wait until idle queues are freed, or other pools have freed slots above their share. */
	while (r < 0 && len <= limit_get(LIMIT_POOL, builtin()) && now_ns() < end) {
		idle_free();
		r = sched_pool_charge(len);
		if (r < 0)
			pool_pause();
	}
	return r;
}

void pool_uncharge(uint64_t len)
{
	pinned_bytes -= len;
}

void pool_stats(uint64_t *ret_bytes, uint64_t *ret_limit)
{
	*ret_limit = limit_get(LIMIT_POOL, builtin());
	*ret_bytes = pinned_bytes;
}

/* ----------------------------------------------------------------- arenas */

/* Allocate an arena, and add it to the pool. */
static int arena_new(struct engine *e)
{
	struct arena *a;
	int r = arena_make(e, &a);

	if (r < 0)
		return r;
	pthread_mutex_lock(&e->lock);
	arena_add(&e->pool, a);
	engine_wake(e, NULL, a->nr);
	pthread_mutex_unlock(&e->lock);
	return 0;
}

static struct job *own_take(struct worker *w)
{
	struct job *j = w->own;

	if (j) {
		w->own = j->next_free;
		w->nr_own--;
	}
	return j;
}

/* Put the free slots that workers keep back into their arenas. */
static void own_put_all(struct engine *e)
{
	struct job *j;

	for (unsigned i = 0; i < e->nr_workers; i++)
		while ((j = own_take(&e->workers[i])))
			slot_put(&e->pool, j);
}

/* Move idle arenas above the pool's share to *ret, the youngest first; under the engine's lock. */
static void pool_trim(struct pool *p, struct list *ret)
{
	struct engine *e = container_of(p, struct engine, pool);
	struct list *el, *prev;

	if (p->nr_slots > p->max_slots)
		own_put_all(e);
	for (el = p->arenas.prev; el != &p->arenas && p->nr_slots > p->max_slots; el = prev) {
		struct arena *a = list_entry(el, struct arena, link);

		prev = el->prev;
		if (a->nr_used || p->nr_free - a->nr < p->unmet)
			continue;
		arena_del(p, a);
		list_add_tail(ret, &a->link);
	}
}

/* ------------------------------------------------------------------- parts */

/* Compute each pool's share of the limit, under the pools' lock.  Arenas above the share move to
 * *idle. */
static void share_out(struct list *idle)
{
	uint64_t bound = limit_get(LIMIT_POOL, builtin()), reserve = pools.reserve;
	uint64_t rest = bound > reserve ? (bound - reserve) / MAX(pools.nr, 1u) : 0;
	struct list *el;

	list_for_each (el, &pools.list) {
		struct pool *p = list_entry(el, struct pool, link);
		struct engine *e = container_of(p, struct engine, pool);

		if (!p->reserve)
			continue; /* the engine is being created */
		pthread_mutex_lock(&e->lock);
		p->max_slots = (unsigned)MIN((p->reserve - p->feed_bytes + rest) / e->slot_bytes,
					     (uint64_t)INT32_MAX);
		p->not_before = 0;
		pool_trim(p, idle);
		engine_wake(e, NULL, 1); /* the pool may be allowed to grow now */
		pthread_mutex_unlock(&e->lock);
	}
}

int pool_limit(uint64_t bytes)
{
	struct list idle = LIST_INIT(idle);
	uint64_t reserve;
	int r = 0;

	pthread_mutex_lock(&pools.lock);
	reserve = pools.reserve;
	if (limit_if(LIMIT_POOL, bytes, builtin()) < reserve) {
		r = err_set(EBUSY,
			    "the queues that stage are sure of %" PRIu64
			    " bytes of the pool; set at least as much, or free some of them first",
			    reserve);
	} else {
		limit_store(LIMIT_POOL, bytes);
		share_out(&idle);
	}
	pthread_mutex_unlock(&pools.lock);
	arenas_free(&idle);
	return r;
}

/* Return the bytes of the arenas that nr shares need. */
static uint64_t reserve_of(const struct engine *e, unsigned nr_shares)
{
	unsigned nr = arena_slots(e);

	return (nr_shares * SLOT_RESERVED + nr - 1) / nr * nr * e->slot_bytes;
}

/* Set the pool's number of shares, under the pools' lock. */
static void shares_are(struct engine *e, unsigned nr, struct list *idle)
{
	struct pool *p = &e->pool;

	pools.reserve -= p->reserve;
	pthread_mutex_lock(&e->lock);
	p->nr_shares = nr; /* under the lock, because workers read nr_shares */
	pthread_mutex_unlock(&e->lock);
	p->reserve = reserve_of(e, nr) + p->feed_bytes;
	pools.reserve += p->reserve;
	share_out(idle);
}

/* Allocate slots for p->unmet.  Return 0 if there are enough; 1 if an arena was added, so call
 * again; -EAGAIN if the limit has no room yet. */
static int reserve_slots(struct engine *e)
{
	struct pool *p = &e->pool;
	bool enough;
	int r;

	pthread_mutex_lock(&e->lock);
	enough = p->nr_free >= p->unmet;
	pthread_mutex_unlock(&e->lock);
	if (enough)
		return 0;
	if (sched_pool_charge(arena_slots(e) * e->slot_bytes) < 0) {
		pool_pause(); /* wait until some pool frees slots */
		return -EAGAIN;
	}
	r = arena_new(e);
	return r < 0 ? r : 1;
}

/* Add a share, if the limit has room for its reserve. */
static int share_add(struct engine *e)
{
	struct list idle = LIST_INIT(idle);
	uint64_t bound, reserve, more;
	bool fits;

	pthread_mutex_lock(&pools.lock);
	bound = limit_get(LIMIT_POOL, builtin());
	reserve = pools.reserve;
	more = reserve_of(e, e->pool.nr_shares + 1) + e->pool.feed_bytes - e->pool.reserve;
	fits = reserve <= bound && more <= bound - reserve;
	if (fits)
		shares_are(e, e->pool.nr_shares + 1, &idle);
	pthread_mutex_unlock(&pools.lock);
	arenas_free(&idle);
	if (fits)
		return 0;
	return err_set(EBUSY,
		       "a queue needs %" PRIu64 " bytes of the staging pool, and others are sure "
		       "of %" PRIu64 " of its bound of %" PRIu64
		       "; free a queue, or raise the bound (pst_limits_set(), PST_POOL)",
		       more, reserve, bound);
}

int pool_reserve(struct engine *e)
{
	uint64_t end = now_ns() + RESERVE_WAIT_NS;
	int r;

	if (!mem_copies(e->ops))
		return 0; /* the device's requests use no slots */
	r = share_add(e);
	if (r < 0) {
		idle_free();
		r = share_add(e);
	}
	if (r < 0)
		return r;
	pthread_mutex_lock(&e->lock);
	e->pool.unmet += SLOT_RESERVED; /* from now on no share borrows these slots */
	pthread_mutex_unlock(&e->lock);
	do {
		r = reserve_slots(e);
		/* Allocating may take long, so restart the time limit for waiting. */
		if (r > 0)
			end = now_ns() + RESERVE_WAIT_NS;
		if (r == -EAGAIN)
			idle_free();
	} while (r > 0 || (r == -EAGAIN && now_ns() < end));
	if (r == 0)
		return 0;
	pool_unreserve(e);
	if (r == -EAGAIN)
		r = err_set(EBUSY,
			    "requests under way, or slots of ended queues while a stream waits for "
			    "a read, hold all of the staging pool's %" PRIu64
			    " bytes; try again, or raise the bound (pst_limits_set(), PST_POOL)",
			    limit_get(LIMIT_POOL, builtin()));
	return r;
}

void pool_unreserve(struct engine *e)
{
	struct list idle = LIST_INIT(idle);

	if (!mem_copies(e->ops))
		return;
	pthread_mutex_lock(&e->lock);
	e->pool.unmet -= SLOT_RESERVED;
	pthread_mutex_unlock(&e->lock);
	pthread_mutex_lock(&pools.lock);
	shares_are(e, e->pool.nr_shares - 1, &idle);
	pthread_mutex_unlock(&pools.lock);
	arenas_free(&idle);
}

/* ------------------------------------------------- reads that a stream waits for */

/* Change the bytes reserved for feeds by len.  The caller also charges them.  Return -EBUSY if the
 * limit has no room. */
static int feed_reserve(struct engine *e, int64_t len)
{
	struct list idle = LIST_INIT(idle);
	struct pool *p = &e->pool;
	uint64_t bound;
	bool fits;

	pthread_mutex_lock(&pools.lock);
	bound = limit_get(LIMIT_POOL, builtin());
	fits = len < 0 || pools.reserve + (uint64_t)len <= bound;
	if (fits) {
		p->feed_bytes += (uint64_t)len;
		shares_are(e, p->nr_shares, &idle);
	}
	pthread_mutex_unlock(&pools.lock);
	arenas_free(&idle);
	if (fits)
		return 0;
	return err_set(EBUSY,
		       "a read that a stream waits for needs %" PRIu64 " bytes of the staging "
		       "pool, and its bound of %" PRIu64 " leaves no room; raise it "
		       "(pst_limits_set(), PST_POOL)",
		       (uint64_t)len, bound);
}

static int feed_grow(struct engine *e)
{
	uint64_t len = arena_slots(e) * e->slot_bytes;
	struct pool *p = &e->pool;
	struct arena *a;
	int r = feed_reserve(e, (int64_t)len);

	if (r < 0)
		return r;
	r = pool_charge(len);
	if (r == 0)
		r = arena_make(e, &a);
	if (r < 0) {
		struct err_kept kept;

		err_keep(&kept);
		(void)feed_reserve(e, -(int64_t)len);
		err_put_back(&kept);
		return r;
	}
	pthread_mutex_lock(&e->lock);
	list_add_tail(&p->feed_arenas, &a->link);
	p->nr_feed += a->nr;
	while (a->free) {
		struct job *j = a->free;

		a->free = j->next_free;
		j->fed = true;
		j->next_free = p->feed_free;
		p->feed_free = j;
	}
	pthread_mutex_unlock(&e->lock);
	return 0;
}

/* Return true if there are FEED_BYTES of slots for feeds, and hanging reads leave at least
 * FEED_BYTES / 2 of them.  Under the engine's lock. */
static bool feed_has_enough(const struct engine *e)
{
	unsigned want = (unsigned)(FEED_BYTES / e->slot_size);
	const struct pool *p = &e->pool;

	return p->nr_feed >= want && p->nr_feed - p->nr_feed_lost >= want / 2;
}

int pool_feed(struct engine *e)
{
	unsigned most = (unsigned)(FEED_MAX / e->slot_size), nr = 0, lost = 0;
	struct pool *p = &e->pool;
	bool enough;
	int r = 0;

	pthread_mutex_lock(&e->lock);
	enough = feed_has_enough(e);
	pthread_mutex_unlock(&e->lock);
	if (likely(enough))
		return 0;
	pthread_mutex_lock(&e->feeders_lock);
	for (;;) {
		pthread_mutex_lock(&e->lock);
		enough = feed_has_enough(e);
		nr = p->nr_feed;
		lost = p->nr_feed_lost;
		pthread_mutex_unlock(&e->lock);
		if (enough || r < 0)
			break;
		if (nr >= most)
			r = err_set(EBUSY,
				    "reads that a stream waited for hang, with %u staging slots; "
				    "their files do not answer",
				    lost);
		else
			r = feed_grow(e);
	}
	pthread_mutex_unlock(&e->feeders_lock);
	return enough || nr - lost >= SLOT_RESERVED ? 0 : r;
}

static void feed_work(struct work *w)
{
	struct pool *p = container_of(w, struct pool, feed_work);
	struct engine *e = container_of(p, struct engine, pool);

	if (pool_feed(e) < 0)
		log_warn("%s %u: reads that streams wait for may end at their deadlines: %s, "
			 "ignoring",
			 e->ops->name, e->device, err_text());
	pthread_mutex_lock(&e->lock);
	feed_wake(e);
	pthread_mutex_unlock(&e->lock);
}

void pool_feed_later(struct engine *e)
{
	if (feed_has_enough(e) || work_queue(&e->pool.feed_work, WORK_HIGH) == 0)
		return;
	log_warn("%s %u: no thread replaces staging slots of reads that hang, ignoring",
		 e->ops->name, e->device);
}

struct job *pool_take_feed(struct engine *e)
{
	struct job *j = e->pool.feed_free;

	if (j)
		e->pool.feed_free = j->next_free;
	return j;
}

static void feed_slot_put(struct pool *p, struct job *j)
{
	p->nr_feed_lost -= j->lost;
	j->next_free = p->feed_free;
	p->feed_free = j;
}

/* ------------------------------------------------------------------ growth */

/* Do not try to grow again for a while; under the engine's lock. */
static void grow_failed(struct pool *p, int err)
{
	p->not_before = now_ns() + GROW_AGAIN_NS;
	/* Do not warn: another pool has not freed its surplus slots yet, or a reset of the device
	 * has made this pool useless. */
	if (err == -EBUSY || err == -ENODEV)
		return;
	if (!p->failed)
		log_warn("the staging pool stays at %u slots: %s, ignoring", p->nr_slots,
			 err_text());
	p->failed = true;
}

/* Return true if the pool may get another arena; under the engine's lock. */
static bool may_grow(const struct engine *e)
{
	return e->pool.nr_slots + arena_slots(e) <= e->pool.max_slots;
}

/* Add arenas until slots are free, at most until the number of slots has doubled. */
static void pool_grow(struct engine *e)
{
	struct pool *p = &e->pool;
	unsigned nr = arena_slots(e), left;
	bool more = true;
	int r = 0;

	pthread_mutex_lock(&e->lock);
	left = (unsigned)MIN(p->nr_slots * e->slot_bytes, GROW_MAX) / (nr * e->slot_bytes);
	while (more && r == 0) {
		pthread_mutex_unlock(&e->lock);
		r = sched_pool_charge(nr * e->slot_bytes);
		if (r == 0)
			r = arena_new(e);
		pthread_mutex_lock(&e->lock);
		more = left-- > 1 && p->nr_free <= p->unmet + nr && may_grow(e) && !e->stop;
		log_debug("%s %u: the pool has %u slots", e->ops->name, e->device, p->nr_slots);
	}
	p->growing = false;
	if (r < 0)
		grow_failed(p, r);
	else
		p->failed = false;
	/* Wake a worker that found no slot while the pool was growing: nothing else would wake
	 * it. */
	engine_wake(e, NULL, 1);
	pthread_mutex_unlock(&e->lock);
}

static void pool_work(struct work *w)
{
	struct pool *p = container_of(w, struct pool, work);
	struct engine *e = container_of(p, struct engine, pool);
	struct list idle = LIST_INIT(idle);
	bool more;

	pthread_mutex_lock(&e->lock);
	pool_trim(p, &idle);
	more = p->growing = p->growing && may_grow(e);
	pthread_mutex_unlock(&e->lock);
	arenas_free(&idle);
	if (more)
		pool_grow(e);
}

/* Ask the work queue to let the pool grow or free surplus slots; under the engine's lock. */
static bool pool_ask(struct pool *p)
{
	int r;

	if (now_ns() < p->not_before)
		return false;
	r = work_queue(&p->work, WORK_HIGH);
	if (r < 0)
		grow_failed(p, r);
	return r == 0;
}

/* ------------------------------------------------------------------- slots */

/* Return true if a share that uses all of its reserved slots may take another slot. */
static bool may_borrow(struct engine *e)
{
	struct pool *p = &e->pool;
	unsigned nr_used = p->nr_slots - p->nr_free;

	if (nr_used + p->unmet >= p->max_slots)
		return false;
	if (p->nr_free > p->unmet)
		return true;
	if (p->growing || !may_grow(e))
		return false;
	p->growing = pool_ask(p);
	if (!p->growing)
		e->look = MIN(e->look, p->not_before);
	return false;
}

/* Take a free slot from the worker that keeps the most. */
static struct job *steal(struct engine *e)
{
	struct worker *from = &e->workers[0];

	for (unsigned i = 1; i < e->nr_workers; i++)
		if (e->workers[i].nr_own > from->nr_own)
			from = &e->workers[i];
	return own_take(from);
}

struct job *pool_take(struct engine *e, struct share *s, struct worker *w)
{
	struct pool *p = &e->pool;
	struct arena *a;
	struct job *j;

	if (s->nr_slots >= SLOT_RESERVED && !may_borrow(e))
		return NULL;
	j = own_take(w);
	if (!j && (a = arena_roomy(p))) {
		j = a->free;
		a->free = j->next_free;
		a->nr_used++;
	}
	if (!j)
		j = steal(e);
	if (!j)
		return NULL; /* the slots of a new share are being allocated */
	p->nr_free--;
	p->nr_busy += !s->nr_slots;
	if (s->nr_slots++ < SLOT_RESERVED)
		p->unmet--;
	return j;
}

void pool_give(struct engine *e, struct share *s, struct job *j)
{
	struct arena *a = j->arena;
	struct worker *w = j->worker;
	struct pool *p = &e->pool;

	if (unlikely(j->fed)) {
		feed_slot_put(p, j);
		return;
	}
	if (w->nr_own < OWN_SLOTS && p->nr_slots <= p->max_slots) {
		j->next_free = w->own;
		w->own = j;
		w->nr_own++;
	} else {
		slot_put(p, j);
	}
	p->nr_free++;
	if (--s->nr_slots < SLOT_RESERVED)
		p->unmet++;
	p->nr_busy -= !s->nr_slots;
	if (p->nr_slots <= p->max_slots)
		return;
	own_put_all(e);
	if (!a->nr_used)
		(void)pool_ask(p);
}

/* -------------------------------------------------------------------- life */

void pool_init(struct engine *e)
{
	struct pool *p = &e->pool;
	struct list idle = LIST_INIT(idle);

	list_init(&p->arenas);
	list_init(&p->feed_arenas);
	p->roomy = &p->arenas;
	work_init(&p->work, pool_work);
	work_init(&p->feed_work, feed_work);
	pthread_mutex_lock(&pools.lock);
	list_add_tail(&pools.list, &p->link);
	pools.nr++;
	share_out(&idle);
	pthread_mutex_unlock(&pools.lock);
	arenas_free(&idle);
}

void pool_done(struct engine *e)
{
	struct pool *p = &e->pool;
	struct list idle = LIST_INIT(idle);

	work_end(&p->work);
	/* Threads that end shares of other engines trim all pools on this list, so remove the pool
	 * first. */
	pthread_mutex_lock(&pools.lock);
	list_del(&p->link);
	pthread_mutex_unlock(&pools.lock);
	arenas_free(&p->arenas);
	arenas_free(&p->feed_arenas);
	pthread_mutex_lock(&pools.lock);
	pools.reserve -= p->feed_bytes;
	pools.nr--;
	share_out(&idle);
	pthread_mutex_unlock(&pools.lock);
	arenas_free(&idle);
}
