/* SPDX-License-Identifier: MIT */
/*
 * tiers [--evict] [--each] TRACE PERCENT...: play a trace to each policy and print its hit ratios;
 * with --each, print a line with 1 per hit and 0 per miss.  With --evict, files are evicted before
 * another one enters, as a store of blocks does (docs/KV.md), instead of during its entry.
 *
 * A line of the trace is a file's number, optionally with its size in bytes (default 1); or a JSON
 * object with the hash_ids of blocks, as in Mooncake's traces.  A cache holds PERCENT of the bytes
 * of all files in the trace.  "any" counts every hit; "prefix" counts the hits before the first
 * miss of a JSON line.
 */
#include <math.h>
#include <stdio.h>

#include "tier/index.h"
#include "tier/policy.h"

struct access {
	uint64_t id, size;
	bool first; /* first access of its line of the trace */
};

struct trace {
	struct access *at;
	size_t nr, room;
	uint64_t bytes; /* bytes of all files, each counted once */
};

static void tiers_die(const char *what)
{
	(void)fprintf(stderr, "tiers: %s\n", what);
	exit(1);
}

static void tiers_add(struct trace *t, uint64_t id, uint64_t size, bool first)
{
	if (t->nr == t->room) {
		t->room = t->room ? 2 * t->room : 65536;
		t->at = reallocarray(t->at, t->room, sizeof(*t->at));
		if (!t->at)
			tiers_die("out of memory");
	}
	t->at[t->nr++] = (struct access){ id, size, first };
}

static bool add_line(struct trace *t, const char *line)
{
	const char *ids = strstr(line, "\"hash_ids\":");
	bool first = true;
	char *end;

	if (!ids) {
		uint64_t id = strtoull(line, &end, 10), size = 1;

		if (end == line)
			return false;
		if (*end == ' ' || *end == '\t')
			size = strtoull(end, &end, 10);
		tiers_add(t, id, size, true);
		return *end == '\n' || !*end;
	}
	ids = strchr(ids, '[');
	while (ids && *ids != ']') {
		uint64_t id = strtoull(ids + 1, &end, 10);

		if (end == ids + 1)
			return *end == ']';
		tiers_add(t, id, 1, first);
		first = false;
		ids = end + strspn(end, " ");
		if (*ids != ',' && *ids != ']')
			return false;
	}
	return ids;
}

static int tiers_by_id(const void *a, const void *b)
{
	const struct access *x = a, *y = b;

	return (x->id > y->id) - (x->id < y->id);
}

/* Return the bytes of all files, each counted once. */
static uint64_t footprint(const struct trace *t)
{
	struct access *copy = malloc(t->nr * sizeof(*copy));
	uint64_t bytes = 0;

	if (!copy)
		tiers_die("out of memory");
	memcpy(copy, t->at, t->nr * sizeof(*copy));
	qsort(copy, t->nr, sizeof(*copy), tiers_by_id);
	for (size_t i = 0; i < t->nr; i++)
		if (i == 0 || copy[i].id != copy[i - 1].id)
			bytes += copy[i].size;
	free(copy);
	return bytes;
}

static void tiers_load(struct trace *t, const char *path)
{
	FILE *f = !strcmp(path, "-") ? stdin : fopen(path, "re");
	size_t size = 0;
	char *line = NULL;

	if (!f)
		tiers_die("cannot open the trace");
	while (getline(&line, &size, f) > 0)
		if (!add_line(t, line))
			tiers_die("a line of the trace is no access");
	free(line);
	if (f != stdin)
		(void)fclose(f);
	if (!t->nr)
		tiers_die("the trace is empty");
	t->bytes = footprint(t);
}

/* Evict until the file fits, unless the cache has it. */
static void tiers_make_room(struct tier_policy *p, const struct access *a, uint64_t capacity)
{
	struct entry gone;
	uint64_t bytes;

	if (p->ops->rate(p, a->id) != TIER_COLD || a->size > capacity)
		return;
	do {
		bytes = a->size;
		for (unsigned i = 0; i < p->ops->cached; i++)
			bytes += p->index->q[i].bytes;
	} while (bytes > capacity && p->ops->evict(p, &gone));
}

static void play(const struct trace *t, const struct tier_policy_ops *ops, double per_cent,
		 bool each, bool evict)
{
	uint64_t capacity = (uint64_t)llround((double)t->bytes * per_cent / 100);
	struct tier_policy *p = ops->new (capacity, 0);
	uint64_t any = 0, prefix = 0, began;
	bool run = false;

	if (!p)
		tiers_die("out of memory");
	if (each)
		(void)printf("%s %llu ", ops->name, (unsigned long long)capacity);
	began = now_ns();
	for (size_t i = 0; i < t->nr; i++) {
		int hit;

		if (evict && ops->cached)
			tiers_make_room(p, &t->at[i], capacity);
		hit = ops->access(p, t->at[i].id, t->at[i].size, i);
		if (hit < 0)
			tiers_die("out of memory");
		run = (run || t->at[i].first) && hit;
		any += (uint64_t)hit;
		prefix += run;
		if (each)
			(void)putchar(hit ? '1' : '0');
	}
	if (each)
		(void)putchar('\n');
	else
		(void)printf("%-8s %5g %%  any %.4f  prefix %.4f  %.0f ns an access\n", ops->name,
			     per_cent, (double)any / (double)t->nr, (double)prefix / (double)t->nr,
			     (double)(now_ns() - began) / (double)t->nr);
	(void)ops->free(p);
}

int main(int argc, char *argv[])
{
	bool evict = argc > 1 && !strcmp(argv[1], "--evict");
	bool each = argc > 1 + evict && !strcmp(argv[1 + evict], "--each");
	struct trace t = { 0 };

	argv += each + evict;
	argc -= each + evict;
	if (argc < 3) {
		(void)fputs("Usage: tiers [--evict] [--each] TRACE PERCENT...\n", stderr);
		return 2;
	}
	tiers_load(&t, argv[1]);
	if (!each)
		(void)printf("%zu accesses to files of %llu bytes together\n", t.nr,
			     (unsigned long long)t.bytes);
	for (int i = 2; i < argc; i++)
		for (size_t k = 0; tier_policies[k]; k++)
			play(&t, tier_policies[k], atof(argv[i]), each, evict);
	free(t.at);
	return 0;
}
