/* SPDX-License-Identifier: MIT */
/*
 * Alarms (clock.c).
 */
#ifndef PST_CLOCK_H
#define PST_CLOCK_H

#include <stdatomic.h>

#include <penstock.h>

#include "base/list.h"

/* Something to do at a time: by a thread that waits for nothing else. */
struct alarm {
	struct list link;              /* the clock's */
	_Atomic uint64_t at;           /* PST_NO_DEADLINE: never; under the clock's lock */
	void (*ring)(struct alarm *a); /* under the clock's lock; may set at */
};

static inline void alarm_init(struct alarm *a, void (*ring)(struct alarm *a))
{
	list_init(&a->link);
	atomic_init(&a->at, PST_NO_DEADLINE);
	a->ring = ring;
}

/* Let the clock look after it, if it does not yet; -EAGAIN without a thread. */
int clock_add(struct alarm *a);
/* It does not ring any more. */
void clock_del(struct alarm *a);
/* Ring at that time, or when it would have rung earlier; a full barrier before it looks. */
void clock_set(struct alarm *a, uint64_t at);

#endif
