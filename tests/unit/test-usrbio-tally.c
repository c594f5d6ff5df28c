/* SPDX-License-Identifier: MIT */
/* Buckets of latencies, and which numbers in shared memory a server accepts from a worker. */
#include "t.h"

#include "usrbio/proto/place.h"
#include "usrbio/proto/tally.h"

static struct usrbio_tally shared;

static void set(unsigned lane, unsigned what, uint64_t value)
{
	atomic_store(&shared.lane[lane].v[what], value);
}

static void reset(void)
{
	for (unsigned i = 0; i < TALLY_LANES; i++)
		for (unsigned j = 0; j < TALLY_NR; j++)
			set(i, j, 0);
}

static void buckets_reach_twice_as_far(void)
{
	T_EQ(latency_bucket(0), 0);
	T_EQ(latency_bucket(1024), 0);
	T_EQ(latency_bucket(1025), 1);
	T_EQ(latency_bucket(UINT64_MAX), LATENCY_BUCKETS - 1);
	for (unsigned i = 0; i + 1 < LATENCY_BUCKETS; i++) {
		T_EQ(latency_bucket(latency_end(i)), i);
		T_EQ(latency_bucket(latency_end(i) + 1), i + 1);
	}
}

static void lanes_are_added(void)
{
	struct usrbio_sum sum = { 0 };

	reset();
	for (unsigned i = 0; i < TALLY_LANES; i++) {
		usrbio_lane_add(&shared.lane[i], TALLY_REQUESTS, 10);
		usrbio_lane_add(&shared.lane[i], TALLY_BUCKET + i, i);
	}
	T_CHECK(usrbio_tally_read(&shared, &sum));
	T_EQ(sum.v[TALLY_REQUESTS], 10 * TALLY_LANES);
	T_EQ(usrbio_sum_timed(&sum), TALLY_LANES * (TALLY_LANES - 1) / 2);
	/* Reading twice gives the same sums. */
	T_CHECK(usrbio_tally_read(&shared, &sum));
	T_EQ(sum.v[TALLY_REQUESTS], 10 * TALLY_LANES);
}

static void lies_are_not_believed(void)
{
	struct usrbio_sum sum = { 0 };

	reset();
	set(0, TALLY_REQUESTS, 100);
	set(1, TALLY_READ, 1000);
	T_CHECK(usrbio_tally_read(&shared, &sum));
	/* A counter that falls is ignored, and the others are updated. */
	set(0, TALLY_REQUESTS, 99);
	set(1, TALLY_READ, 2000);
	T_CHECK(!usrbio_tally_read(&shared, &sum));
	T_EQ(sum.v[TALLY_REQUESTS], 100);
	T_EQ(sum.v[TALLY_READ], 2000);
	/* A counter is too large by itself, or makes the sum overflow. */
	set(0, TALLY_REQUESTS, (UINT64_C(1) << 53) + 1);
	T_CHECK(!usrbio_tally_read(&shared, &sum));
	set(0, TALLY_REQUESTS, UINT64_MAX);
	set(1, TALLY_REQUESTS, 102);
	T_CHECK(!usrbio_tally_read(&shared, &sum));
	T_EQ(sum.v[TALLY_REQUESTS], 100);
	/* The worker's numbers are plausible again. */
	set(0, TALLY_REQUESTS, 1);
	T_CHECK(usrbio_tally_read(&shared, &sum));
	T_EQ(sum.v[TALLY_REQUESTS], 103);
	/* Errors are limited to the number of requests. */
	set(0, TALLY_ERRORS, 1000);
	T_CHECK(usrbio_tally_read(&shared, &sum));
	T_EQ(sum.v[TALLY_ERRORS], 103);
}

static void sums_of_workers(void)
{
	struct usrbio_sum a = { 0 }, b = { 0 };

	a.v[TALLY_NS] = UINT64_MAX - 1;
	b.v[TALLY_NS] = 2;
	a.v[TALLY_READ] = 3;
	b.v[TALLY_READ] = 4;
	usrbio_sum_add(&a, &b);
	T_EQ(a.v[TALLY_NS], UINT64_MAX);
	T_EQ(a.v[TALLY_READ], 7);
}

static void places(void)
{
	char name[USRBIO_PLACE_NAME], other[USRBIO_PLACE_NAME], dir[64];

	usrbio_place_name("/3fs/kv", name);
	usrbio_place_name("/3fs/kw", other);
	T_CHECK(!strcmp(name + 16, USRBIO_PLACE_SUFFIX));
	T_EQ(strspn(name, "0123456789abcdef"), 16);
	T_CHECK(strcmp(name, other) != 0);
	T_EQ(usrbio_place_dir(0, dir, sizeof(dir)), 0);
	T_CHECK(!strcmp(dir, "/run/penstock"));
	T_EQ(usrbio_place_dir(4711, dir, sizeof(dir)), 0);
	T_CHECK(!strcmp(dir, "/run/user/4711/penstock"));
	T_EQ(usrbio_place_dir(4711, dir, 10), -ENAMETOOLONG);
}

int main(void)
{
	T_RUN(buckets_reach_twice_as_far);
	T_RUN(lanes_are_added);
	T_RUN(lies_are_not_believed);
	T_RUN(sums_of_workers);
	T_RUN(places);
	return t_done();
}
