/* SPDX-License-Identifier: MIT */
/*
 * Measure operations that are shorter than the clock's resolution: time a bucket of operations as a
 * whole, and take its average.
 */
#ifndef CLI_BUCKETS_H
#define CLI_BUCKETS_H

#include <stdint.h>

#define BUCKETS_P99_MIN 100u /* with fewer buckets there is no 99th percentile */

/* Parameters of a measurement. */
struct bucket_plan {
	unsigned buckets; /* maximum buckets, at least 1 */
	uint32_t ops;     /* operations per bucket; fewer if they would take too long */
	double seconds;   /* seconds for all buckets; 0: unlimited, with all operations */
};

/* Results in ns per operation. */
struct bucket_sum {
	double median, min, p99; /* p99 is NAN with fewer than BUCKETS_P99_MIN */
	unsigned nr;             /* buckets that were measured */
	uint32_t ops;            /* operations per bucket */
};

/* Run ops operations.  Return 0, or -errno with a sentence. */
typedef int (*bucket_fn)(void *arg, uint32_t ops);

/*
 * Measure after a warm-up of one operation.  End early, with the buckets so far, if stop_signal is
 * set.  Return 0, fn's error, or -ENOMEM.
 */
int buckets_run(const struct bucket_plan *plan, bucket_fn fn, void *arg, struct bucket_sum *ret);

/* Compute the results from nr >= 1 times that were measured elsewhere; sorts them. */
void buckets_sum(double *ns, unsigned nr, struct bucket_sum *ret);

#endif
