/* SPDX-License-Identifier: MIT */
/* The queue lock: one thread holds it at a time, and a sleeper is woken. */
#include <pthread.h>

#include "base/lock.h"
#include "t.h"

#define THREADS 4u
#define TURNS 20000u
#define PAUSE_NS 10000000 /* ns; time after which a thread that waits for the lock sleeps */

static struct lock lock;
static unsigned turns; /* written under the lock */

static void *take_turns(void *arg)
{
	for (unsigned i = 0; i < TURNS; i++) {
		lock_take(&lock);
		turns++;
		lock_drop(&lock);
	}
	return arg;
}

static void start(pthread_t *ret)
{
	for (unsigned i = 0; i < THREADS; i++)
		T_EQ(pthread_create(&ret[i], NULL, take_turns, NULL), 0);
}

static void end(const pthread_t *threads)
{
	for (unsigned i = 0; i < THREADS; i++)
		T_EQ(pthread_join(threads[i], NULL), 0);
	T_EQ(turns, THREADS * TURNS);
	T_EQ(atomic_load(&lock.state), LOCK_FREE);
	turns = 0;
}

static void try_takes_it_once(void)
{
	T_CHECK(lock_try(&lock));
	T_CHECK(!lock_try(&lock));
	lock_drop(&lock);
	T_CHECK(lock_try(&lock));
	lock_drop(&lock);
}

static void one_at_a_time(void)
{
	pthread_t threads[THREADS];

	start(threads);
	end(threads);
}

static void sleepers_are_woken(void)
{
	pthread_t threads[THREADS];

	lock_take(&lock);
	start(threads);
	while (atomic_load(&lock.state) != LOCK_WANTED)
		(void)nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
	(void)nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
	T_EQ(turns, 0);
	lock_drop(&lock);
	end(threads);
}

int main(void)
{
	T_RUN(try_takes_it_once);
	T_RUN(one_at_a_time);
	T_RUN(sleepers_are_woken);
	return t_done();
}
