/* SPDX-License-Identifier: MIT */
#include "cli/bench/turns.h"

#include <unistd.h>

#include "t.h"

#define MS NSEC_PER_MSEC

/* Return a turn with this number of requests of 1 MB. */
static struct turn turn(uint64_t requests, uint64_t ns)
{
	return (struct turn){ .bytes = requests * 1000000, .requests = requests, .ns = ns };
}

/* Compare doubles for equality: these values are exact. */
static void medians(void)
{
	double one[] = { 3 }, odd[] = { 5, 1, 4 }, even[] = { 8, 1, 2, 4 }, same[] = { 2, 2, 2, 2 };
	struct spread s = spread_of(one, 1);

	T_CHECK(s.lowest == 3 && s.median == 3 && s.highest == 3);
	s = spread_of(odd, 3);
	T_CHECK(s.lowest == 1 && s.median == 4 && s.highest == 5);
	s = spread_of(even, 4);
	T_CHECK(s.lowest == 1 && s.median == 3 && s.highest == 8);
	s = spread_of(same, 4);
	T_CHECK(s.lowest == 2 && s.median == 2 && s.highest == 2);
}

/* The p99 is the sample that one percent of the samples exceed. */
static void latencies(void)
{
	uint32_t one[] = { 7000 }, many[200];
	struct latency l = latency_of(one, 1);

	T_CHECK(l.p50_us == 7 && l.p99_us == 7);
	for (unsigned i = 0; i < 200; i++)
		many[i] = 1000 * (200 - i);
	l = latency_of(many, 200);
	T_CHECK(l.p50_us == 101 && l.p99_us == 198);
	T_EQ(many[0], 1000);
	T_EQ(latency_sample(5), 5);
	T_EQ(latency_sample(UINT64_MAX), UINT32_MAX);
}

static void cpu_time(void)
{
	int64_t before = cpu_ns_of(0), now = before, other;

	while (now - before < (int64_t)MS)
		now = cpu_ns_of(getpid());
	other = cpu_ns_of(getppid());
	T_CHECK(other >= 0);
	T_EQ(cpu_ns_of((1 << 22) + 1), -ESRCH); /* larger than any process ID */
}

/* 100 MB in 100, 50 and 200 ms are 1, 2 and 0.5 GB/s. */
static void rates(void)
{
	struct turn t[] = { turn(100, 100 * MS), turn(100, 50 * MS), turn(100, 200 * MS) };
	struct spread s = turns_rate(t, 3);

	T_CHECK(s.lowest == 0.5 && s.median == 1 && s.highest == 2);
	s = turns_rate(t, 1);
	T_CHECK(s.lowest == 1 && s.median == 1 && s.highest == 1);
}

/*
 * A ratio is the median of the ratios of pairs of turns.  First: pairs of 1:2, 2:1, 0.5:2 and
 * 1:1 GB/s have the ratios 0.5, 2, 0.25 and 1, so the median is 0.75. Second: every pair is 4:1.
 */
static void ratios_are_of_pairs(void)
{
	struct turn ours[] = { turn(100, 100 * MS), turn(100, 50 * MS), turn(100, 200 * MS),
			       turn(100, 100 * MS) };
	struct turn plain[] = { turn(100, 50 * MS), turn(100, 100 * MS), turn(100, 50 * MS),
				turn(100, 100 * MS) };
	struct turn up[] = { turn(100, 100 * MS), turn(100, 25 * MS), turn(100, 100 * MS),
			     turn(100, 400 * MS) };
	struct turn down[] = { turn(100, 400 * MS), turn(100, 100 * MS), turn(100, 400 * MS),
			       turn(100, 1600 * MS) };
	struct ratio r = turns_ratio(ours, plain, 4);

	T_EQ(r.lack, LACK_NOTHING);
	T_CHECK(r.v.lowest == 0.25 && r.v.median == 0.75 && r.v.highest == 2);
	r = turns_ratio(up, down, 4);
	T_EQ(r.lack, LACK_NOTHING);
	T_CHECK(r.v.lowest == 4 && r.v.median == 4 && r.v.highest == 4);
	/* Nothing is missing, so the text is empty. */
	T_CHECK(!strcmp(lack_sentence(&r).s, ""));
}

/* A turn of only six requests, on a disk that stalled: there is no ratio. */
static void few_requests(void)
{
	struct turn ours[6], plain[6];
	struct ratio r;

	for (unsigned i = 0; i < 6; i++) {
		ours[i] = turn(20000, 500 * MS);
		plain[i] = turn(i == 3 ? 6 : 1000, 500 * MS);
	}
	r = turns_ratio(ours, plain, 6);
	T_EQ(r.lack, LACK_OPS);
	T_EQ(r.have, 6);
	T_CHECK(r.v.median == 0);
	T_CHECK(!strcmp(lack_sentence(&r).s,
			"a turn had 6 requests, and a ratio takes 16 in each"));
	r = turns_ratio(plain, ours, 6);
	T_EQ(r.lack, LACK_OPS);
	plain[3].requests = 1;
	r = turns_ratio(ours, plain, 6);
	plain[3].requests = 15;
	T_EQ(turns_ratio(ours, plain, 6).lack, LACK_OPS);
	plain[3].requests = 16;
	T_EQ(turns_ratio(ours, plain, 6).lack, LACK_NOTHING);
}

static void short_turns(void)
{
	struct turn ours[4], plain[4];
	struct ratio r;

	for (unsigned i = 0; i < 4; i++)
		ours[i] = plain[i] = turn(100, 10 * MS);
	plain[2].ns = 1800000;
	r = turns_ratio(ours, plain, 4);
	T_EQ(r.lack, LACK_TIME);
	T_CHECK(!strcmp(lack_sentence(&r).s,
			"a turn took 1.8 ms, and a ratio takes 10.0 ms for each"));
	plain[2].ns = 10 * MS - 1;
	T_EQ(turns_ratio(ours, plain, 4).lack, LACK_TIME);
	T_EQ(turns_ratio(plain, ours, 4).lack, LACK_TIME);
	plain[2].ns = 0;
	T_EQ(turns_ratio(ours, plain, 4).lack, LACK_TIME);
	plain[2].ns = 10 * MS;
	T_EQ(turns_ratio(ours, plain, 4).lack, LACK_NOTHING);
}

static void few_turns(void)
{
	struct turn t[4];
	struct ratio r;

	for (unsigned i = 0; i < 4; i++)
		t[i] = turn(100, 20 * MS);
	r = turns_ratio(t, t, 3);
	T_EQ(r.lack, LACK_TURNS);
	r = turns_ratio(t, t, 1);
	T_CHECK(!strcmp(lack_sentence(&r).s, "there was 1 turn, and a ratio takes 4"));
	T_EQ(turns_ratio(t, t, 4).lack, LACK_NOTHING);
	/* If several things are missing, the text names the requests. */
	t[0].requests = 6;
	T_EQ(turns_ratio(t, t, 1).lack, LACK_OPS);
}

/* A percentile needs ten samples beyond it: 20 for the median, 1000 for p99. */
static void percentiles(void)
{
	T_CHECK(!percentile_known(0, 50));
	T_CHECK(!percentile_known(6, 50));
	T_CHECK(!percentile_known(19, 50));
	T_CHECK(percentile_known(20, 50));
	T_CHECK(!percentile_known(20, 99));
	T_CHECK(!percentile_known(999, 99));
	T_CHECK(percentile_known(1000, 99));
	T_CHECK(percentile_known(UINT64_MAX, 50));
	T_CHECK(percentile_known(UINT64_MAX, 99));
}

int main(void)
{
	T_RUN(medians);
	T_RUN(latencies);
	T_RUN(cpu_time);
	T_RUN(rates);
	T_RUN(ratios_are_of_pairs);
	T_RUN(few_requests);
	T_RUN(short_turns);
	T_RUN(few_turns);
	T_RUN(percentiles);
	return t_done();
}
