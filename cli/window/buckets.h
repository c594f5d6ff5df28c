/* SPDX-License-Identifier: MIT */
/*
 * Times of operations that are shorter than reading the clock is exact: a bucket of
 * operations is timed as a whole, and all figures are of the averages of buckets.
 */
#ifndef CLI_BUCKETS_H
#define CLI_BUCKETS_H

#include <stdint.h>

#define BUCKETS_P99_MIN 100u /* fewer buckets have no 99th percentile */

/* How to measure. */
struct bucket_plan {
	unsigned buckets; /* most of them, at least 1 */
	uint32_t ops;     /* in one; fewer where so many would take too long */
	double seconds;   /* for all; 0: no limit, and each bucket has all its operations */
};

/* The result: nanoseconds of one operation. */
struct bucket_sum {
	double median, min, p99; /* p99 is NAN with fewer than BUCKETS_P99_MIN */
	unsigned nr;             /* buckets */
	uint32_t ops;            /* in one */
};

/* Do so many operations; 0 or -errno with a sentence. */
typedef int (*bucket_fn)(void *arg, uint32_t ops);

/*
 * Begins with one operation that is not counted.  Ends early, with the buckets so far, when
 * stop_signal is set.  0, or the error of fn, or -ENOMEM.
 */
int buckets_run(const struct bucket_plan *plan, bucket_fn fn, void *arg, struct bucket_sum *ret);

/* The same of times that were taken elsewhere, nr of at least 1; sorts them. */
void buckets_sum(double *ns, unsigned nr, struct bucket_sum *ret);

#endif
