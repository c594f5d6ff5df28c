/* SPDX-License-Identifier: MIT */
#include "usrbio/proto/tally.h"

#define MOST (UINT64_C(1) << 53) /* doubles are exact up to here */

static uint64_t tally_add(uint64_t a, uint64_t b)
{
	return a + b < a ? UINT64_MAX : a + b;
}

/* Return the sum of a counter over all lanes.  Another process writes the lanes, so the caller
 * checks the sum. */
static uint64_t lanes(const struct usrbio_tally *t, unsigned what)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < TALLY_LANES; i++)
		sum = tally_add(sum,
				atomic_load_explicit(&t->lane[i].v[what], memory_order_relaxed));
	return sum;
}

bool usrbio_tally_read(const struct usrbio_tally *t, struct usrbio_sum *sum)
{
	bool good = true;

	for (unsigned i = 0; i < TALLY_NR; i++) {
		uint64_t now = lanes(t, i);

		if (now < sum->v[i] || now > MOST)
			good = false;
		else
			sum->v[i] = now;
	}
	/* The two counters are read at different times, so errors may exceed requests.  Lowering
	 * errors to requests never decreases it, because neither counter decreases. */
	if (sum->v[TALLY_ERRORS] > sum->v[TALLY_REQUESTS])
		sum->v[TALLY_ERRORS] = sum->v[TALLY_REQUESTS];
	return good;
}

void usrbio_sum_add(struct usrbio_sum *to, const struct usrbio_sum *from)
{
	for (unsigned i = 0; i < TALLY_NR; i++)
		to->v[i] = tally_add(to->v[i], from->v[i]);
}

uint64_t usrbio_sum_timed(const struct usrbio_sum *s)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < LATENCY_BUCKETS; i++)
		sum = tally_add(sum, s->v[TALLY_BUCKET + i]);
	return sum;
}
