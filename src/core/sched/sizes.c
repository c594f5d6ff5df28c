/* SPDX-License-Identifier: MIT */
/* The number of an engine's workers and the size of its slots, from the CPUs and their caches. */
#include <sched.h>
#include <unistd.h>

#include "core/sched/engine.h"
#include "core/sched/sizes.h"

#define SLOT_MIN KIB(256)
#define SLOT_MAX MIB(1)

/*
 * Return the number of workers: the CPUs of this process minus one.  Small scattered pieces keep
 * that many workers busy, because each waits for memory most of the time.  *ret_usual is three
 * quarters of the CPUs: they saturate the bus even if CPUs are slow.  With large pieces more
 * workers slow each other down, and the program needs the other CPUs.
 */
unsigned engine_width(unsigned *ret_usual)
{
	cpu_set_t set;
	unsigned cpus = sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set)
								     : 2;

	*ret_usual = MIN(MAX(cpus * 3 / 4, 1u), WORKERS_USUAL);
	return MIN(MAX(cpus - 1, 1u), WORKERS_MAX);
}

/*
 * Return half the size of a CPU's L2 cache, so that the cache holds two slots: one that the device
 * reads, and the next one, which the CPU fills.
 */
uint64_t engine_slot_size(void)
{
	long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
	uint64_t size = SLOT_MAX;

	while (cache > 0 && size > SLOT_MIN && 2 * size > (uint64_t)cache)
		size /= 2;
	return size;
}
