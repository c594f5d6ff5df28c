/* SPDX-License-Identifier: MIT */
/*
 * Alarms (clock.c).
 */
#ifndef PST_CLOCK_H
#define PST_CLOCK_H

#include <stdatomic.h>

#include <penstock.h>

#include "base/list.h"

/* Work that is due at a time; the clock's thread does it. */
struct alarm {
	struct list link;              /* on the clock's list */
	_Atomic uint64_t at;           /* CLOCK_MONOTONIC ns, or PST_NO_DEADLINE; written under the
				        * clock's lock */
	void (*ring)(struct alarm *a); /* called under the clock's lock; may change @at */
};

static inline void alarm_init(struct alarm *a, void (*ring)(struct alarm *a))
{
	list_init(&a->link);
	atomic_init(&a->at, PST_NO_DEADLINE);
	a->ring = ring;
}

/* Add an alarm to the clock, if it is not there yet.  Return -EAGAIN if the clock's thread cannot
 * start. */
int clock_add(struct alarm *a);
/* Remove an alarm: ring() is not called afterwards. */
void clock_del(struct alarm *a);
/* Ring at the given time, or earlier if the alarm was set to an earlier time before.  Acts as a
 * full memory barrier before a->at is read. */
void clock_set(struct alarm *a, uint64_t at);

#endif
