/* SPDX-License-Identifier: MIT */
/* The turns of a row, summed up: medians, their spread, the reason why there is no ratio. */
#ifndef CLI_BENCH_TURNS_H
#define CLI_BENCH_TURNS_H

#include "tools/common/numbers.h"

#define TURNS_DEFAULT 6u /* even: each side is first as often as the other */
#define TURNS_MAX 100u

/* A ratio takes this much: fewer requests or less time tell of a stall and not of a way. */
#define TURNS_MIN 4u
#define TURN_OPS_MIN 16u
#define TURN_NS_MIN (10 * NSEC_PER_MSEC)

/* Samples beyond a percentile, without which it is one of the extremes. */
#define TAIL_MIN 10u

/* One side in one turn. */
struct turn {
	uint64_t bytes, requests, ns;
};

struct spread {
	double median, lowest, highest;
};

/* Of nr values, at least one; sorts them. */
struct spread spread_of(double *values, unsigned nr);

/* GB/s of the turns. */
struct spread turns_rate(const struct turn *turns, unsigned nr);

enum lack {
	LACK_NOTHING,
	LACK_OPS,
	LACK_TIME,
	LACK_TURNS,
	LACK_DEVICE, /* the device is an emulator: its rates tell of no other */
};

struct ratio {
	struct spread v; /* of the pairs, where nothing is lacking */
	enum lack lack;
	uint64_t have; /* requests or ns of the smallest turn, or turns */
};

/* Ours to plain: each turn of ours is paired with the one of plain beside it. */
struct ratio turns_ratio(const struct turn *ours, const struct turn *plain, unsigned nr);

/* The lack as a sentence; empty when nothing is lacking. */
struct text lack_sentence(const struct ratio *r);

/* Are there TAIL_MIN samples beyond this percentile, such as 99? */
bool percentile_known(uint64_t samples, unsigned percent);

#endif
