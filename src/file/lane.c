/* SPDX-License-Identifier: MIT */
/*
 * Lanes and the tables they keep.
 *
 * Files and buffers have places in the tables of all lanes, given out here.  When one
 * goes, every lane forgets it first and only then is its place given out again: so a
 * lane never sees a new owner of a place while another thread still clears it there.
 */
#include <assert.h>
#include <pthread.h>

#include "base/err.h"
#include "base/fault.h"
#include "file/places.h"

#define DEPTH_MAX 8192

int store_lane_new(const struct store_ops *ops, unsigned depth, struct store_lane **ret)
{
	int err = fault_hit(FAULT_STORE_LANE);

	if (err)
		return err_set(err, "store.lane: an injected fault made it fail (PST_FAULT)");
	if (depth < 1 || depth > DEPTH_MAX)
		return err_set(EINVAL, "a lane holds 1 to %d operations, not %u", DEPTH_MAX, depth);
	return ops->lane_new(depth, ret);
}

void store_lane_free(struct store_lane *l)
{
	if (!l)
		return;
	assert(!l->nr_ops);
	l->ops->lane_free(l);
}

/* Guards the list and is held while its members forget, so that none is freed then. */
static pthread_mutex_t tables_lock = PTHREAD_MUTEX_INITIALIZER;
static struct store_tables *tables;

void store_tables_add(struct store_tables *t)
{
	(void)pthread_mutex_lock(&tables_lock);
	t->next = tables;
	tables = t;
	(void)pthread_mutex_unlock(&tables_lock);
}

void store_tables_del(struct store_tables *t)
{
	(void)pthread_mutex_lock(&tables_lock);
	for (struct store_tables **p = &tables; *p; p = &(*p)->next) {
		if (*p == t) {
			*p = t->next;
			break;
		}
	}
	(void)pthread_mutex_unlock(&tables_lock);
}

void store_tables_forget_file(uint32_t idx)
{
	(void)pthread_mutex_lock(&tables_lock);
	for (struct store_tables *t = tables; t; t = t->next)
		t->forget_file(t, idx);
	(void)pthread_mutex_unlock(&tables_lock);
}

void store_tables_forget_buf(uint32_t idx, unsigned nr)
{
	(void)pthread_mutex_lock(&tables_lock);
	for (struct store_tables *t = tables; t; t = t->next)
		t->forget_buf(t, idx, nr);
	(void)pthread_mutex_unlock(&tables_lock);
}

static bool taken(const struct places *p, uint32_t i)
{
	return p->bits[i / 64] >> (i % 64) & 1;
}

static void mark(struct places *p, uint32_t idx, unsigned nr, bool on)
{
	for (uint32_t i = idx; i < idx + nr; i++) {
		uint64_t bit = UINT64_C(1) << (i % 64);

		if (on)
			p->bits[i / 64] |= bit;
		else
			p->bits[i / 64] &= ~bit;
	}
}

/* Lowest first: tables of lanes may be shorter than ours, see uring.c. */
static uint32_t find_run(const struct places *p, unsigned nr)
{
	unsigned run = 0;

	for (uint32_t i = 0; i < p->nr; i++) {
		run = taken(p, i) ? 0 : run + 1;
		if (run == nr)
			return i + 1 - nr;
	}
	return STORE_NO_IDX;
}

uint32_t places_get(struct places *p, unsigned nr, uint32_t *ret_gen)
{
	uint32_t idx;

	(void)pthread_mutex_lock(&p->lock);
	idx = nr ? find_run(p, nr) : STORE_NO_IDX;
	if (idx != STORE_NO_IDX)
		mark(p, idx, nr, true);
	/* 0 stands for "nothing registered" in the tables. */
	if (!++p->gen)
		p->gen = 1;
	*ret_gen = p->gen;
	(void)pthread_mutex_unlock(&p->lock);
	return idx;
}

void places_put(struct places *p, uint32_t idx, unsigned nr)
{
	(void)pthread_mutex_lock(&p->lock);
	mark(p, idx, nr, false);
	(void)pthread_mutex_unlock(&p->lock);
}
