/* SPDX-License-Identifier: MIT */
#include "tools/common/spread.h"

#include <stdlib.h>
#include <time.h>

static int spread_by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

struct spread spread_of(double *values, unsigned nr)
{
	qsort(values, nr, sizeof(*values), spread_by_value);
	return (struct spread){
		.median = (values[(nr - 1) / 2] + values[nr / 2]) / 2,
		.lowest = values[0],
		.highest = values[nr - 1],
	};
}

double median_of(double *values, unsigned nr)
{
	return spread_of(values, nr).median;
}

static int spread_by_time(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

struct latency latency_of(uint32_t *ns, size_t nr)
{
	size_t middle = nr / 2, tail = nr - 1 - nr / 100;

	qsort(ns, nr, sizeof(*ns), spread_by_time);
	return (struct latency){ .p50_us = ns[middle] / 1000.0, .p99_us = ns[tail] / 1000.0 };
}

int64_t cpu_ns_of(pid_t pid)
{
	clockid_t clock = CLOCK_PROCESS_CPUTIME_ID;
	struct timespec t;
	int err = pid ? clock_getcpuclockid(pid, &clock) : 0;

	if (err == 0 && clock_gettime(clock, &t) < 0)
		err = errno;
	return err ? -err : t.tv_sec * (int64_t)NSEC_PER_SEC + t.tv_nsec;
}
