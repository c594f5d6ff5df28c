/* SPDX-License-Identifier: MIT */
/*
 * A machine with eight CPUs, whatever this one has: linked into a test, every engine of the
 * library has seven workers, six of them for all kinds of requests, which meet over each request.
 */
#include <sched.h>

/* Seen by the library, which else would have libc's. */
__attribute__((visibility("default"))) int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
	(void)pid;
	CPU_ZERO_S(size, set);
	for (unsigned cpu = 0; cpu < 8; cpu++)
		CPU_SET_S(cpu, size, set);
	return 0;
}
