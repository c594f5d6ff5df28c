/* SPDX-License-Identifier: MIT */
/*
 * Measure the distance between two CPUs: the round-trip time of a cache line, in nanoseconds, as
 * the median of some thousand round trips.  Uses the first two CPUs that the program may use, and
 * prints "-" if there is only one.  A host may move its guests' CPUs, so the distance, and what two
 * threads gain from sharing work, may change from minute to minute.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/base.h"
#include "die.h"
#include "tools/common/spread.h"

#define TURNS 200u
#define TRIPS 1000u

static _Alignas(64) atomic_uint line; /* even value: it is the first CPU's turn */
static int cpus[2];

static void stay_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((unsigned)cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) < 0)
		die("cannot stay on CPU %d: %m", cpu);
}

static void cpus_await(unsigned value)
{
	while (atomic_load_explicit(&line, memory_order_acquire) != value)
		cpu_relax();
}

static void *cpus_answer(void *arg)
{
	stay_on(cpus[1]);
	for (unsigned i = 0; i <= TURNS * TRIPS; i++) {
		cpus_await(2 * i + 1);
		atomic_store_explicit(&line, 2 * i + 2, memory_order_release);
	}
	return arg;
}

static void cpus_trip(unsigned i)
{
	atomic_store_explicit(&line, 2 * i + 1, memory_order_release);
	cpus_await(2 * i + 2);
}

static unsigned find_cpus(void)
{
	cpu_set_t set;
	unsigned nr = 0;

	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		die("cannot tell which CPUs there are: %m");
	for (int i = 0; i < CPU_SETSIZE && nr < 2; i++)
		if (CPU_ISSET((unsigned)i, &set))
			cpus[nr++] = i;
	return nr;
}

int main(void)
{
	double took[TURNS];
	pthread_t other;

	if (find_cpus() < 2) {
		(void)puts("-");
		return 0;
	}
	if (pthread_create(&other, NULL, cpus_answer, NULL))
		die("cannot start a thread");
	stay_on(cpus[0]);
	cpus_trip(0);
	for (unsigned t = 0; t < TURNS; t++) {
		uint64_t begin = now_ns();

		for (unsigned i = 0; i < TRIPS; i++)
			cpus_trip(1 + t * TRIPS + i);
		took[t] = (double)(now_ns() - begin) / TRIPS;
	}
	(void)pthread_join(other, NULL);
	(void)printf("%.0f\n", median_of(took, TURNS));
	return 0;
}
