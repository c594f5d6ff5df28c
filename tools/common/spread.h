/* SPDX-License-Identifier: MIT */
/* Medians, spreads and percentiles of measured values; CPU time of processes.  Needs only libc. */
#ifndef CLI_SPREAD_H
#define CLI_SPREAD_H

#include <sys/types.h>

#include "base/base.h"

struct spread {
	double median, lowest, highest;
};

/* Compute the spread of nr values, at least one; sorts them. */
struct spread spread_of(double *values, unsigned nr);

/* Return the median of nr values, at least one; sorts them. */
double median_of(double *values, unsigned nr);

struct latency {
	double p50_us, p99_us;
};

/* Compute the percentiles of nr times in ns, at least one; sorts them. */
struct latency latency_of(uint32_t *ns, size_t nr);

/* Convert a time to a sample for latency_of(), which holds at most 4.29 s. */
static inline uint32_t latency_sample(uint64_t ns)
{
	return (uint32_t)MIN(ns, UINT32_MAX);
}

/* Return user plus system time of a process in ns, with all of its threads; pid 0: this process.
 * Return -errno if there is no such process. */
int64_t cpu_ns_of(pid_t pid);

#endif
