/* SPDX-License-Identifier: MIT */
/* Measure the latency of one copy, by size: medians of buckets of copies. */
#include "tools/common/json.h"
#include "tools/common/shown.h"
#include "tools/common/table.h"
#include "cli/window/window.h"

#define BUCKETS 100u
#define BUCKET_OPS 100u
#define ROWS_MAX 64u

struct row {
	uint64_t size;
	bool load;
	struct bucket_sum window, copies;
};

struct lat {
	const struct win_set *set;
	struct win win;
	struct machine m;
	char *host;
	struct row rows[ROWS_MAX];
	unsigned nr_rows;
};

static int lat_measure(struct lat *l, const struct row *row, bool baseline, struct bucket_sum *ret)
{
	_cleanup_(pst_memp) struct pst_mem *mem = NULL;
	const struct bucket_plan plan = { BUCKETS, BUCKET_OPS, l->set->seconds };
	struct win_copy c = {
		.win = &l->win, .load = row->load, .host = l->host, .len = row->size
	};
	int r;

	if (baseline) {
		r = pst_mem_wrap(l->win.mem_info.addr + l->win.off, row->size, NULL, &mem);
		if (r < 0)
			return fail_pst(r, l->win.dev.name);
		c.mem = mem;
	}
	r = win_copy_begin(&c, row->size);
	if (r == 0)
		r = buckets_run(&plan, win_copies, &c, ret);
	if (r == 0 && stop_signal)
		r = fail(EINTR, "interrupted");
	return r < 0 ? r : win_copy_check(&c, row->size);
}

static int lat_run_row(struct lat *l, uint64_t size, bool load)
{
	struct row *row = &l->rows[l->nr_rows++];
	int r;

	*row = (struct row){ .size = size, .load = load };
	r = lat_measure(l, row, false, &row->window);
	if (r == 0 && l->set->baseline)
		r = lat_measure(l, row, true, &row->copies);
	return r;
}

static void lat_add_sum(struct table *t, const struct bucket_sum *s)
{
	table_add(t, "%s", win_us_text(s->median).s);
	table_add(t, "%s", win_us_text(s->min).s);
	table_add(t, "%s", win_us_text(s->p99).s);
	table_add(t, "%u x %u", s->nr, s->ops);
}

static void lat_add_row(struct table *t, const struct row *row, bool baseline, bool ratios)
{
	table_add(t, "%s", row->load ? "load" : "store");
	table_add(t, "%s", size_text(row->size).s);
	lat_add_sum(t, &row->window);
	if (ratios)
		table_add(t, "%.2fx", row->copies.median / row->window.median);
	if (!baseline)
		return;
	table_add(t, "  device");
	table_add(t, "%s", "");
	lat_add_sum(t, &row->copies);
	if (ratios)
		table_add(t, "%s", "");
}

static int lat_print_table(const struct lat *l)
{
	static const char *const heads[] = { "<copy", "<size",  "median us", "min",
					     "p99",   "copies", "ratio" };
	bool ratios = l->set->baseline && !device_is_emulated(&l->win.dev);
	_cleanup_(table_freep) struct table *t = table_new(heads, ratios ? 7 : 6);

	if (!t)
		return fail(ENOMEM, "out of memory");
	for (unsigned i = 0; i < l->nr_rows; i++)
		lat_add_row(t, &l->rows[i], l->set->baseline, ratios);
	win_print_head(&l->win, &l->m);
	(void)puts("");
	table_print(t, stdout, shown_width(stdout));
	shown_printf(2,
		     "copies: buckets x copies in each; times are averages of buckets, p99 needs "
		     "100 of them");
	shown_printf(2, "stores: as the CPU sees them, fenced; the device may see them a little "
			"later");
	if (l->set->baseline)
		shown_printf(2, "device: " WIN_BASELINE);
	return 0;
}

static void lat_print_json(const struct lat *l)
{
	_cleanup_(json_putp) struct json_object *root = json_object_new_object();
	struct json_object *rows = json_object_new_array();

	win_json_head(root, &l->win, &l->m);
	if (l->set->baseline)
		json_text(root, "copies", WIN_BASELINE);
	for (unsigned i = 0; i < l->nr_rows; i++) {
		struct json_object *o = json_object_new_object();

		json_text(o, "copy", l->rows[i].load ? "load" : "store");
		json_u64(o, "size", l->rows[i].size);
		win_json_sum(o, "window", &l->rows[i].window);
		if (l->set->baseline)
			win_json_sum(o, "copies", &l->rows[i].copies);
		json_add(rows, NULL, o);
	}
	json_add(root, "rows", rows);
	json_print(root);
}

static void lat_done(struct lat *l)
{
	win_close(&l->win);
	free(l->host);
}

int win_copylat(const struct win_set *set)
{
	_cleanup_(lat_done) struct lat l = { .set = set };
	int r;

	machine_facts(&l.m);
	l.host = malloc(set->max);
	if (!l.host)
		return fail(ENOMEM, "out of memory");
	r = win_open(&l.win, set, set->max, 1);
	for (unsigned load = 0; load < 2; load++)
		for (uint64_t size = 1; size <= set->max && r == 0; size *= 2)
			r = lat_run_row(&l, size, load);
	if (r < 0)
		return r;
	if (!set->json)
		return lat_print_table(&l);
	lat_print_json(&l);
	return 0;
}
