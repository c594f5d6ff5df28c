/* SPDX-License-Identifier: MIT */
/*
 * Progress while a program computes (attend.c).
 *
 * The user of an I/O context moves operations in flush() and reap().  One thread of the process
 * looks after all contexts: if bytes wait in a context's sockets and its user makes no call, the
 * thread does what reap() would, until the user calls again.
 */
#ifndef PST_REMOTE_ATTEND_H
#define PST_REMOTE_ATTEND_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"

/* A part of the I/O context. */
struct attended {
	pthread_mutex_t lock; /* of the whole context; inside that of the thread */
	int epfd;             /* readable when there is something to do */
	/* Do what reap() would, with the lock.  Return false if no operation is left in flight. */
	bool (*turn)(struct attended *a);
	/* Return true if operations are in flight, with the lock. */
	bool (*works)(const struct attended *a);

	atomic_bool called; /* the user made a call since the thread looked last */
	/* The thread's own: */
	struct list link;
	bool was_ready;   /* at the last look, and no call since */
	bool alone;       /* the thread moves the operations */
	unsigned turning; /* threads inside turn(), without the lock of all: attend_end() waits */
	uint64_t round;   /* of attend_turn_all() */
};

/* Set up @a; its functions and epfd are set. */
void attend_init(struct attended *a);
/* Look after the context from now on.  Without a thread, only its user moves operations. */
void attend_begin(struct attended *a);
/* Look no longer; the thread does not use @a any more. */
void attend_end(struct attended *a);
/* Do what reap() would for each context, once.  Waits for users that are in a call. */
void attend_turn_all(void);
/* An operation was queued: the thread may sleep because there was none. */
void attend_work(void);

static inline void attend_lock(struct attended *a)
{
	atomic_store_explicit(&a->called, true, memory_order_relaxed);
	(void)pthread_mutex_lock(&a->lock);
}

static inline void attend_unlock(struct attended *a)
{
	(void)pthread_mutex_unlock(&a->lock);
}

#endif
