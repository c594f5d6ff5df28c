/* SPDX-License-Identifier: MIT */
/*
 * Background work, of two kinds.
 *
 * The work queue is for driver calls that take milliseconds: one thread of the process makes them,
 * one after the other.  Such work ends by itself.
 *
 * Work that may hang is spawned: each piece has a thread for which nothing else waits.  Examples
 * are calls of cuFile, the cache of proofs, and close(2) on a file system that may hang, so that a
 * reaping thread does not wait for it.  There are at most WORK_THREADS_MAX threads.
 *
 * No thread exists for long without work.  Any lock may be held during the calls below, unless they
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
	WORK_HIGH, /* somebody waits for it */
	WORK_LOW,
};

#define WORK_THREADS_MAX 64u

/* How long an idle thread for work that may hang stays; tests set less. */
extern _Atomic uint64_t work_idle_ns;

/**
 * work_init() - prepare a piece of work
 * @w:   the piece
 * @run: the work, called without any lock; it may queue or spawn w again, or free it
 */
void work_init(struct work *w, void (*run)(struct work *w));

/**
 * work_queue() - have work run once more after now, on the work queue
 * @w:        the piece, which may be waiting already; then its turn is a new one
 * @priority: WORK_HIGH comes before all of WORK_LOW
 *
 * Return: 0, or -EAGAIN when there is no thread for it.  It does not fail on the work queue's own
 * thread.
 */
int work_queue(struct work *w, enum work_priority priority);

/**
 * work_change() - queue work, with another function from now on
 * @w:        the piece; the old function may be running, and ends before the new one begins
 * @run:      the new function
 * @priority: as for work_queue()
 *
 * Return: 0, or -EAGAIN when there is no thread; then neither function runs any more.
 */
int work_change(struct work *w, void (*run)(struct work *w), enum work_priority priority);

/**
 * work_end() - take work from the work queue, and wait until it does not run
 * @w: the piece, which nobody queues meanwhile, its own function apart
 *
 * No lock that the function takes is held.
 */
void work_end(struct work *w);

/**
 * work_spawn() - have work that may hang run on a thread of its own
 * @w:    the piece, which is neither queued nor spawned
 * @name: of the thread while it is at it
 * @wait: whether it may wait while WORK_THREADS_MAX others hang
 *
 * Return: 0, or -EAGAIN with a sentence when there is no thread for it; then it does not run.
 */
int work_spawn(struct work *w, const char *name, bool wait);

/**
 * work_call() - call a function that may hang on a thread of its own, and wait for it
 * @fn:         the function
 * @arg:        its argument
 * @name:       of the thread while it is at it
 * @timeout_ns: how long to wait
 *
 * No lock that the function takes is held.
 *
 * Return: 0; -EAGAIN with a sentence when there is no thread, and fn is not called; -ETIMEDOUT
 * when fn still runs.
 */
int work_call(void (*fn)(void *arg), void *arg, const char *name, uint64_t timeout_ns);

#endif
