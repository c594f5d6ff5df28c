/* SPDX-License-Identifier: MIT */
/*
 * How many workers an engine has, and how large its slots are: by the CPUs and their caches.
 */
#include <sched.h>
#include <unistd.h>

#include "core/sched/engine.h"
#include "core/sched/sizes.h"

#define SLOT_MIN KIB(256)
#define SLOT_MAX MIB(1)

/*
 * Three in four of the CPUs that this process may use: they fill the bus where CPUs are slow, too.
 * With more the copies of large pieces get in each other's way, and the others belong to the
 * program.  Small pieces from all over a file wait for memory all the time, and keep all but one
 * busy.
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
 * A slot takes half of a CPU's own cache, so that its bytes are still there when the device reads
 * them, beside those of the next slot.
 */
uint64_t engine_slot_size(void)
{
	long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
	uint64_t size = SLOT_MAX;

	while (cache > 0 && size > SLOT_MIN && 2 * size > (uint64_t)cache)
		size /= 2;
	return size;
}
