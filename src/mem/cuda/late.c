/* SPDX-License-Identifier: MIT */
/*
 * Calls of the driver that wait for the program's streams.
 *
 * cuMemFree(), cuMemHostUnregister() and their like wait until the context's streams are idle, and
 * all other calls of the process wait for them meanwhile: copies, allocations, registrations, new
 * streams (driver 580.159, H200).  A stream that waits for a read would wait for good, since the
 * read's copies are such calls.  So what the library gives back while a stream waits ends when none
 * does, also what it undoes because it failed half-way.
 *
 * Reads that overlap all the time would put that off for ever.  So a stream that is about to wait
 * lets those before it have their end first, now and then.
 */
#include "base/work.h"
#include "mem/cuda/cuda.h"

#define OFF_NS NSEC_PER_SEC           /* so long something is put off before a stream is, */
#define TURN_NS (100 * NSEC_PER_MSEC) /* for so long at most */
#define LOOK_NS 100000

static void run_waiting(struct work *w);

static struct {
	pthread_rwlock_t
		lock; /* shared by such calls, so that no stream begins to wait meanwhile */
	unsigned nr_barriers;
	struct list waiting;
	uint64_t since; /* the first of these, or the last turn that they were given */
	struct work work;
} late = {
	/* Threads that free go on and on, and a stream that is about to wait has its turn. */
	.lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP,
	.waiting = LIST_INIT(late.waiting),
	.work = { .link = LIST_INIT(late.work.link), .run = run_waiting },
};

/* Is it time that what waits has a turn? */
static bool is_overdue(void)
{
	uint64_t now = now_ns();
	bool is;

	(void)pthread_rwlock_wrlock(&late.lock);
	is = !list_empty(&late.waiting) && now - late.since >= OFF_NS;
	if (is)
		late.since = now;
	(void)pthread_rwlock_unlock(&late.lock);
	return is;
}

static bool is_waiting(void)
{
	bool is;

	(void)pthread_rwlock_rdlock(&late.lock);
	is = !list_empty(&late.waiting);
	(void)pthread_rwlock_unlock(&late.lock);
	return is;
}

/* No stream begins to wait here meanwhile; those that wait already perhaps end that. */
static _cold_ void give_turn(void)
{
	uint64_t end = now_ns() + TURN_NS;

	while (is_waiting() && now_ns() < end)
		(void)nanosleep(&(struct timespec){ .tv_nsec = LOOK_NS }, NULL);
}

void cuda_barrier_begin(void)
{
	if (unlikely(is_overdue()))
		give_turn();
	(void)pthread_rwlock_wrlock(&late.lock);
	late.nr_barriers++;
	(void)pthread_rwlock_unlock(&late.lock);
}

/* Nobody holds the lock for long while there is a barrier. */
void cuda_barrier_end(void)
{
	(void)pthread_rwlock_wrlock(&late.lock);
	/* Without a thread for it, what waits goes on waiting until something else ends. */
	if (!--late.nr_barriers && !list_empty(&late.waiting))
		(void)work_queue(&late.work, WORK_HIGH);
	(void)pthread_rwlock_unlock(&late.lock);
}

bool cuda_now_begin(void)
{
	if (pthread_rwlock_tryrdlock(&late.lock) != 0)
		return false;
	if (!late.nr_barriers)
		return true;
	cuda_now_end();
	return false;
}

void cuda_now_end(void)
{
	(void)pthread_rwlock_unlock(&late.lock);
}

static bool run_now(struct mem_late *l)
{
	bool now;

	(void)pthread_rwlock_rdlock(&late.lock);
	now = !late.nr_barriers;
	if (now && !list_empty(&late.waiting))
		(void)work_queue(&late.work, WORK_HIGH);
	if (now)
		l->run(l);
	(void)pthread_rwlock_unlock(&late.lock);
	return now;
}

static bool put_off(struct mem_late *l)
{
	bool off;

	(void)pthread_rwlock_wrlock(&late.lock);
	off = late.nr_barriers;
	if (off && list_empty(&late.waiting))
		late.since = now_ns();
	if (off)
		list_add_tail(&late.waiting, &l->link);
	(void)pthread_rwlock_unlock(&late.lock);
	return off;
}

void cuda_late(struct mem_late *l)
{
	while (!run_now(l) && !put_off(l))
		;
}

static struct mem_late *next_waiting(void)
{
	struct mem_late *l = NULL;

	(void)pthread_rwlock_wrlock(&late.lock);
	if (!late.nr_barriers && !list_empty(&late.waiting)) {
		l = list_first(&late.waiting, struct mem_late, link);
		list_del(&l->link);
	}
	(void)pthread_rwlock_unlock(&late.lock);
	return l;
}

static void run_waiting(struct work *w)
{
	struct mem_late *l;

	(void)w;
	while ((l = next_waiting()))
		cuda_late(l);
}
