/* SPDX-License-Identifier: MIT */
/*
 * Counters of a mount's worker about its user's rings, in memory shared with the server.
 *
 * The worker is a process of the user, who may make it write anything there.  So the server reads
 * each number once, into its own memory (usrbio_tally_read()), and accepts only numbers that do not
 * decrease and are not absurdly large.  A worker's numbers appear only in its user's metrics.
 */
#ifndef PST_USRBIO_TALLY_H
#define PST_USRBIO_TALLY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "usrbio/proto/latency.h"

#define TALLY_LANES 8u /* number of lanes; each executor counts in a separate lane */
#define TALLY_PATHS 16u

enum tally {
	TALLY_REQUESTS, /* completed requests */
	TALLY_ERRORS,   /* completed requests with an error */
	TALLY_READ,     /* bytes read */
	TALLY_WRITTEN,
	TALLY_NS, /* sum of the times from taking a request to completing it, ns */
	/* completed requests by the time that they took, in LATENCY_BUCKETS buckets */
	TALLY_BUCKET,
	TALLY_PATH = TALLY_BUCKET + LATENCY_BUCKETS, /* completed requests by path, PST_PATH_* */
	TALLY_NR = TALLY_PATH + TALLY_PATHS,
};

/* The counters of one executor, written by one thread at a time. */
struct usrbio_lane {
	_Alignas(64) _Atomic uint64_t v[TALLY_NR];
};

struct usrbio_tally {
	struct usrbio_lane lane[TALLY_LANES];
};

struct usrbio_sum {
	uint64_t v[TALLY_NR];
};

static inline void usrbio_lane_add(struct usrbio_lane *l, unsigned what, uint64_t n)
{
	uint64_t now = atomic_load_explicit(&l->v[what], memory_order_relaxed);

	atomic_store_explicit(&l->v[what], now + n, memory_order_relaxed);
}

/*
 * Read the sums of all lanes.  A number that decreased, or is absurdly large, keeps its old value;
 * return false if there was one.
 */
bool usrbio_tally_read(const struct usrbio_tally *t, struct usrbio_sum *sum);

/* Add the sums of another worker to @to. */
void usrbio_sum_add(struct usrbio_sum *to, const struct usrbio_sum *from);

/* Return the sum of all buckets.  TALLY_REQUESTS may differ, because it is read at another time. */
uint64_t usrbio_sum_timed(const struct usrbio_sum *s);

#endif
