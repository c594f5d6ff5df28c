/* SPDX-License-Identifier: MIT */
/*
 * What the worker of a mount counts of its user's rings, in memory that it shares with the server.
 *
 * The worker is a process of the user, who may make it write anything there.  So the server reads
 * each number once, into memory of its own (usrbio_tally_read()), and believes only what could be:
 * numbers that do not fall and are no larger than any that was ever counted.  What a user's worker
 * says then stands in that user's numbers, and in nobody else's.
 */
#ifndef PST_USRBIO_TALLY_H
#define PST_USRBIO_TALLY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "usrbio/proto/latency.h"

#define TALLY_LANES 8u /* executors that count, each for itself */
#define TALLY_PATHS 16u

enum tally {
	TALLY_REQUESTS, /* completed */
	TALLY_ERRORS,   /* of these */
	TALLY_READ,     /* bytes */
	TALLY_WRITTEN,
	TALLY_NS,     /* from taking requests to completing them, together */
	TALLY_BUCKET, /* requests by that time */
	TALLY_PATH = TALLY_BUCKET + LATENCY_BUCKETS, /* requests by their paths, as PST_PATH_* */
	TALLY_NR = TALLY_PATH + TALLY_PATHS,
};

/* One thread at a time writes it. */
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
 * Bring the sums of all lanes up to date.  A number that fell, or is beyond all measure, stays as
 * it was; false: there was one.
 */
bool usrbio_tally_read(const struct usrbio_tally *t, struct usrbio_sum *sum);

/* The sums of another worker come on top. */
void usrbio_sum_add(struct usrbio_sum *to, const struct usrbio_sum *from);

/* Requests of all buckets: TALLY_REQUESTS may be read a moment earlier. */
uint64_t usrbio_sum_timed(const struct usrbio_sum *s);

#endif
