/* SPDX-License-Identifier: MIT */
/*
 * Histograms of latencies from 1 ns to hours.  A bin's width is 1/64 of its value, so a quantile is
 * right within 1.6 %, and adding a sample costs a few instructions.
 */
#ifndef CLI_HIST_H
#define CLI_HIST_H

#include <stdint.h>

#define HIST_SUB_BITS 6
#define HIST_BINS ((64 - HIST_SUB_BITS + 1) << HIST_SUB_BITS)

struct hist {
	uint64_t nr;
	uint64_t bins[HIST_BINS];
};

static inline unsigned hist_bin(uint64_t ns)
{
	unsigned msb;

	if (ns < (1u << HIST_SUB_BITS))
		return (unsigned)ns;
	msb = 63u - (unsigned)__builtin_clzll(ns);
	return ((msb - HIST_SUB_BITS + 1) << HIST_SUB_BITS) +
	       (unsigned)((ns >> (msb - HIST_SUB_BITS)) & ((1u << HIST_SUB_BITS) - 1));
}

static inline void hist_add(struct hist *h, uint64_t ns)
{
	h->nr++;
	h->bins[hist_bin(ns)]++;
}

void hist_merge(struct hist *h, const struct hist *other);

/* Return the value that a part q (0.0 to 1.0) of the samples does not exceed; 0 without samples. */
uint64_t hist_quantile(const struct hist *h, double q);

#endif
