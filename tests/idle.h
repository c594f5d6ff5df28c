/* SPDX-License-Identifier: MIT */
/* Check that the library's threads sleep: a sleeping thread's CPU time does not grow. */
#ifndef PST_TEST_IDLE_H
#define PST_TEST_IDLE_H

#include "rig.h"

#define IDLE_WHILE_MS 200u

/* Return the CPU time of a thread of this process, ns; 0: it has ended. */
static inline uint64_t idle_of(int tid)
{
	clockid_t clock = (clockid_t)(~(unsigned)tid << 3 | 6u); /* CPUCLOCK_PERTHREAD, _SCHED */
	struct timespec ts = { 0 };

	if (clock_gettime(clock, &ts) < 0)
		return 0;
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Return the total CPU time of all threads whose names begin with @name, ns. */
static inline uint64_t idle_spent(const char *name)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	uint64_t sum = 0;

	T_CHECK(d);
	while ((e = readdir(d)) != NULL) {
		char path[64], comm[17] = "";
		int fd;

		(void)snprintf(path, sizeof(path), "/proc/self/task/%.20s/comm", e->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (read(fd, comm, sizeof(comm) - 1) > 0 && strncmp(comm, name, strlen(name)) == 0)
			sum += idle_of(atoi(e->d_name));
		(void)close(fd);
	}
	(void)closedir(d);
	return sum;
}

/* Wait until these threads use no CPU time for IDLE_WHILE_MS. */
static inline void idle_rests(const char *name)
{
	uint64_t end = t_in_ms(RIG_WAIT_MS), before, now = idle_spent(name);

	do {
		before = now;
		(void)usleep(IDLE_WHILE_MS * 1000);
		now = idle_spent(name);
	} while (now != before && t_now() < end);
	if (now != before)
		T_FAIL("%s: %" PRIu64 " ns of CPU time in a while of %u ms", name, now - before,
		       IDLE_WHILE_MS);
}

#endif
