/* SPDX-License-Identifier: MIT */
/*
 * Calls of the driver that wait for the program's streams.
 *
 * cuMemFree(), cuMemHostUnregister() and similar calls wait until the context's streams are idle.
 * During that time they block all other calls of the process: copies, allocations, registrations,
 * new streams (driver 580.159, H200).  A stream that waits for a read would then wait forever,
 * because the read needs such calls.  So resources that the library frees while a stream waits are
 * freed later, when no stream waits.  This includes resources of operations that failed.
 *
 * With reads that always overlap, this would never happen.  So from time to time the deferred work
 * gets a turn: no stream of any device starts to wait until the streams that wait already are done.
 * The first turn is short.  If those streams were done only a little after a turn, the next turn is
 * longer.
 */
#include "base/err.h"
#include "base/work.h"
#include "mem/cuda/cuda.h"

#define OFF_NS NSEC_PER_SEC           /* ns that deferred work waits before it gets a turn */
#define TURN_NS (100 * NSEC_PER_MSEC) /* ns of the first turn */
#define TURN_MAX_NS (8 * TURN_NS)     /* maximum ns of a turn */
#define LOOK_NS 100000

static void run_waiting(struct work *w);

static struct {
	pthread_rwlock_t lock; /* read-locked during calls that wait for streams */
	unsigned nr_barriers;
	struct list waiting;
	uint64_t turn_at;   /* CLOCK_MONOTONIC ns when the next turn begins */
	uint64_t turn_ns;   /* length of the last turn, ns */
	uint64_t turn_end;  /* CLOCK_MONOTONIC ns when the last turn ends; 0: none yet */
	unsigned nr_then;   /* barriers from before the last turn that have not ended */
	uint64_t next_then; /* number of the first barrier after the last turn began */
	uint64_t took_ns;   /* ns from the turn's begin until nr_then became 0; 0: not yet */
	uint64_t next;      /* number of the next barrier */
	struct work work;
} late = {
	/*
	 * Writers have priority: threads that free memory in a loop must not delay a stream that is
	 * about to wait.
	 */
	.lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP,
	.waiting = LIST_INIT(late.waiting),
	.work = { .link = LIST_INIT(late.work.link), .run = run_waiting },
};

/* Return the length of the next turn: twice what the last one would have needed, within limits. */
static uint64_t next_turn_ns(void)
{
	if (late.took_ns > TURN_MAX_NS)
		return TURN_NS;
	return MIN(MAX(2 * late.took_ns, TURN_NS), TURN_MAX_NS);
}

/* Return when the current turn of the deferred work ends, or 0 if there is none.  Begin a turn if
 * one is due.  Under the lock. */
static uint64_t turn(void)
{
	uint64_t now;

	if (likely(list_empty(&late.waiting)))
		return 0;
	now = now_ns();
	if (now >= late.turn_at) {
		late.turn_ns = next_turn_ns();
		late.nr_then = late.nr_barriers;
		late.next_then = late.next;
		late.took_ns = 0;
		late.turn_end = now + late.turn_ns;
		late.turn_at = late.turn_end + OFF_NS;
	}
	return now < late.turn_end ? late.turn_end : 0;
}

static bool is_waiting(void)
{
	bool is;

	(void)pthread_rwlock_rdlock(&late.lock);
	is = !list_empty(&late.waiting);
	(void)pthread_rwlock_unlock(&late.lock);
	return is;
}

static _cold_ void await_turn(uint64_t end)
{
	while (is_waiting() && now_ns() < end)
		(void)nanosleep(&(struct timespec){ .tv_nsec = LOOK_NS }, NULL);
}

uint64_t cuda_barrier_begin(uint64_t until)
{
	uint64_t end = 0, nr;

	(void)pthread_rwlock_wrlock(&late.lock);
	if (until)
		end = MIN(turn(), until);
	if (unlikely(end)) {
		(void)pthread_rwlock_unlock(&late.lock);
		await_turn(end);
		(void)pthread_rwlock_wrlock(&late.lock);
	}
	late.nr_barriers++;
	nr = late.next++;
	(void)pthread_rwlock_unlock(&late.lock);
	return nr;
}

/*
 * Run the deferred work on the work queue.  If no thread can start, the work stays until another
 * call.  Keep the caller's error sentence.
 */
static void queue_waiting(void)
{
	struct err_kept kept;

	if (likely(list_empty(&late.waiting)))
		return;
	err_keep(&kept);
	if (work_queue(&late.work, WORK_HIGH) < 0)
		err_put_back(&kept);
}

/* The lock is free soon: while there is a barrier, no thread makes a call that waits for
 * streams. */
void cuda_barrier_end(uint64_t nr)
{
	(void)pthread_rwlock_wrlock(&late.lock);
	if (unlikely(late.nr_then) && nr < late.next_then && !--late.nr_then)
		late.took_ns = now_ns() - (late.turn_end - late.turn_ns);
	if (!--late.nr_barriers)
		queue_waiting();
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
	if (now) {
		queue_waiting();
		l->run(l);
	}
	(void)pthread_rwlock_unlock(&late.lock);
	return now;
}

static bool put_off(struct mem_late *l)
{
	bool off;

	(void)pthread_rwlock_wrlock(&late.lock);
	off = late.nr_barriers;
	if (off && list_empty(&late.waiting)) {
		late.turn_at = now_ns() + OFF_NS;
		late.turn_end = late.took_ns = 0;
		late.nr_then = 0;
	}
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
