/* SPDX-License-Identifier: MIT */
#include "raw.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/common/machine.h"
#include "tools/common/spread.h"

struct result {
	uint64_t bytes, ops, ns, p50, p99;
	double cpu;
	double resident; /* part in the page cache before the pass; negative: unknown */
};

static uint64_t raw_quantile(double q)
{
	static struct hist all;

	memset(&all, 0, sizeof(all));
	for (unsigned i = 0; i < set.threads; i++)
		hist_merge(&all, &lanes[i].hist);
	return hist_quantile(&all, q);
}

static void raw_run_pass(struct result *ret)
{
	uint64_t begun = UINT64_MAX, ended = 0;
	double cpu;

	if (set.cold)
		file_make_cold();
	ret->resident = raw_file_resident();
	atomic_store(&next_piece, 0);
	gate_wait();
	cpu = cpu_seconds();
	gate_wait();
	gate_wait();
	ret->cpu = cpu_seconds() - cpu;
	gate_wait();
	for (unsigned i = 0; i < set.threads; i++) {
		const struct lane *l = &lanes[i];

		if (l->status)
			die(l->status, "%s", l->text);
		ret->bytes += l->bytes;
		ret->ops += l->ops;
		begun = MIN(begun, l->begun);
		ended = MAX(ended, l->ended);
	}
	ret->ns = ended - begun;
	ret->p50 = raw_quantile(0.5);
	ret->p99 = raw_quantile(0.99);
}

static double raw_rate(const struct result *r)
{
	return r->ns ? (double)r->bytes / (double)r->ns : 0;
}

static double raw_cpu_per_10gb(const struct result *r)
{
	return r->bytes ? r->cpu * 1e10 / (double)r->bytes : 0;
}

static double raw_median(const struct result *v, double (*of)(const struct result *))
{
	double x[PASSES_MAX];

	for (unsigned i = 0; i < set.passes; i++)
		x[i] = of(&v[i]);
	return median_of(x, set.passes);
}

static double p50_us(const struct result *r)
{
	return (double)r->p50 / 1e3;
}

static double p99_us(const struct result *r)
{
	return (double)r->p99 / 1e3;
}

static void raw_print_text(const struct result *v, uint64_t verified)
{
	(void)printf("%s%s %s, pieces of %" PRIu64 " KiB, %u threads, %s offsets, %s, %s\n",
		     mode_names[set.mode], set.write ? " (writing)" : "", set.path, set.size >> 10,
		     set.threads, set.random ? "random" : "sequential",
		     set.direct ? "O_DIRECT" : "buffered", on_gpu() ? gpu_name : "host memory");
	(void)printf("pass    GB/s  us/op p50     p99  CPU s/10 GB  resident\n");
	for (unsigned i = 0; i < set.passes; i++)
		(void)printf("%4u  %6.2f  %9.1f %7.1f  %11.2f  %8.2f\n", i + 1, raw_rate(&v[i]),
			     p50_us(&v[i]), p99_us(&v[i]), raw_cpu_per_10gb(&v[i]), v[i].resident);
	(void)printf("%4s  %6.2f  %9.1f %7.1f  %11.2f\n", "med.", raw_median(v, raw_rate),
		     raw_median(v, p50_us), raw_median(v, p99_us), raw_median(v, raw_cpu_per_10gb));
	(void)printf("%" PRIu64 " MiB of it compared\n", verified >> 20);
}

static void raw_print_json(const struct result *v, uint64_t verified)
{
	(void)printf("{\"tool\": \"raw\", \"mode\": \"%s\", \"write\": %s, \"size\": %" PRIu64
		     ", \"block\": %" PRIu64
		     ", \"threads\": %u, \"offsets\": \"%s\", \"io\": \"%s\", \"state\": \"%s\", "
		     "\"device\": \"%s\", \"gb_per_s\": %.4f, \"p50_us\": %.2f, \"p99_us\": %.2f, "
		     "\"cpu_s_per_10gb\": %.4f, \"verified_bytes\": %" PRIu64 ", \"passes\": [",
		     mode_names[set.mode], set.write ? "true" : "false", set.size, set.block,
		     set.threads, set.random ? "random" : "seq", set.direct ? "direct" : "buffered",
		     set.cold ? "cold" : "warm", on_gpu() ? gpu_name : "host",
		     raw_median(v, raw_rate), raw_median(v, p50_us), raw_median(v, p99_us),
		     raw_median(v, raw_cpu_per_10gb), verified);
	for (unsigned i = 0; i < set.passes; i++)
		(void)printf("%s{\"bytes\": %" PRIu64 ", \"seconds\": %.6f, \"gb_per_s\": %.4f, "
			     "\"p50_us\": %.2f, \"p99_us\": %.2f, \"cpu_s_per_10gb\": %.4f, "
			     "\"resident\": %.3f}",
			     i ? ", " : "", v[i].bytes, (double)v[i].ns / 1e9, raw_rate(&v[i]),
			     p50_us(&v[i]), p99_us(&v[i]), raw_cpu_per_10gb(&v[i]), v[i].resident);
	(void)printf("]}\n");
}

void run(void)
{
	_cleanup_(freep) struct result *results = calloc(set.passes, sizeof(*results));
	uint64_t verified = 0;

	lanes = calloc(set.threads, sizeof(*lanes));
	if (!lanes || !results)
		die(1, "out of memory");
	if (pthread_barrier_init(&gate, NULL, set.threads + 1) != 0)
		die(1, "cannot make a barrier");
	for (unsigned i = 0; i < set.threads; i++) {
		lanes[i].idx = i;
		if (pthread_create(&lanes[i].thread, NULL, lane_main, &lanes[i]) != 0)
			die(1, "cannot start %u threads", set.threads);
	}
	if (!set.cold && !set.write)
		file_make_warm();
	for (turn = 0; turn < set.passes; turn++)
		raw_run_pass(&results[turn]);
	stop = true;
	gate_wait();
	for (unsigned i = 0; i < set.threads; i++) {
		(void)pthread_join(lanes[i].thread, NULL);
		verified += lanes[i].verified;
	}
	if (set.json)
		raw_print_json(results, verified);
	else
		raw_print_text(results, verified);
	for (unsigned i = 0; i < set.threads; i++)
		free(lanes[i].check);
	free(lanes);
}
