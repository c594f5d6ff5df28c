/* SPDX-License-Identifier: MIT */
/* The orders of events that test-orders.c runs, and the variants of each order. */
#ifndef PST_TESTS_ORDERS_H
#define PST_TESTS_ORDERS_H

#include "rig.h"

#include "provider.h"

enum event {
	EV_GATE,
	EV_READ,
	EV_WRITE,
	EV_SYNC,
	EV_TIME,
	EV_CANCEL,
	EV_REAP,
	EV_MEM,
	EV_FILE,
	EV_QUEUE,
	EV_NR
};

#define BIT(ev) (1u << (ev))
#define EV_OTHERS \
	(BIT(EV_TIME) | BIT(EV_CANCEL) | BIT(EV_REAP) | BIT(EV_MEM) | BIT(EV_FILE) | BIT(EV_QUEUE))
#define EV_OF_QUEUE (BIT(EV_TIME) | BIT(EV_CANCEL) | BIT(EV_REAP)) /* impossible after EV_QUEUE */
#define EV_APART (BIT(EV_READ) | BIT(EV_WRITE) | BIT(EV_SYNC))

static const char letters[] = "GrwsTCRMFQ";

struct order {
	uint8_t nr;
	uint8_t ev[EV_NR];
};

static struct order *orders;
static unsigned nr_orders, max_orders;

static inline void orders_add(const struct order *o)
{
	if (nr_orders == max_orders) {
		max_orders = max_orders ? 2 * max_orders : 1024;
		orders = reallocarray(orders, max_orders, sizeof(*orders));
		if (!orders)
			T_FAIL("out of memory");
	}
	orders[nr_orders++] = *o;
}

/* Return true if the order with ev as its next event differs from the orders that are run
 * anyway. */
static inline bool matters(const struct order *o, unsigned came, unsigned must, enum event ev)
{
	enum event last = o->nr ? o->ev[o->nr - 1] : EV_NR;

	/* A reap needs a request that can complete; a timeout needs a request that has not
	 * completed. */
	if (ev == EV_REAP && !(came & (must | BIT(EV_TIME) | BIT(EV_CANCEL))))
		return false;
	if (ev == EV_TIME && (came & must) == must)
		return false;
	/* Run independent neighbouring events in one order only. */
	return !(last == EV_FILE && ev == EV_MEM) &&
	       !(last == EV_REAP && (ev == EV_MEM || ev == EV_FILE));
}

/* Append to o all orders of the events in must and of at most nr other events. */
static inline void orders_make(struct order *o, unsigned came, unsigned must, unsigned nr)
{
	if ((came & must) == must)
		orders_add(o);
	for (enum event ev = 0; ev < EV_NR; ev++) {
		bool other = BIT(ev) & EV_OTHERS;

		if (came & BIT(ev) || !(BIT(ev) & (must | EV_OTHERS)) || (other && !nr))
			continue;
		if (came & BIT(EV_QUEUE) && BIT(ev) & EV_OF_QUEUE)
			continue;
		if (!matters(o, came, must, ev))
			continue;
		o->ev[o->nr++] = (uint8_t)ev;
		orders_make(o, came | BIT(ev), must, nr - other);
		o->nr--;
	}
}

static inline bool comes(const struct order *o, enum event ev)
{
	return memchr(o->ev, ev, o->nr);
}

static inline bool comes_before(const struct order *o, enum event ev, enum event other)
{
	const uint8_t *at = memchr(o->ev, other, o->nr);

	return at && memchr(o->ev, ev, (size_t)(at - o->ev));
}

/* ---------------------------------------------------------------- variants */

struct cast {
	/* bar[0..nr-1]: kinds of the requests, in the order of their prep calls */
	uint8_t nr, bar[TEST_BARS];
};

static const struct cast casts[] = {
	{ 3, { TEST_BAR_SYNC, TEST_BAR_READ, TEST_BAR_WRITE } },
	{ 3, { TEST_BAR_READ, TEST_BAR_WRITE, TEST_BAR_SYNC } }, /* the sync waits for the write */
	{ 1, { TEST_BAR_READ } },
	{ 1, { TEST_BAR_WRITE } },
	{ 1, { TEST_BAR_SYNC } },
	{ 2, { TEST_BAR_WRITE, TEST_BAR_SYNC } },
};

/* Differences between runs of the same order of events. */
struct variant {
	const struct cast *cast;
	bool deaf; /* operations at the gate ignore a cancel */
	enum test_result result[TEST_BARS];
	bool grace;  /* if C precedes T, only the grace period ends a hung operation */
	bool sleeps; /* T and R are one pst_queue_reap(), which sleeps */
	bool drains; /* another thread drains while the gate opens */
	bool wrapped;
};

#define VARIANTS (RIG_NR(casts) * 2 * 3)

static inline struct variant variant(unsigned n, bool apart)
{
	struct variant v = { .cast = &casts[n % (apart ? 2 : RIG_NR(casts))] };

	n /= RIG_NR(casts);
	v.deaf = n % 2;
	n /= 2;
	for (unsigned i = 0; i < TEST_BARS; i++)
		v.result[i] = TEST_DONE + (n + i) % 3;
	return v;
}

#endif
