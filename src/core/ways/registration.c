/* SPDX-License-Identifier: MIT */
/*
 * Registrations of memory with RDMA devices.
 *
 * One mutex covers all lists here.  The mutex is not held while a device registers or deregisters,
 * which takes milliseconds.  A registration is on its region's list before the device has made it,
 * so that a second caller waits for it instead of registering again.
 */
#include <inttypes.h>

#include "base/err.h"
#include "core/ways/region.h"
#include "core/ways/registration.h"

struct registration {
	struct list link; /* on the list of the registration's region */
	struct list idle; /* on regs.idle while there are no users; longest unused first */
	struct region *region;
	struct mem_registrar *by;
	struct mem_reg *reg; /* NULL while the device is registering */
	uint64_t off, len;   /* registered range of the allocation, bytes */
	uint32_t rights;
	uint64_t epoch;
	struct list users; /* list of struct reg_user */
	unsigned nr_users;
	bool brief;        /* the registration ends with its last user, and is not kept */
	bool dying;        /* the registration gets no new users, and ends with its last one */
	bool holds_region; /* the registration holds a reference to region, so that the memory
			    * stays until the device has deregistered it */
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t made; /* signalled when a registration was made, failed or ended */
	struct list idle;
	uint64_t epoch;
	unsigned limit; /* maximum registrations; 0: REGISTRATIONS_MAX */
	struct registration_stats st;
} regs = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.made = PTHREAD_COND_INITIALIZER,
	.idle = LIST_INIT(regs.idle),
};

/* Keep the memory until the registration has ended; under the lock. */
static void registration_hold_region(struct registration *g)
{
	if (!g->holds_region)
		(void)region_again(g->region);
	g->holds_region = true;
}

/* Move a registration without users from all lists to @out, whose registrations the caller ends
 * without the lock. */
static void take(struct registration *g, struct list *out)
{
	registration_hold_region(g);
	g->by->ending++;
	list_del(&g->idle);
	list_move_tail(out, &g->link);
	regs.st.ended++;
	regs.st.live--;
	regs.st.live_bytes -= g->reg->len;
}

/* Deregister all of a list, without the lock.  The last registration may free its region. */
static void end_all(struct list *out)
{
	struct list *at, *next;

	list_for_each_safe (at, next, out) {
		struct registration *g = list_entry(at, struct registration, link);

		list_del(&g->link);
		g->by->ops->dereg(g->by, g->reg);
		(void)pthread_mutex_lock(&regs.lock);
		(void)atomic_fetch_sub(&g->by->live, 1);
		g->by->ending--;
		(void)pthread_cond_broadcast(&regs.made);
		(void)pthread_mutex_unlock(&regs.lock);
		region_put(g->region);
		free(g);
	}
}

/* Tell the users of a registration that it ends, and let it end with its last user.  New users do
 * not find it. */
static void let_die(struct registration *g, struct list *out)
{
	struct list *at;

	if (g->dying)
		return;
	g->dying = true;
	if (!g->reg)
		return; /* registration_make() will see dying */
	list_for_each (at, &g->users) {
		struct reg_user *u = list_entry(at, struct reg_user, link);

		if (u->ended)
			u->ended(u);
	}
	if (!g->nr_users)
		take(g, out);
}

/* End the region's registrations, because its memory has been replaced. */
static void invalidate(struct region *r)
{
	struct list out = LIST_INIT(out), *at, *next;

	(void)pthread_mutex_lock(&regs.lock);
	list_for_each_safe (at, next, &r->regs)
		let_die(list_entry(at, struct registration, link), &out);
	(void)pthread_mutex_unlock(&regs.lock);
	end_all(&out);
}

/* End the region's registrations, because its last handle was freed.  Registrations in use end with
 * their last user. */
static void region_ended(struct region *r)
{
	struct list out = LIST_INIT(out), *at, *next;

	(void)pthread_mutex_lock(&regs.lock);
	list_for_each_safe (at, next, &r->regs) {
		struct registration *g = list_entry(at, struct registration, link);

		let_die(g, &out);
		if (g->nr_users)
			registration_hold_region(g);
	}
	(void)pthread_mutex_unlock(&regs.lock);
	end_all(&out);
}

static struct registration *registration_find(struct region *r, const struct mem_registrar *by,
					      uint64_t off, uint64_t len, uint32_t rights)
{
	struct list *at;

	list_for_each (at, &r->regs) {
		struct registration *g = list_entry(at, struct registration, link);

		if (g->by == by && g->off == off && g->len == len && g->rights == rights &&
		    !g->dying)
			return g;
	}
	return NULL;
}

/* Make room for one more registration.  Return 0 or -ENOSPC. If a registration must end to make
 * room, it goes onto @out. */
static int registration_make_room(struct list *out)
{
	unsigned limit = regs.limit ? regs.limit : REGISTRATIONS_MAX;

	if (regs.st.live < limit)
		return 0;
	if (list_empty(&regs.idle))
		return err_set(
			ENOSPC,
			"%u registrations of memory are in use, which is the limit; use fewer "
			"ranges or larger ones",
			limit);
	take(list_first(&regs.idle, struct registration, idle), out);
	regs.st.evicted++;
	return 0;
}

static void use(struct registration *g, struct reg_user *u)
{
	list_del(&g->idle);
	list_add_tail(&g->users, &u->link);
	g->nr_users++;
	u->reg = g->reg;
	u->epoch = g->epoch;
	u->of = g;
}

/* End all registrations without users, because the driver's table of pinned pages may be full.
 * Return true if there were any. */
static bool registration_end_idle(void)
{
	struct list out = LIST_INIT(out), *at, *next;
	bool any;

	(void)pthread_mutex_lock(&regs.lock);
	any = !list_empty(&regs.idle);
	list_for_each_safe (at, next, &regs.idle) {
		take(list_entry(at, struct registration, idle), &out);
		regs.st.evicted++;
	}
	(void)pthread_mutex_unlock(&regs.lock);
	end_all(&out);
	return any;
}

/* Register with the device, without the lock. */
static int register_it(struct registration *g, struct mem_reg **ret)
{
	const struct mem_registrar_ops *ops = g->by->ops;
	int r = ops->reg(g->by, g->region->alloc, g->off, g->len, g->rights, ret);

	if ((r == -ENOMEM || r == -EAGAIN) && registration_end_idle())
		r = ops->reg(g->by, g->region->alloc, g->off, g->len, g->rights, ret);
	return r;
}

/* Register g, which is on its region's list already.  The caller holds the lock, which is dropped
 * and taken again. */
static int registration_make(struct registration *g, struct reg_user *u)
{
	struct mem_reg *reg = NULL;
	int r;

	(void)pthread_mutex_unlock(&regs.lock);
	r = register_it(g, &reg);
	(void)pthread_mutex_lock(&regs.lock);
	if (r < 0) {
		list_del(&g->link);
		(void)atomic_fetch_sub(&g->by->live, 1);
		regs.st.failed++;
		regs.st.live--;
	} else {
		g->reg = reg;
		regs.st.made++;
		regs.st.live_bytes += reg->len;
		use(g, u);
		if (g->dying && u->ended)
			u->ended(u);
	}
	(void)pthread_cond_broadcast(&regs.made);
	return r;
}

/*
 * Return true if the pages may be replaced while no request uses them.  The library does not notice
 * an munmap(), and a device would keep using the old pages.
 */
static bool registration_is_loose(const struct mem_alloc *a)
{
	return a->ops->caps & MEM_CAP_CPU && !a->owned && !(a->flags & PST_MEM_PINNED);
}

static struct registration *add(struct region *r, struct mem_registrar *by, uint64_t off,
				uint64_t len, uint32_t rights)
{
	struct registration *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	list_init(&g->idle);
	list_init(&g->users);
	g->region = r;
	g->by = by;
	g->off = off;
	g->len = len;
	g->rights = rights;
	g->brief = rights & MEM_REG_REMOTE || registration_is_loose(r->alloc);
	g->epoch = ++regs.epoch;
	list_add_tail(&r->regs, &g->link);
	r->ended = region_ended;
	(void)atomic_fetch_add(&by->live, 1);
	regs.st.live++;
	return g;
}

/*
 * Find or make a registration, under the lock.  If the caller has waited for another thread's
 * attempt, and that failed, try again.
 */
static int registration_get_locked(struct region *r, struct mem_registrar *by, uint64_t off,
				   uint64_t len, uint32_t rights, struct reg_user *u,
				   struct list *out, struct registration **ret_bad)
{
	struct registration *g;
	int err;

	while ((g = registration_find(r, by, off, len, rights)) && !g->reg)
		(void)pthread_cond_wait(&regs.made, &regs.lock);
	if (g) {
		regs.st.found++;
		use(g, u);
		return 0;
	}
	err = registration_make_room(out);
	if (err < 0)
		return err;
	g = add(r, by, off, len, rights);
	if (!g)
		return err_set(ENOMEM, "out of memory");
	err = registration_make(g, u);
	if (err < 0)
		*ret_bad = g;
	return err;
}

int registration_get(struct region *r, struct mem_registrar *by, uint64_t off, uint64_t len,
		     uint32_t rights, struct reg_user *u)
{
	struct list out = LIST_INIT(out);
	struct registration *bad = NULL;
	int err;

	if (!len || off > r->alloc->size || len > r->alloc->size - off)
		return err_set(ERANGE,
			       "%" PRIu64 " bytes at offset %" PRIu64 " are none or reach past "
			       "the end of the memory",
			       len, off);
	/* If the program freed wrapped memory without telling the library, all registrations of the
	 * memory are wrong. */
	err = mem_alive(r->alloc);
	if (err < 0) {
		invalidate(r);
		return err;
	}
	if (!(rights & MEM_REG_REMOTE) && !registration_is_loose(r->alloc)) {
		off = 0;
		len = r->alloc->size;
		rights = r->alloc->rights & PST_RIGHT_WRITE ? MEM_REG_LOCAL_WRITE : rights;
	}
	(void)pthread_mutex_lock(&regs.lock);
	err = registration_get_locked(r, by, off, len, rights, u, &out, &bad);
	(void)pthread_mutex_unlock(&regs.lock);
	free(bad);
	end_all(&out);
	return err;
}

void registration_put(struct reg_user *u)
{
	struct list out = LIST_INIT(out);
	struct registration *g = u->of;

	if (!g)
		return;
	(void)pthread_mutex_lock(&regs.lock);
	list_del(&u->link);
	u->of = NULL;
	u->reg = NULL;
	if (--g->nr_users == 0) {
		list_add_tail(&regs.idle, &g->idle);
		/* A peer's key must not be valid longer than its grant. */
		if (g->dying || g->brief)
			take(g, &out);
	}
	(void)pthread_mutex_unlock(&regs.lock);
	end_all(&out);
}

unsigned registration_keys(struct region *r, uint64_t off, uint64_t len)
{
	struct list *at;
	unsigned nr = 0;

	(void)pthread_mutex_lock(&regs.lock);
	list_for_each (at, &r->regs) {
		const struct registration *g = list_entry(at, struct registration, link);

		if (g->rights & MEM_REG_REMOTE && g->off < off + len && off < g->off + g->len)
			nr += g->nr_users;
	}
	(void)pthread_mutex_unlock(&regs.lock);
	return nr;
}

int registrations_forget(struct mem_registrar *by)
{
	struct list out = LIST_INIT(out), *at, *next;
	unsigned left;

	(void)pthread_mutex_lock(&regs.lock);
	list_for_each_safe (at, next, &regs.idle) {
		struct registration *g = list_entry(at, struct registration, idle);

		if (g->by == by)
			take(g, &out);
	}
	(void)pthread_mutex_unlock(&regs.lock);
	end_all(&out);
	/* Wait for other threads that are ending registrations. */
	(void)pthread_mutex_lock(&regs.lock);
	while (by->ending)
		(void)pthread_cond_wait(&regs.made, &regs.lock);
	left = atomic_load(&by->live);
	(void)pthread_mutex_unlock(&regs.lock);
	return left ? err_set(EBUSY, "%u registrations are in use", left) : 0;
}

void registration_stats(struct registration_stats *ret)
{
	(void)pthread_mutex_lock(&regs.lock);
	*ret = regs.st;
	(void)pthread_mutex_unlock(&regs.lock);
}

void registration_limit(unsigned nr)
{
	(void)pthread_mutex_lock(&regs.lock);
	regs.limit = nr;
	(void)pthread_mutex_unlock(&regs.lock);
}
