/* SPDX-License-Identifier: MIT */
#include "cli/window/opts.h"

#include <getopt.h>

enum {
	BACKEND = 256,
	CACHING,
	KERNEL,
	JSON,
	SIZE,
	RANDOM,
	SEED,
	SIZES,
	MAX_SIZE,
	RUNTIME,
	BASELINE
};

static const struct option longs[] = {
	{ "device", required_argument, NULL, 'd' },
	{ "backend", required_argument, NULL, BACKEND },
	{ "caching", required_argument, NULL, CACHING },
	{ "kernel", required_argument, NULL, KERNEL },
	{ "json", no_argument, NULL, JSON },
	{ "size", required_argument, NULL, SIZE },
	{ "random", required_argument, NULL, RANDOM },
	{ "seed", required_argument, NULL, SEED },
	{ "sizes", required_argument, NULL, SIZES },
	{ "threads", required_argument, NULL, 't' },
	{ "max", required_argument, NULL, MAX_SIZE },
	{ "count", required_argument, NULL, 'n' },
	{ "runtime", required_argument, NULL, RUNTIME },
	{ "baseline", required_argument, NULL, BASELINE },
	{ 0 },
};

/* Options that only some subcommands accept, and their arguments. */
static const struct {
	int opt;
	uint32_t bit;
	const char *name, *wants;
} some[] = {
	{ SIZE, WIN_OPT_SIZE, "--size", "a multiple of 4 from 4k to 1g" },
	{ RANDOM, WIN_OPT_RANDOM, "--random", "a number up to 1000000000" },
	{ SEED, WIN_OPT_SEED, "--seed", "a number that is not 0" },
	{ SIZES, WIN_OPT_SIZES, "--sizes", "sizes up to 1g, such as 4k,64k,1m" },
	{ 't', WIN_OPT_THREADS, "--threads", "numbers from 1 to 64, such as 1,2,4,8" },
	{ MAX_SIZE, WIN_OPT_MAX, "--max", "a size from 64k to 1g" },
	{ 'n', WIN_OPT_COUNT, "--count", "a number from 1 to 10000000" },
	{ RUNTIME, WIN_OPT_RUNTIME, "--runtime", "seconds, such as 2 or 0.1" },
	{ BASELINE, WIN_OPT_BASELINE, "--baseline", "copies or none" },
};

const char *win_opt_name(uint32_t opts)
{
	for (size_t i = 0; i < ARRAY_SIZE(some); i++)
		if (opts & some[i].bit)
			return some[i].name;
	return NULL;
}

int win_parse_caching(const char *text, uint32_t *ret)
{
	for (uint32_t c = PST_CACHING_WC; c <= PST_CACHING_DEVICE; c++)
		if (!strcmp(text, win_caching_name(c))) {
			*ret = c;
			return 0;
		}
	return -EINVAL;
}

/* Parse a list separated by commas; one() parses each part. */
static int parse_list(const char *text, unsigned max, unsigned *ret_nr,
		      int (*one)(const char *text, void *to, unsigned idx), void *to)
{
	_cleanup_(freep) char *copy = strdup(text);
	char *rest = copy, *part;

	if (!copy)
		return -ENOMEM;
	for (*ret_nr = 0; (part = strsep(&rest, ",")); (*ret_nr)++)
		if (*ret_nr == max || one(part, to, *ret_nr) < 0)
			return -EINVAL;
	return 0;
}

static int opts_one_size(const char *text, void *to, unsigned idx)
{
	uint64_t *v = (uint64_t *)to + idx;

	return parse_size(text, v) < 0 || !*v || *v > GIB(1) ? -EINVAL : 0;
}

static int one_thread(const char *text, void *to, unsigned idx)
{
	uint64_t v;

	if (parse_number(text, 1, WIN_THREADS_MAX, &v) < 0)
		return -EINVAL;
	((unsigned *)to)[idx] = (unsigned)v;
	return 0;
}

static int parse_range(const char *text, uint64_t min, uint64_t max, uint64_t *ret)
{
	return parse_size(text, ret) < 0 || *ret < min || *ret > max ? -EINVAL : 0;
}

/* Parse an option that only some subcommands accept.  Return 0 or -EINVAL. */
static int parse_some(int opt, const char *text, struct win_set *set)
{
	switch (opt) {
	case SIZE:
		return parse_range(text, KIB(4), GIB(1), &set->size) < 0 || set->size % 4 ? -EINVAL
											  : 0;
	case RANDOM:
		return parse_number(text, 0, 1000000000, &set->random);
	case SEED:
		return parse_number(text, 1, UINT64_MAX, &set->seed);
	case SIZES:
		return parse_list(text, WIN_SIZES_MAX, &set->nr_sizes, opts_one_size, set->sizes);
	case 't':
		return parse_list(text, WIN_SIZES_MAX, &set->nr_threads, one_thread, set->threads);
	case MAX_SIZE:
		return parse_range(text, KIB(64), GIB(1), &set->max);
	case 'n':
		return parse_number(text, 1, 10000000, &set->count);
	case RUNTIME:
		return parse_seconds(text, &set->seconds);
	default:
		set->baseline = !strcmp(text, "copies");
		return set->baseline || !strcmp(text, "none") ? 0 : -EINVAL;
	}
}

/* Handle an option that only some subcommands accept.  Return 0 or an exit status. */
static int take_some(int opt, struct win_set *set, uint32_t *used)
{
	for (size_t i = 0; i < ARRAY_SIZE(some); i++) {
		if (some[i].opt != opt)
			continue;
		*used |= some[i].bit;
		if (parse_some(opt, optarg, set) < 0)
			return usage_error("%s takes %s", some[i].name, some[i].wants);
	}
	return 0;
}

int win_opts_parse(int argc, char *argv[], struct win_set *ret, uint32_t *ret_used)
{
	int opt, r = 0;

	*ret_used = 0;
	*ret = (struct win_set){
		.baseline = true,
		.size = KIB(320),
		.random = 1000,
		.seed = now_ns() | 1,
		.sizes = { KIB(4), KIB(64), MIB(1) },
		.nr_sizes = 3,
		.threads = { 1 },
		.nr_threads = 1,
		.max = MIB(16),
		.seconds = 0.5,
	};
	while (!r && (opt = getopt_long(argc, argv, ":d:t:n:", longs, NULL)) != -1) {
		switch (opt) {
		case 'd':
			ret->device = optarg;
			break;
		case BACKEND:
			ret->backend = optarg;
			break;
		case CACHING:
			if (win_parse_caching(optarg, &ret->caching) < 0)
				r = usage_error("--caching takes wc, cached or device");
			break;
		case KERNEL:
			ret->kernel = optarg;
			break;
		case JSON:
			ret->json = true;
			break;
		case ':':
		case '?':
			return option_error(argv, longs, opt);
		default:
			r = take_some(opt, ret, ret_used);
		}
	}
	return r;
}
