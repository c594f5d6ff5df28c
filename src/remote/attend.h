/* SPDX-License-Identifier: MIT */
/*
 * Progress while a program computes (attend.c).
 *
 * The user of an I/O context moves its operations in flush() and reap().  One thread of the process
 * watches all contexts: if bytes wait in a context's sockets while its user makes no call, the
 * thread does what reap() would do, until the user calls again.
 */
#ifndef PST_REMOTE_ATTEND_H
#define PST_REMOTE_ATTEND_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"

/* Embedded in the I/O context. */
struct attended {
	pthread_mutex_t lock; /* covers the whole context; taken inside the thread's lock */
	int epfd;             /* becomes readable when turn() has work */
	/* Move operations as reap() does; the lock is held.  Return false if none is left in
	 * flight. */
	bool (*turn)(struct attended *a);
	/* Return true if operations are in flight; the lock is held. */
	bool (*works)(const struct attended *a);

	atomic_bool called; /* the user made a call since the thread's last check */
	/* Members below belong to the thread. */
	struct list link;
	bool was_ready;   /* bytes waited at the last check, and the user has made no call since */
	bool alone;       /* the thread moves the operations */
	unsigned turning; /* threads inside turn(), for which attend_end() waits */
	uint64_t round;   /* last round of attend_turn_all() that included the context */
};

/* Initialise @a, whose functions and epfd are already set. */
void attend_init(struct attended *a);
/* Begin to watch the context.  If the thread cannot be started, only the user moves operations. */
void attend_begin(struct attended *a);
/* Stop watching; the thread does not use @a afterwards. */
void attend_end(struct attended *a);
/* Do what reap() would for each context, once.  Waits for users that are in a call. */
void attend_turn_all(void);
/* Wake the thread if it sleeps because no operation was in flight: one was queued now. */
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
