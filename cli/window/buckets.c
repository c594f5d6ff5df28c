/* SPDX-License-Identifier: MIT */
#include "cli/window/buckets.h"

#include <math.h>

#include "tools/common/spread.h"
#include "tools/common/util.h"

#define TRY_NS UINT64_C(1000000) /* ns; duration of the first measurement */
#define TRY_OPS 64u

void buckets_sum(double *ns, unsigned nr, struct bucket_sum *ret)
{
	struct spread s = spread_of(ns, nr);

	*ret = (struct bucket_sum){
		.median = s.median,
		.min = s.lowest,
		/* The smallest value that 99 % of the values do not exceed. */
		.p99 = nr < BUCKETS_P99_MIN ? (double)NAN : ns[((uint64_t)nr * 99 + 99) / 100 - 1],
		.nr = nr,
		.ops = 1,
	};
}

/* Choose the operations per bucket so that all buckets fit into the time. */
static int choose_ops(const struct bucket_plan *plan, bucket_fn fn, void *arg, uint32_t *ret)
{
	uint64_t begun, ns;
	uint32_t nr = 0;
	double fit;
	int r;

	r = fn(arg, 1);
	*ret = plan->ops;
	if (r < 0 || plan->seconds <= 0)
		return r;
	begun = now_ns();
	do {
		r = fn(arg, 1);
		if (r < 0)
			return r;
		ns = now_ns() - begun;
	} while (++nr < TRY_OPS && ns < TRY_NS);
	fit = plan->seconds * 1e9 / plan->buckets * nr / (double)MAX(ns, 1u);
	*ret = fit < 1 ? 1 : fit < plan->ops ? (uint32_t)fit : plan->ops;
	return 0;
}

int buckets_run(const struct bucket_plan *plan, bucket_fn fn, void *arg, struct bucket_sum *ret)
{
	_cleanup_(freep) double *ns = calloc(plan->buckets, sizeof(*ns));
	uint64_t end, begun, now;
	unsigned nr = 0;
	uint32_t ops;
	int r;

	if (!ns)
		return fail(ENOMEM, "out of memory");
	r = choose_ops(plan, fn, arg, &ops);
	if (r < 0)
		return r;
	begun = now_ns();
	end = plan->seconds > 0 ? begun + (uint64_t)(plan->seconds * 1e9) : UINT64_MAX;
	do {
		r = fn(arg, ops);
		now = now_ns();
		if (r < 0)
			return r;
		ns[nr++] = (double)(now - begun) / ops;
		begun = now;
	} while (nr < plan->buckets && now < end && !stop_signal);
	buckets_sum(ns, nr, ret);
	ret->ops = ops;
	return 0;
}
