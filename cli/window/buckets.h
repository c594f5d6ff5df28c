/* SPDX-License-Identifier: MIT */
/*
 * Measure operations that are too short for the clock: a bucket of operations is timed as a whole,
 * and each bucket gives one average.
 */
#ifndef CLI_BUCKETS_H
#define CLI_BUCKETS_H

#include <stdint.h>

#define BUCKETS_P99_MIN 100u /* fewer buckets have no 99th percentile */

/* How to measure. */
struct bucket_plan {
	unsigned buckets; /* most buckets, at least 1 */
	uint32_t ops;     /* operations in one bucket; fewer if these would take too long */
	double seconds;   /* time for all buckets; 0: no limit, and each bucket has all its
			   * operations */
};

/* The result: nanoseconds of one operation. */
struct bucket_sum {
	double median, min, p99; /* p99 is NAN with fewer than BUCKETS_P99_MIN */
	unsigned nr;             /* number of buckets */
	uint32_t ops;            /* operations in one bucket */
};

/* Do ops operations.  Return 0, or -errno with a sentence. */
typedef int (*bucket_fn)(void *arg, uint32_t ops);

/*
 * Measure, after one operation as warm-up.  Ends early, with the buckets so far, if stop_signal is
 * set.  Return 0, the error of fn, or -ENOMEM.
 */
int buckets_run(const struct bucket_plan *plan, bucket_fn fn, void *arg, struct bucket_sum *ret);

/* Compute the same for nr times, at least 1, that were measured elsewhere; sorts them. */
void buckets_sum(double *ns, unsigned nr, struct bucket_sum *ret);

#endif
