/* SPDX-License-Identifier: MIT */
/* Print the table cell by cell, 100 columns wide; or everything as JSON. */
#include "tools/common/json.h"
#include "cufile.h"

#define WIDTH 100

/* Rows of the table for one cell. A row with two ways shows the better one. */
static const struct row {
	const char *key;
	enum way v[2];
} rows[] = {
	{ "cufile", { CUFILE_DIRECT, CUFILE_BUFFERED } },
	{ "cufile_batch", { BATCH_DIRECT, BATCH_BUFFERED } },
	{ "penstock", { OURS_ONE, OURS_ONE } },
	{ "penstock_deep", { OURS_DEEP, OURS_DEEP } },
	{ "plain", { PLAIN, PLAIN } },
};

enum verdict { SLOWER, EVEN, FASTER, VERDICTS };

static struct {
	struct json_object *root, *cells;
	unsigned verdicts[2][VERDICTS]; /* 0: one block in flight; 1: many blocks */
	bool bad;
	struct whys whys;
} report;

/* ------------------------------------------------------------------- words */

/* Print lines of at most WIDTH columns. */
static void print_wrapped(unsigned indent, const char *text)
{
	size_t room = WIDTH - indent;

	while (*text) {
		size_t n = strlen(text);

		if (n > room) {
			for (n = room; n && text[n] != ' '; n--)
				;
			n = n ? n : room;
		}
		(void)printf("%*s%.*s\n", (int)indent, "", (int)n, text);
		text += n;
		text += strspn(text, " ");
	}
}

static const char *status_name(enum status s)
{
	static const char *const names[] = {
		"done", "refused", "FAILED", "WRONG", "HANGS", "DIED"
	};

	return names[s];
}

static void row_name(const struct row *r, enum way w, uint64_t block, char *buf, size_t len)
{
	const char *io = w == CUFILE_DIRECT || w == BATCH_DIRECT ? "O_DIRECT" : "buffered";

	if (way_is_batch(w))
		(void)snprintf(buf, len, "batch %u, %s", way_slots(w, block), io);
	else if (way_is_cufile(w))
		(void)snprintf(buf, len, "cuFile, %s", io);
	else if (way_is_ours(w))
		(void)snprintf(buf, len, "penstock, %u", way_slots(w, block));
	else
		(void)snprintf(buf, len, "%s", r->key);
}

/* Return the better of a row's two ways: the one with the higher median, or the one with a
 * result. */
static enum way better(const struct cell *c, const struct row *r)
{
	return result_median(&c->v[r->v[1]]) > result_median(&c->v[r->v[0]]) ? r->v[1] : r->v[0];
}

/* ---------------------------------------------------------------- verdicts */

/* Return the result that a row is compared with: cuFile's with one block in flight, or for deep
 * rows the better of cuFile's results. */
static const struct result *yardstick(const struct cell *c, const struct row *r)
{
	const struct result *one = &c->v[better(c, &rows[0])], *many = &c->v[better(c, &rows[1])];

	if (r->v[0] == OURS_DEEP && result_median(many) > result_median(one))
		return many;
	return one;
}

/* Return FASTER or SLOWER only if the rates of all turns of one exceed those of the other. */
static enum verdict verdict(const struct result *a, const struct result *b)
{
	if (a->spread.lowest > b->spread.highest)
		return FASTER;
	return a->spread.highest < b->spread.lowest ? SLOWER : EVEN;
}

/* ------------------------------------------------------------------- table */

static void print_facts(const struct answer *a)
{
	const struct facts *f = &a->facts;

	(void)printf("GPU      %s, driver %s, CUDA %d.%d\n", *f->gpu ? f->gpu : "unknown",
		     *f->driver ? f->driver : "unknown", f->cuda / 1000, f->cuda % 1000 / 10);
	if (f->cufile)
		(void)printf("cuFile   %d.%d, %s\n", f->cufile / 1000, f->cufile % 1000 / 10,
			     f->file);
	if (a->status == DONE) {
		(void)printf("mode     %s\n", f->mode);
	} else {
		(void)printf("cuFile   %s\n", status_name(a->status));
		print_wrapped(9, a->text);
	}
}

void report_begin(const char *path, const struct answer *a)
{
	struct machine m;

	machine_facts(&m);
	report.root = json_object_new_object();
	report.cells = json_object_new_array();
	json_machine(report.root, &m);
	json_text(report.root, "gpu", a->facts.gpu);
	json_text(report.root, "driver", a->facts.driver);
	json_int(report.root, "cuda", a->facts.cuda);
	json_int(report.root, "cufile", a->facts.cufile);
	json_text(report.root, "libcufile", a->facts.file);
	json_text(report.root, "cufile_mode", a->facts.mode);
	json_text(report.root, "cufile_status", status_name(a->status));
	json_text(report.root, "cufile_text", a->text);
	json_text(report.root, "fs", a->facts.fs);
	json_u64(report.root, "file_bytes", set.size);
	json_int(report.root, "turns", set.turns);
	json_num(report.root, "turn_seconds", set.seconds / set.turns);
	if (set.json)
		return;
	(void)printf("machine  %s, %u processors, %s\n", m.cpu, m.cpus, m.kernel);
	print_facts(a);
	(void)printf("penstock %s\n", pst_version());
	(void)printf("file     %s of %s, %s\n", size_text(set.size).s, path, a->facts.fs);
	(void)printf("turns    %u of %.3f s of each way, the ways one after the other\n", set.turns,
		     set.seconds / set.turns);
}

/* Print paths after the row's text if they fit, else below the row. */
static void report_print_paths(uint32_t paths)
{
	struct text t = paths_text(paths);
	int room = WIDTH - 81;

	(void)printf("%s%s", strlen(t.s) > (size_t)room ? "\n               " : " ", t.s);
}

/* Print a text unless it equals the row's last one. */
static void print_once(const struct row *row, const char *text)
{
	static char last[ARRAY_SIZE(rows)][400];
	char *l = last[row - rows];

	if (!strcmp(l, text))
		return;
	(void)snprintf(l, sizeof(last[0]), "%s", text);
	print_wrapped(15, text);
}

static void print_result(const struct cell *c, const struct row *row, enum way w)
{
	const struct result *r = &c->v[w], *y = yardstick(c, row);
	double median = result_median(r), of = result_median(y);
	char name[32];

	row_name(row, w, c->block, name, sizeof(name));
	(void)printf("%-7s %3u  %-18s ", size_text(c->block).s, c->threads, name);
	if (r->status != DONE || !r->nr) {
		(void)printf("%s\n", status_name(r->status));
		print_once(row, r->text);
		return;
	}
	(void)printf("%7.3f %5.0f%% %9.1f %9.1f", median,
		     100 * (r->spread.highest - r->spread.lowest) / median,
		     (double)hist_quantile(&r->hist, 0.5) / 1e3,
		     (double)hist_quantile(&r->hist, 0.99) / 1e3);
	if (!way_is_cufile(w) && of > 0)
		(void)printf(" %6.2f %-*s", median / of, way_is_ours(w) ? 6 : 0,
			     (const char *const[]){ "slower", "even", "faster" }[verdict(r, y)]);
	else if (way_is_ours(w))
		(void)printf(" %6s %-6s", "-", "");
	if (way_is_ours(w))
		report_print_paths(r->paths);
	(void)putchar('\n');
}

static void report_print_head(const struct cell *c)
{
	static int last = -1;

	if (last == c->cold)
		return;
	last = c->cold;
	(void)printf("\n%s: %s\n%-7s %3s  %-18s %7s %6s %9s %9s %6s %-6s %s\n",
		     c->cold ? "cold" : "warm",
		     c->cold ? "nothing of the file is in the page cache before a turn"
			     : "the page cache holds the file",
		     "block", "thr", "way", "GB/s", "spread", "p50 us", "p99 us", "ratio", "",
		     "path");
}

/* -------------------------------------------------------------------- JSON */

static void add_json(struct json_object *to, const struct cell *c, const struct row *row,
		     enum way w)
{
	const struct result *r = &c->v[w], *y = yardstick(c, row);
	struct json_object *o = json_object_new_object();
	char name[32];

	row_name(row, w, c->block, name, sizeof(name));
	json_text(o, "way", name);
	json_text(o, "status", status_name(r->status));
	json_text(o, "text", r->text);
	if (r->status == DONE && r->nr) {
		json_u64(o, "bytes", r->bytes);
		json_num(o, "gb_per_s", result_median(r));
		json_num(o, "least", r->spread.lowest);
		json_num(o, "most", r->spread.highest);
		json_num(o, "p50_us", (double)hist_quantile(&r->hist, 0.5) / 1e3);
		json_num(o, "p99_us", (double)hist_quantile(&r->hist, 0.99) / 1e3);
		if (!way_is_cufile(w) && result_median(y) > 0)
			json_num(o, "ratio", result_median(r) / result_median(y));
		if (way_is_ours(w)) {
			json_paths(o, "paths", r->paths);
			json_whys(o, "why", &r->whys);
		}
	}
	json_add(to, row->key, o);
}

/* ------------------------------------------------------------------- cells */

static void report_count(const struct cell *c, const struct row *row, enum way w)
{
	const struct result *r = &c->v[w], *y = yardstick(c, row);

	report.bad |= r->status == WRONG || (r->status != DONE && !way_is_cufile(w));
	if (!way_is_ours(w))
		return;
	whys_merge(&report.whys, &r->whys);
	if (result_median(r) > 0 && result_median(y) > 0)
		report.verdicts[w == OURS_DEEP][verdict(r, y)]++;
}

void report_cell(const struct cell *c)
{
	struct json_object *o = json_object_new_object();

	json_u64(o, "block", c->block);
	json_u64(o, "threads", c->threads);
	json_text(o, "state", c->cold ? "cold" : "warm");
	json_text(o, "text", c->text);
	if (!set.json)
		report_print_head(c);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		enum way w = better(c, &rows[i]);

		/* Show wrong bytes, even if the row's other way is better. */
		if (c->v[rows[i].v[0]].status == WRONG || c->v[rows[i].v[1]].status == WRONG)
			w = rows[i].v[c->v[rows[i].v[1]].status == WRONG];
		if (!c->v[w].asked || (!c->v[w].nr && c->v[w].status == DONE))
			continue;
		if (!set.json)
			print_result(c, &rows[i], w);
		add_json(o, c, &rows[i], w);
		report_count(c, &rows[i], w);
	}
	if (*c->text && !set.json) {
		(void)printf("%-7s %3u  not measured\n", size_text(c->block).s, c->threads);
		print_wrapped(16, c->text);
	}
	json_add(report.cells, NULL, o);
	(void)fflush(stdout);
}

static void print_end(void)
{
	static const char *const names[] = { "one at a time", "many at a time" };

	(void)printf(
		"\nGB/s is the median of the turns, spread the distance of the best from the "
		"worst.  Faster and\nslower: all turns of one beyond all of the other.  ratio: to "
		"cuFileRead in the same cell; for\nmany at a time to the better of it and its "
		"batches.  plain: pread into pinned memory, a copy.\n");
	for (unsigned i = 0; i < 2; i++)
		if (report.verdicts[i][0] + report.verdicts[i][1] + report.verdicts[i][2])
			(void)printf("penstock, %s, beside cuFile: faster in %u cells, even in %u, "
				     "slower in %u\n",
				     names[i], report.verdicts[i][FASTER], report.verdicts[i][EVEN],
				     report.verdicts[i][SLOWER]);
	for (uint32_t i = PST_WHY_NONE + 1; i <= PST_WHY_MAX; i++) {
		char line[400];

		if (!report.whys.nr[i])
			continue;
		(void)snprintf(line, sizeof(line), "%llu requests of penstock: %s",
			       (unsigned long long)report.whys.nr[i],
			       why_text(i, report.whys.detail[i]).s);
		print_wrapped(0, line);
	}
}

int report_end(void)
{
	if (!report.root)
		return 1;
	json_add(report.root, "cells", report.cells);
	if (set.json)
		json_print(report.root);
	else
		print_end();
	(void)json_object_put(report.root);
	return report.bad;
}
