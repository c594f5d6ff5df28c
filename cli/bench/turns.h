/* SPDX-License-Identifier: MIT */
/* Statistics of a row's turns: medians, spread, and the reason if there is no ratio. */
#ifndef CLI_BENCH_TURNS_H
#define CLI_BENCH_TURNS_H

#include "tools/common/numbers.h"
#include "tools/common/spread.h"

#define TURNS_DEFAULT 6u /* even, so that each side goes first equally often */
#define TURNS_MAX 100u

/* A ratio needs at least this many turns, and this many requests and ns in each turn: with less,
 * one stall would decide the ratio. */
#define TURNS_MIN 4u
#define TURN_OPS_MIN 16u
#define TURN_NS_MIN (10 * NSEC_PER_MSEC)

/* A percentile is shown only if at least this many samples are above it. */
#define TAIL_MIN 10u

/* One side in one turn. */
struct turn {
	uint64_t bytes, requests, ns;
};

/* Return the spread of the turns' rates in GB/s. */
struct spread turns_rate(const struct turn *turns, unsigned nr);

enum lack {
	LACK_NOTHING,
	LACK_OPS,
	LACK_TIME,
	LACK_TURNS,
	LACK_DEVICE, /* the device is emulated, so its rates say nothing about real devices */
};

struct ratio {
	struct spread v; /* spread over the pairs, if lack is NONE */
	enum lack lack;
	/* the value that is too small: requests or ns of the smallest turn, or turns */
	uint64_t have;
};

/* Return the ratio of our side to the plain side, pairing each of our turns with the adjacent plain
 * turn. */
struct ratio turns_ratio(const struct turn *ours, const struct turn *plain, unsigned nr);

/* Return why there is no ratio, as a sentence; empty if there is one. */
struct text lack_sentence(const struct ratio *r);

/* Return true if at least TAIL_MIN samples are above this percentile, such as 99. */
bool percentile_known(uint64_t samples, unsigned percent);

#endif
