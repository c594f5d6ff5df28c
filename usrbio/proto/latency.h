/* SPDX-License-Identifier: MIT */
/* A histogram of latencies: the upper end of each bucket is twice that of the bucket before. */
#ifndef PST_USRBIO_LATENCY_H
#define PST_USRBIO_LATENCY_H

#include <stdint.h>

#define LATENCY_BUCKETS 25u /* the last bucket has no upper end */
#define LATENCY_SHIFT 10u   /* the first bucket ends at 2^10 ns */

static inline unsigned latency_bucket(uint64_t ns)
{
	unsigned i;

	if (ns <= UINT64_C(1) << LATENCY_SHIFT)
		return 0;
	i = 64 - LATENCY_SHIFT - (unsigned)__builtin_clzll(ns - 1);
	return i < LATENCY_BUCKETS ? i : LATENCY_BUCKETS - 1;
}

/* Return a bucket's inclusive upper end in nanoseconds. */
static inline uint64_t latency_end(unsigned bucket)
{
	return UINT64_C(1) << (LATENCY_SHIFT + bucket);
}

#endif
