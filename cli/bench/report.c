/* SPDX-License-Identifier: MIT */
#include "cli/bench/report.h"

#include "tools/common/json.h"
#include "tools/common/shown.h"
#include "cli/bench/svg.h"
#include "tools/common/table.h"

static const char *plural(unsigned n)
{
	return n == 1 ? "" : "s";
}

static const char *state_of(const struct bench *b)
{
	return b->set->write ? "-" : b->cold ? "cold" : "warm";
}

static double iops(const struct bench_result *r)
{
	return r->ns ? (double)r->pieces * 1e9 / (double)r->ns : 0;
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
	for (uint32_t i = PST_WHY_NONE + 1; i <= PST_WHY_MAX; i++)
		if (row->ours.whys.nr[i])
			(void)printf("%s: %llu of %llu requests: %s\n", size_text(row->size).s,
				     (unsigned long long)row->ours.whys.nr[i],
				     (unsigned long long)row->ours.requests,
				     why_text(i, row->ours.whys.detail[i]).s);
}

static void add_result(struct table *t, const struct bench_result *r)
{
	table_add(t, "%s", rate_text(r->bytes, r->ns).s);
	table_add(t, "%.0f", iops(r));
	table_add(t, "%s", time_text(hist_quantile(&r->hist, 0.5)).s);
	table_add(t, "%s", time_text(hist_quantile(&r->hist, 0.99)).s);
	table_add(t, "%.2f", cpu_per_10gb(r));
}

static void print_pages(const struct bench *b)
{
	if (b->pages.bytes)
		(void)printf("pages    %s of %s pinned, which took %s and was done %s after the "
			     "first read began\n",
			     size_text(b->pages.bytes).s, size_text(b->file_size).s,
			     time_text(b->pages.ns).s, time_text(b->pages.wait).s);
	else if (b->pages.why)
		(void)printf("pages    none pinned for %s: %s\n", b->dev.name,
			     why_text(b->pages.why, b->pages.detail).s);
	else
		(void)printf("pages    none pinned, though %s could\n", b->dev.name);
}

static void print_setup(const struct bench *b)
{
	uint64_t most = 0;

	for (unsigned i = 0; i < b->nr_rows; i++)
		most = MAX(most, b->rows[i].ours.setup);
	(void)printf("set-up: at most %s before a row, which is not in its rate.\n",
		     time_text(most).s);
}

int bench_print_table(const struct bench *b)
{
	static const char *const heads[] = { "<size", "<state", "<path",       "GB/s",       "IOPS",
					     "p50",   "p99",    "CPU s/10 GB", "plain GB/s", "IOPS",
					     "p50",   "p99",    "CPU s/10 GB", "ratio" };
	const struct settings *set = b->set;
	_cleanup_(table_freep) struct table *t = table_new(heads, set->baseline ? 14 : 8);
	char path[1024];

	if (!t)
		return fail(ENOMEM, "out of memory");
	(void)printf("machine  %s, %u processors, %s\n", b->m.cpu, b->m.cpus, b->m.kernel);
	(void)printf("memory   %s\n", device_text(&b->dev).s);
	shown(path, sizeof(path), b->path);
	(void)printf("file     %s, %s on %s\n", path, size_text(b->file_size).s, b->fs);
	if (b->file)
		print_pages(b);
	(void)printf("requests %s of %u piece%s, %u queue%s of depth %u, path %s%s, store %s\n\n",
		     set->op, set->pieces, plural(set->pieces), set->queues, plural(set->queues),
		     set->depth, set->path_list, set->strict ? " strict" : "", store_name(set));
	for (unsigned i = 0; i < b->nr_rows; i++) {
		const struct row *row = &b->rows[i];

		table_add(t, "%s", size_text(row->size).s);
		table_add(t, "%s", state_of(b));
		table_add(t, "%s", paths_text(row->ours.paths).s);
		add_result(t, &row->ours);
		if (!set->baseline)
			continue;
		add_result(t, &row->plain);
		table_add(t, "%.2fx",
			  row->plain.ns && row->plain.bytes
				  ? gb_per_s(row->ours.bytes, row->ours.ns) /
					    gb_per_s(row->plain.bytes, row->plain.ns)
				  : 0);
	}
	table_print(t, stdout);
	for (unsigned i = 0; i < b->nr_rows; i++)
		print_whys(&b->rows[i]);
	print_setup(b);
	if (set->baseline)
		(void)printf("plain: %s%s, as many threads, one piece after the other in each.\n",
			     set->write ? "pwrite" : "pread",
			     b->dev.kind == PST_KIND_HOST ? ""
			     : set->write                 ? " and pst_mem_copy_out"
							  : " and pst_mem_copy_in");
	return 0;
}

static void add_json(struct json_object *to, const char *key, const struct bench_result *r,
		     bool ours)
{
	struct json_object *o = json_object_new_object();

	json_u64(o, "bytes", r->bytes);
	json_u64(o, "requests", r->requests);
	json_num(o, "seconds", (double)r->ns / 1e9);
	json_num(o, "gb_per_s", gb_per_s(r->bytes, r->ns));
	json_num(o, "iops", iops(r));
	json_num(o, "p50_us", (double)hist_quantile(&r->hist, 0.5) / 1e3);
	json_num(o, "p99_us", (double)hist_quantile(&r->hist, 0.99) / 1e3);
	json_num(o, "cpu_s_per_10gb", cpu_per_10gb(r));
	if (ours) {
		json_num(o, "setup_seconds", (double)r->setup / 1e9);
		json_paths(o, "paths", r->paths);
		json_whys(o, "why", &r->whys);
	}
	json_add(to, key, o);
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
	json_text(root, "state", state_of(b));
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
	for (unsigned i = 0; i < b->nr_rows; i++) {
		struct json_object *o = json_object_new_object();

		json_u64(o, "size", b->rows[i].size);
		add_json(o, "penstock", &b->rows[i].ours, true);
		if (b->set->baseline)
			add_json(o, "plain", &b->rows[i].plain, false);
		json_add(rows, NULL, o);
	}
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
			    { b->dev.kind == PST_KIND_HOST
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
		ours[i] = gb_per_s(sorted[i]->ours.bytes, sorted[i]->ours.ns);
		plain[i] = gb_per_s(sorted[i]->plain.bytes, sorted[i]->plain.ns);
	}
	(void)snprintf(title, sizeof(title), "%s, %s, %s memory", b->set->op,
		       b->set->write ? "synced at the end" : state_of(b), b->dev.name);
	(void)snprintf(line[0], sizeof(line[0]), "%.90s, %u processors, %.60s", b->m.cpu, b->m.cpus,
		       b->m.kernel);
	(void)snprintf(line[1], sizeof(line[1]),
		       "%.12s on %s, %u queue%s of depth %u, %u piece%s a request, path %.60s, "
		       "store %s",
		       size_text(b->file_size).s, b->fs, b->set->queues, plural(b->set->queues),
		       b->set->depth, b->set->pieces, plural(b->set->pieces), b->set->path_list,
		       store_name(b->set));
	return svg_write(b->set->plot, &chart);
}
