/* SPDX-License-Identifier: MIT */
/*
 * Background work, of two kinds.
 *
 * The work queue is for driver calls that take milliseconds: one thread of the process makes them,
 * one after the other.  Such work ends by itself.
 *
 * Work that may hang is spawned: each piece has a thread on which no other work depends.  Examples
 * are calls of cuFile, the cache of proofs, and close(2) on a file system that may hang, so that a
 * reaping thread does not wait for it.  There are at most WORK_THREADS_MAX threads.
 *
 * Threads without work end soon.  The caller may hold any lock during the calls below, unless they
 * say otherwise: the lock of this file is the last one in the lock order.
 */
#ifndef PST_WORK_H
#define PST_WORK_H

#include "base/base.h"
#include "base/list.h"

/* A piece of work, embedded in the object that it works on. */
struct work {
	struct list link;
	void (*run)(struct work *w);
};

enum work_priority {
	WORK_HIGH, /* work for which a thread is waiting */
	WORK_LOW,
};

#define WORK_THREADS_MAX 64u

/* How long a runner without work stays, ns; tests set less. */
extern _Atomic uint64_t work_idle_ns;

/**
 * work_init() - prepare a piece of work
 * @w:   the piece
 * @run: the work, called without any lock; it may queue or spawn w again, or free it
 */
void work_init(struct work *w, void (*run)(struct work *w));

/**
 * work_queue() - run work on the work queue
 * @w:        the piece; if it is waiting already, it moves to the end of this priority
 * @priority: WORK_HIGH comes before all of WORK_LOW
 *
 * Return: 0, or -EAGAIN if no thread can start.  Cannot fail on the work queue's thread.
 */
int work_queue(struct work *w, enum work_priority priority);

/**
 * work_change() - replace the function of work, and queue the work
 * @w:        the piece; the old function may be running, and ends before the new one begins
 * @run:      the new function
 * @priority: as for work_queue()
 *
 * Return: 0, or -EAGAIN if no thread can start; then neither function runs any more.
 */
int work_change(struct work *w, void (*run)(struct work *w), enum work_priority priority);

/**
 * work_end() - remove work from the work queue, and wait until it does not run
 * @w: the piece; during the call only its own function may queue it
 *
 * The caller must not hold a lock that the function takes.
 */
void work_end(struct work *w);

/**
 * work_spawn() - run work on a separate thread, because it may hang
 * @w:    the piece, which is neither queued nor spawned
 * @name: the thread's name during the work
 * @wait: if WORK_THREADS_MAX threads are busy, wait for one instead of failing
 *
 * Return: 0, or -EAGAIN with a sentence if there is no thread; then the work does not run.
 */
int work_spawn(struct work *w, const char *name, bool wait);

/**
 * work_call() - call a function on a separate thread, because it may hang, and wait for it
 * @fn:         the function
 * @arg:        its argument
 * @name:       the thread's name during the call
 * @timeout_ns: longest wait
 *
 * The caller must not hold a lock that the function takes.
 *
 * Return: 0; -EAGAIN with a sentence if there is no thread, and fn is not called; -ETIMEDOUT if fn
 * is still running.
 */
int work_call(void (*fn)(void *arg), void *arg, const char *name, uint64_t timeout_ns);

#endif
