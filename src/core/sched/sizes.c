/* SPDX-License-Identifier: MIT */
/*
 * The number of an engine's workers and the size of its slots, by the CPUs and their caches.
 */
#include <sched.h>
#include <unistd.h>

#include "core/sched/engine.h"
#include "core/sched/sizes.h"

#define SLOT_MIN KIB(256)
#define SLOT_MAX MIB(1)

/*
 * Return three quarters of the CPUs that this process may use: they saturate the bus even if CPUs
 * are slow.  More workers slow each other down with large pieces, and the other CPUs belong to the
 * program.  Small scattered pieces wait for memory all the time, and keep all CPUs but one busy.
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
 * Return half of a CPU's own cache, so that a slot's bytes are still cached when the device reads
 * them, along with those of the next slot.
 */
uint64_t engine_slot_size(void)
{
	long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
	uint64_t size = SLOT_MAX;

	while (cache > 0 && size > SLOT_MIN && 2 * size > (uint64_t)cache)
		size /= 2;
	return size;
}
