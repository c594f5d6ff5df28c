/* SPDX-License-Identifier: MIT */
#include "cli/bench/turns.h"

#include <stdio.h>

static double bench_turns_rate(const struct turn *t)
{
	return gb_per_s(t->bytes, t->ns);
}

struct spread turns_rate(const struct turn *turns, unsigned nr)
{
	double v[TURNS_MAX];

	for (unsigned i = 0; i < nr; i++)
		v[i] = bench_turns_rate(&turns[i]);
	return spread_of(v, nr);
}

static struct turn smaller(const struct turn *a, const struct turn *b)
{
	return (struct turn){
		.requests = MIN(a->requests, b->requests),
		.ns = MIN(a->ns, b->ns),
	};
}

struct ratio turns_ratio(const struct turn *ours, const struct turn *plain, unsigned nr)
{
	struct turn least = { .requests = UINT64_MAX, .ns = UINT64_MAX };
	double v[TURNS_MAX];

	for (unsigned i = 0; i < nr; i++) {
		least = smaller(&least, &ours[i]);
		least = smaller(&least, &plain[i]);
	}
	if (least.requests < TURN_OPS_MIN)
		return (struct ratio){ .lack = LACK_OPS, .have = least.requests };
	if (least.ns < TURN_NS_MIN)
		return (struct ratio){ .lack = LACK_TIME, .have = least.ns };
	if (nr < TURNS_MIN)
		return (struct ratio){ .lack = LACK_TURNS, .have = nr };
	for (unsigned i = 0; i < nr; i++)
		v[i] = bench_turns_rate(&ours[i]) / bench_turns_rate(&plain[i]);
	return (struct ratio){ .v = spread_of(v, nr) };
}

static const char *turns_plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

struct text lack_sentence(const struct ratio *r)
{
	unsigned long long n = r->have;
	struct text t = { "" };

	switch (r->lack) {
	case LACK_NOTHING:
		break;
	case LACK_OPS:
		(void)snprintf(t.s, sizeof(t.s),
			       "a turn had %llu request%s, and a ratio takes %u in each", n,
			       turns_plural(n), TURN_OPS_MIN);
		break;
	case LACK_TIME:
		(void)snprintf(t.s, sizeof(t.s), "a turn took %s, and a ratio takes %s for each",
			       time_text(n).s, time_text(TURN_NS_MIN).s);
		break;
	case LACK_TURNS:
		(void)snprintf(t.s, sizeof(t.s), "there %s %llu turn%s, and a ratio takes %u",
			       n == 1 ? "was" : "were", n, turns_plural(n), TURNS_MIN);
		break;
	case LACK_DEVICE:
		(void)snprintf(t.s, sizeof(t.s),
			       "the software device is an emulator, whose copies a thread makes");
		break;
	}
	return t;
}

bool percentile_known(uint64_t samples, unsigned percent)
{
	return samples / 100 * (100 - percent) + samples % 100 * (100 - percent) / 100 >= TAIL_MIN;
}
