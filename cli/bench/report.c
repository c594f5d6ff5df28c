/* SPDX-License-Identifier: MIT */
#include "cli/bench/report.h"

#include <math.h>

#include "tools/common/json.h"
#include "tools/common/shown.h"
#include "tools/common/svg.h"
#include "tools/common/table.h"

static const char *report_plural(unsigned n)
{
	return n == 1 ? "" : "s";
}

static const char *report_state_of(const struct bench *b)
{
	return b->set->write ? "-" : b->cold ? "cold" : "warm";
}

static struct spread rate_of(const struct row *row, const struct side_sum *side)
{
	return turns_rate(side->turns, row->turns);
}

/* Return pieces per second; all pieces have the row's size. */
static double iops(const struct row *row, const struct side_sum *side)
{
	return rate_of(row, side).median * 1e9 / (double)row->size;
}

/* Return ns, or NaN if there are too few requests. */
static double percentile(const struct bench_result *r, unsigned percent)
{
	if (!percentile_known(r->hist.nr, percent))
		return NAN;
	return (double)hist_quantile(&r->hist, percent / 100.0);
}

static double cpu_per_10gb(const struct bench_result *r)
{
	return r->bytes ? r->cpu * 1e10 / (double)r->bytes : 0;
}

static const char *store_name(const struct settings *set)
{
	if (set->store == PST_BACKEND_URING)
		return "uring";
	if (set->store == PST_BACKEND_THREADS)
		return "threads";
	return backend_check(PST_BACKEND_URING).err == 0 ? "uring" : "threads";
}

static void print_whys(const struct row *row)
{
	const struct bench_result *r = &row->ours.all;

	for (uint32_t i = PST_WHY_NONE + 1; i <= PST_WHY_MAX; i++)
		if (r->whys.nr[i])
			shown_printf(2, "%s: %llu of %llu requests: %s", size_text(row->size).s,
				     (unsigned long long)r->whys.nr[i],
				     (unsigned long long)r->requests,
				     why_text(i, r->whys.detail[i]).s);
}

static unsigned most_turns(const struct bench *b)
{
	unsigned most = 0;

	for (unsigned i = 0; i < b->nr_rows; i++)
		most = MAX(most, b->rows[i].turns);
	return most;
}

static void add_spread(struct table *t, const struct spread *s, bool known)
{
	if (known)
		table_add(t, "%s-%s", gb_text(s->lowest).s, gb_text(s->highest).s);
	else
		table_add(t, "-");
}

static void add_percentile(struct table *t, const struct bench_result *r, unsigned percent)
{
	double ns = percentile(r, percent);

	if (isnan(ns))
		table_add(t, "-");
	else
		table_add(t, "%s", time_text((uint64_t)ns).s);
}

/* Add one line of a row: Penstock's side with its paths, or the plain side. */
static void add_side(struct table *t, const char *label, const struct row *row,
		     const struct side_sum *side, bool spreads, const char *paths)
{
	struct spread rate = rate_of(row, side);

	table_add(t, "%s", label);
	table_add(t, "%s", gb_text(rate.median).s);
	if (spreads)
		add_spread(t, &rate, row->turns > 1);
	table_add(t, "%.0f", iops(row, side));
	add_percentile(t, &side->all, 50);
	add_percentile(t, &side->all, 99);
	table_add(t, "%.2f", cpu_per_10gb(&side->all));
	table_add(t, "%s", paths);
}

static struct ratio ratio_of(const struct bench *b, const struct row *row)
{
	if (device_is_emulated(&b->dev))
		return (struct ratio){ .lack = LACK_DEVICE };
	return turns_ratio(row->ours.turns, row->plain.turns, row->turns);
}

static void add_ratio(struct table *t, const struct ratio *r, unsigned nr_cols, bool spreads)
{
	table_add(t, "  ratio");
	table_add(t, "%.2fx", r->v.median);
	if (spreads)
		add_spread(t, &r->v, true);
	for (unsigned i = spreads ? 3 : 2; i < nr_cols; i++)
		table_add(t, "%s", "");
}

/* Make the table, with the column "of turns" if a row has several turns. */
static struct table *make_table(bool spreads, unsigned *ret_nr)
{
	static const char *const all[] = { "<size", "GB/s", "of turns",        "IOPS",
					   "p50",   "p99",  "CPU s per 10 GB", "<path" };
	const char *heads[ARRAY_SIZE(all)];
	unsigned nr = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(all); i++)
		if (spreads || strcmp(all[i], "of turns") != 0)
			heads[nr++] = all[i];
	*ret_nr = nr;
	return table_new(heads, nr);
}

#define INDENT 9u /* indent of the header's texts, in columns */

static void print_pages(const struct bench *b)
{
	if (b->pages.bytes)
		shown_printf(INDENT,
			     "pages    %s of %s pinned, which took %s and was done %s after the "
			     "first read began",
			     size_text(b->pages.bytes).s, size_text(b->file_size).s,
			     time_text(b->pages.ns).s, time_text(b->pages.wait).s);
	else if (b->pages.why)
		shown_printf(INDENT, "pages    none pinned for %s: %s", b->dev.name,
			     why_text(b->pages.why, b->pages.detail).s);
	else
		shown_printf(INDENT, "pages    none pinned, though %s could", b->dev.name);
}

static void print_setup(const struct bench *b)
{
	uint64_t most = 0;

	for (unsigned i = 0; i < b->nr_rows; i++)
		most = MAX(most, b->rows[i].ours.all.setup);
	shown_printf(2, "set-up: at most %s before a row, which is not in its rate.",
		     time_text(most).s);
}

static void print_head(const struct bench *b)
{
	const struct settings *set = b->set;

	shown_printf(INDENT, "machine  %s, %u processors, %s", b->m.cpu, b->m.cpus, b->m.kernel);
	shown_printf(INDENT, "memory   %s", device_text(&b->dev).s);
	device_print_emulated(&b->dev, INDENT);
	shown_printf(INDENT, "file     %s, %s on %s", b->path, size_text(b->file_size).s, b->fs);
	if (b->file)
		print_pages(b);
	shown_printf(INDENT,
		     "requests %s of %u piece%s, %u queue%s of depth %u, %s%spath %s%s, store %s",
		     set->op, set->pieces, report_plural(set->pieces), set->queues,
		     report_plural(set->queues), set->depth, set->write ? "" : report_state_of(b),
		     set->write ? "" : ", ", set->path_list, set->strict ? " strict" : "",
		     store_name(set));
	(void)putchar('\n');
}

/* Print why rows have no ratio: once if all rows have the same reason. */
static void print_lacks(const struct bench *b)
{
	for (unsigned i = 0; i < b->nr_rows; i++) {
		struct ratio r = ratio_of(b, &b->rows[i]);

		if (r.lack == LACK_DEVICE) {
			shown_printf(2, "ratio: none, %s; -m host has one.", lack_sentence(&r).s);
			return;
		}
		if (r.lack)
			shown_printf(2, "ratio: none for %s: %s.", size_text(b->rows[i].size).s,
				     lack_sentence(&r).s);
	}
}

static void print_notes(const struct bench *b)
{
	bool baseline = b->set->baseline, alike = true;
	unsigned most = most_turns(b);

	for (unsigned i = 0; i < b->nr_rows; i++)
		print_whys(&b->rows[i]);
	if (baseline)
		print_lacks(b);
	print_setup(b);
	for (unsigned i = 0; i < b->nr_rows; i++)
		alike &= b->rows[i].turns == most;
	if (most > 1)
		shown_printf(2,
			     "turns: %s%u%s.  GB/s%s are medians; beside are the lowest and "
			     "highest.",
			     alike ? "" : "at most ", most,
			     baseline ? " of each, in alternation" : "",
			     baseline ? ", IOPS and ratio" : " and IOPS");
	if (baseline)
		shown_printf(2, "plain: %s%s, as many threads, one piece after the other in each.",
			     b->set->write ? "pwrite" : "pread",
			     b->dev.kind == PST_KIND_HOST   ? ""
			     : b->dev.kind == PST_KIND_SOFT ? " of host memory"
			     : b->set->write                ? " and pst_mem_copy_out"
							    : " and pst_mem_copy_in");
}

int bench_print_table(const struct bench *b)
{
	bool spreads = most_turns(b) > 1;
	unsigned nr_cols = 0;
	_cleanup_(table_freep) struct table *t = make_table(spreads, &nr_cols);

	if (!t)
		return fail(ENOMEM, "out of memory");
	print_head(b);
	for (unsigned i = 0; i < b->nr_rows; i++) {
		const struct row *row = &b->rows[i];
		struct ratio ratio;

		add_side(t, size_text(row->size).s, row, &row->ours, spreads,
			 paths_text(row->ours.all.paths).s);
		if (!b->set->baseline)
			continue;
		add_side(t, "  plain", row, &row->plain, spreads, "");
		ratio = ratio_of(b, row);
		if (!ratio.lack)
			add_ratio(t, &ratio, nr_cols, spreads);
	}
	table_print(t, stdout, shown_width(stdout));
	print_notes(b);
	return 0;
}

static void json_turns(struct json_object *to, const struct row *row, const struct side_sum *side)
{
	struct spread rate = rate_of(row, side);
	struct json_object *a = json_object_new_array();
	bool several = row->turns > 1;

	json_num(to, "gb_per_s", rate.median);
	json_num(to, "gb_per_s_lowest", several ? rate.lowest : NAN);
	json_num(to, "gb_per_s_highest", several ? rate.highest : NAN);
	for (unsigned i = 0; i < row->turns; i++)
		json_num(a, NULL, gb_per_s(side->turns[i].bytes, side->turns[i].ns));
	json_add(to, "gb_per_s_turns", a);
	json_num(to, "iops", iops(row, side));
}

static void json_side(struct json_object *to, const char *key, const struct row *row,
		      const struct side_sum *side, bool ours)
{
	struct json_object *o = json_object_new_object();
	const struct bench_result *r = &side->all;

	json_u64(o, "bytes", r->bytes);
	json_u64(o, "requests", r->requests);
	json_num(o, "seconds", (double)r->ns / 1e9);
	json_turns(o, row, side);
	json_num(o, "p50_us", percentile(r, 50) / 1e3);
	json_num(o, "p99_us", percentile(r, 99) / 1e3);
	json_num(o, "cpu_s_per_10gb", cpu_per_10gb(r));
	if (ours) {
		json_num(o, "setup_seconds", (double)r->setup / 1e9);
		json_paths(o, "paths", r->paths);
		json_whys(o, "why", &r->whys);
	}
	json_add(to, key, o);
}

static void json_ratio(struct json_object *to, const struct bench *b, const struct row *row)
{
	struct ratio r = ratio_of(b, row);

	json_num(to, "ratio", r.lack ? NAN : r.v.median);
	json_num(to, "ratio_lowest", r.lack ? NAN : r.v.lowest);
	json_num(to, "ratio_highest", r.lack ? NAN : r.v.highest);
	if (r.lack)
		json_text(to, "ratio_why", lack_sentence(&r).s);
	else
		json_add(to, "ratio_why", NULL);
}

static struct json_object *json_row(const struct bench *b, const struct row *row)
{
	struct json_object *o = json_object_new_object();

	json_u64(o, "size", row->size);
	json_u64(o, "turns", row->turns);
	json_side(o, "penstock", row, &row->ours, true);
	if (b->set->baseline) {
		json_side(o, "plain", row, &row->plain, false);
		json_ratio(o, b, row);
	}
	return o;
}

void bench_print_json(const struct bench *b)
{
	_cleanup_(json_putp) struct json_object *root = json_object_new_object();
	struct json_object *rows = json_object_new_array();

	json_machine(root, &b->m);
	json_text(root, "device", b->dev.name);
	json_text(root, "model", b->dev.model);
	json_text(root, "file", b->path);
	json_u64(root, "file_bytes", b->file_size);
	json_text(root, "fs", b->fs);
	json_text(root, "op", b->set->op);
	json_text(root, "state", report_state_of(b));
	json_u64(root, "pieces", b->set->pieces);
	json_u64(root, "queues", b->set->queues);
	json_u64(root, "depth", b->set->depth);
	json_text(root, "path", b->set->path_list);
	json_flag(root, "strict", b->set->strict);
	json_text(root, "store", store_name(b->set));
	if (b->file) {
		json_u64(root, "pages_bytes", b->pages.bytes);
		json_text(root, "pages_why", pst_why_name(b->pages.why));
		json_num(root, "pages_seconds", (double)b->pages.ns / 1e9);
		json_num(root, "pages_wait_seconds", (double)b->pages.wait / 1e9);
	}
	for (unsigned i = 0; i < b->nr_rows; i++)
		json_add(rows, NULL, json_row(b, &b->rows[i]));
	json_add(root, "rows", rows);
	json_print(root);
}

static int by_size(const void *a, const void *b)
{
	const struct row *const *x = a, *const *y = b;

	return ((*x)->size > (*y)->size) - ((*x)->size < (*y)->size);
}

int bench_plot(const struct bench *b)
{
	const struct row *sorted[SIZES_MAX];
	double ours[SIZES_MAX], plain[SIZES_MAX];
	uint64_t x[SIZES_MAX];
	char title[128], line[2][256];
	struct svg_chart chart = {
		.title = title,
		.subtitle = { line[0], line[1] },
		.y_name = "GB/s",
		.x = x,
		.nr_x = b->nr_rows,
		.series = { { "penstock", ours },
			    { b->dev.kind == PST_KIND_HOST || b->dev.kind == PST_KIND_SOFT
				      ? (b->set->write ? "plain pwrite" : "plain pread")
				      : (b->set->write ? "pst_mem_copy_out and pwrite"
						       : "pread and pst_mem_copy_in"),
			      plain } },
		.nr_series = b->set->baseline ? 2 : 1,
	};

	for (unsigned i = 0; i < b->nr_rows; i++)
		sorted[i] = &b->rows[i];
	qsort(sorted, b->nr_rows, sizeof(sorted[0]), by_size);
	for (unsigned i = 0; i < b->nr_rows; i++) {
		x[i] = sorted[i]->size;
		ours[i] = rate_of(sorted[i], &sorted[i]->ours).median;
		if (b->set->baseline)
			plain[i] = rate_of(sorted[i], &sorted[i]->plain).median;
	}
	(void)snprintf(title, sizeof(title), "%s, %s, %s memory", b->set->op,
		       b->set->write ? "synced at the end" : report_state_of(b), b->dev.name);
	(void)snprintf(line[0], sizeof(line[0]), "%.90s, %u processors, %.60s", b->m.cpu, b->m.cpus,
		       b->m.kernel);
	(void)snprintf(line[1], sizeof(line[1]),
		       "%.12s on %s, %u queue%s of depth %u, %u piece%s a request, path %.60s, "
		       "store %s",
		       size_text(b->file_size).s, b->fs, b->set->queues,
		       report_plural(b->set->queues), b->set->depth, b->set->pieces,
		       report_plural(b->set->pieces), b->set->path_list, store_name(b->set));
	return svg_write(b->set->plot, &chart);
}
