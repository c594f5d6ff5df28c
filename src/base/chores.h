/* SPDX-License-Identifier: MIT */
/*
 * What takes a driver milliseconds and nobody should wait for: one thread per process, which
 * exists only while there is something to do.
 */
#ifndef PST_CHORES_H
#define PST_CHORES_H

#include "base/base.h"
#include "base/list.h"

/* Part of what it works on. */
struct chore {
	struct list link;
	void (*run)(struct chore *c); /* on the thread, without any lock; may ask for c again, or
				       * free it */
};

enum chore_rank {
	CHORE_FIRST, /* somebody could go on sooner */
	CHORE_LAST,
};

void chore_init(struct chore *c, void (*run)(struct chore *c));

/*
 * Have it run once more after now.  0, also where it waits already; -EAGAIN when there is no
 * thread for it.  No lock that run() takes is needed, any may be held.
 */
int chore_ask(struct chore *c, enum chore_rank rank);

/*
 * As chore_ask(), and what runs from now on is another function.  The old one may be running and
 * ends before that.  On failure neither runs any more.
 */
int chore_become(struct chore *c, void (*run)(struct chore *c), enum chore_rank rank);

/* It does not run any more on return.  Nobody asks for it meanwhile, run() apart, and no lock
 * that run() takes is held. */
void chore_end(struct chore *c);

#endif
