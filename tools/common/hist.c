/* SPDX-License-Identifier: MIT */
#include "tools/common/hist.h"

void hist_merge(struct hist *h, const struct hist *other)
{
	h->nr += other->nr;
	for (unsigned i = 0; i < HIST_BINS; i++)
		h->bins[i] += other->bins[i];
}

/* Return the middle of a bin. */
static uint64_t bin_value(unsigned bin)
{
	unsigned exp = bin >> HIST_SUB_BITS;
	uint64_t low;

	if (exp == 0)
		return bin;
	low = (uint64_t)((bin & ((1u << HIST_SUB_BITS) - 1)) | 1u << HIST_SUB_BITS) << (exp - 1);
	return low + ((UINT64_C(1) << (exp - 1)) >> 1);
}

uint64_t hist_quantile(const struct hist *h, double q)
{
	uint64_t want, seen = 0;

	if (!h->nr)
		return 0;
	want = (uint64_t)(q * (double)h->nr);
	if (want >= h->nr)
		want = h->nr - 1;
	for (unsigned i = 0; i < HIST_BINS; i++) {
		seen += h->bins[i];
		if (seen > want)
			return bin_value(i);
	}
	return bin_value(HIST_BINS - 1);
}
