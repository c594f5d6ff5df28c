/* SPDX-License-Identifier: MIT */
/* Measure the steps from an address of device memory to a window and back. */
#include "tools/common/json.h"
#include "tools/common/shown.h"
#include "tools/common/table.h"
#include "cli/window/window.h"
#include "cli/window/api.h"

#define COUNT 100u /* default number of turns */
#define WARM_UP 10u
#define ROWS_MAX 32u

static const char *const step_names[API_STEPS] = { "wrap", "open", "info", "close", "free" };

struct row {
	uint64_t size;
	bool others; /* other windows are open during the measurement */
	struct bucket_sum steps[API_STEPS];
	struct api_hist hist;
};

struct api {
	const struct win_set *set;
	struct win win;
	struct machine m;
	unsigned nr;
	struct row rows[ROWS_MAX];
	unsigned nr_rows;
};

/* ----------------------------------------------------------------- measuring */

static double since(uint64_t *at)
{
	uint64_t now = now_ns(), ns = now - *at;

	*at = now;
	return (double)ns;
}

static int one_turn(const struct win *win, const struct win_set *set, uint64_t len,
		    double ret[API_STEPS])
{
	struct pst_window_opts o = win_opts(set);
	struct pst_window_info info = { .sz = sizeof(info) };
	_cleanup_(pst_memp) struct pst_mem *mem = NULL;
	struct pst_window *w = NULL;
	uint64_t at = now_ns();
	int r;

	r = pst_mem_wrap(win->mem_info.addr + win->off, len, NULL, &mem);
	ret[API_WRAP] = since(&at);
	if (r == 0)
		r = pst_window_open(mem, 0, len, &o, &w);
	ret[API_OPEN] = since(&at);
	if (r == 0)
		r = pst_window_info(w, &info);
	ret[API_INFO] = since(&at);
	(void)pst_window_close(w);
	ret[API_CLOSE] = since(&at);
	mem = pst_mem_free(mem);
	ret[API_FREE] = since(&at);
	return r < 0 ? fail_pst(r, win->dev.name) : 0;
}

int api_measure(const struct win *win, const struct win_set *set, uint64_t len, unsigned warm_up,
		unsigned nr, struct api_times *ret)
{
	double turn[API_STEPS];
	int r = 0;

	for (unsigned i = 0; i < warm_up && r == 0; i++)
		r = one_turn(win, set, len, turn);
	for (unsigned i = 0; i < nr && r == 0; i++) {
		if (stop_signal)
			return fail(EINTR, "interrupted");
		r = one_turn(win, set, len, turn);
		for (unsigned s = 0; s < API_STEPS; s++)
			ret->ns[s][i] = turn[s];
	}
	return r;
}

int api_times_init(struct api_times *t, unsigned nr)
{
	for (unsigned s = 0; s < API_STEPS; s++) {
		t->ns[s] = calloc(nr, sizeof(double));
		if (!t->ns[s])
			return fail(ENOMEM, "out of memory");
	}
	return 0;
}

void api_times_done(struct api_times *t)
{
	for (unsigned s = 0; s < API_STEPS; s++)
		free(t->ns[s]);
}

void api_hist(const double *ns, unsigned nr, struct api_hist *ret)
{
	double max = ns[0];

	*ret = (struct api_hist){ .min = ns[0] };
	for (unsigned i = 1; i < nr; i++) {
		ret->min = MIN(ret->min, ns[i]);
		max = MAX(max, ns[i]);
	}
	ret->width = (max - ret->min) / API_BINS;
	for (unsigned i = 0; i < nr; i++) {
		double bin = ret->width > 0 ? (ns[i] - ret->min) / ret->width : 0;

		ret->nr[MIN((unsigned)bin, API_BINS - 1)]++;
	}
}

static int api_run_row(struct api *a, uint64_t size, bool others)
{
	_cleanup_(api_times_done) struct api_times t = { { NULL } };
	struct row *row = &a->rows[a->nr_rows++];
	int r;

	*row = (struct row){ .size = size, .others = others };
	r = api_times_init(&t, a->nr);
	if (r == 0)
		r = api_measure(&a->win, a->set, size, WARM_UP, a->nr, &t);
	if (r < 0)
		return r;
	api_hist(t.ns[API_OPEN], a->nr, &row->hist);
	for (unsigned s = 0; s < API_STEPS; s++)
		buckets_sum(t.ns[s], a->nr, &row->steps[s]);
	return 0;
}

/* -------------------------------------------------------------------- output */

static void print_hist(const struct row *row)
{
	(void)printf("opening a window of %s, %s:\n", size_text(row->size).s,
		     row->others ? "another is open" : "no other is open");
	for (unsigned i = 0; i < API_BINS; i++)
		(void)printf("  %10s to %10s us  %u\n",
			     win_us_text(row->hist.min + i * row->hist.width).s,
			     win_us_text(row->hist.min + (i + 1) * row->hist.width).s,
			     row->hist.nr[i]);
}

static int api_print_table(const struct api *a)
{
	static const char *const heads[] = { "<size", "<others", "<us",   "wrap",
					     "open",  "info",    "close", "free" };
	_cleanup_(table_freep) struct table *t = table_new(heads, ARRAY_SIZE(heads));

	if (!t)
		return fail(ENOMEM, "out of memory");
	for (unsigned i = 0; i < a->nr_rows; i++) {
		table_add(t, "%s", size_text(a->rows[i].size).s);
		table_add(t, "%s", a->rows[i].others ? "open" : "none");
		table_add(t, "median");
		for (unsigned s = 0; s < API_STEPS; s++)
			table_add(t, "%s", win_us_text(a->rows[i].steps[s].median).s);
		table_add(t, "%s", "");
		table_add(t, "%s", "");
		table_add(t, "p99");
		for (unsigned s = 0; s < API_STEPS; s++)
			table_add(t, "%s", win_us_text(a->rows[i].steps[s].p99).s);
	}
	win_print_head(&a->win, &a->m);
	shown_printf(9, "windows  %u of each size, after %u that do not count", a->nr, WARM_UP);
	(void)putchar('\n');
	table_print(t, stdout, shown_width(stdout));
	shown_printf(2, "wrap: pst_mem_wrap(); open: pst_window_open(), which compares some bytes "
			"with the device's own copies; info: pst_window_info(); close: "
			"pst_window_close(); free: pst_mem_free()");
	for (unsigned i = 0; i < a->nr_rows; i++)
		print_hist(&a->rows[i]);
	return 0;
}

static struct json_object *row_json(const struct row *row)
{
	struct json_object *o = json_object_new_object(), *h = json_object_new_array();

	json_u64(o, "size", row->size);
	json_flag(o, "others_open", row->others);
	for (unsigned s = 0; s < API_STEPS; s++)
		win_json_sum(o, step_names[s], &row->steps[s]);
	for (unsigned i = 0; i < API_BINS; i++) {
		struct json_object *bin = json_object_new_object();

		json_num(bin, "from_us", (row->hist.min + i * row->hist.width) / 1e3);
		json_num(bin, "to_us", (row->hist.min + (i + 1) * row->hist.width) / 1e3);
		json_u64(bin, "windows", row->hist.nr[i]);
		json_add(h, NULL, bin);
	}
	json_add(o, "open_histogram", h);
	return o;
}

static void api_print_json(const struct api *a)
{
	_cleanup_(json_putp) struct json_object *root = json_object_new_object();
	struct json_object *rows = json_object_new_array();

	win_json_head(root, &a->win, &a->m);
	for (unsigned i = 0; i < a->nr_rows; i++)
		json_add(rows, NULL, row_json(&a->rows[i]));
	json_add(root, "rows", rows);
	json_print(root);
}

static void api_done(struct api *a)
{
	win_close(&a->win);
}

static int run_rows(struct api *a, bool others)
{
	int r = 0;

	for (uint64_t size = KIB(64); size <= a->set->max && r == 0; size *= 2)
		r = api_run_row(a, size, others);
	return r;
}

int win_apiperf(const struct win_set *set)
{
	_cleanup_(api_done) struct api a = { .set = set,
					     .nr = set->count ? (unsigned)set->count : COUNT };
	int r;

	machine_facts(&a.m);
	r = win_open(&a.win, set, set->max, 1);
	if (r == 0)
		r = run_rows(&a, true);
	/* Close this window: only the measured windows may be open. */
	a.win.w = pst_window_close(a.win.w);
	if (r == 0)
		r = run_rows(&a, false);
	if (r < 0)
		return r;
	if (!set->json)
		return api_print_table(&a);
	api_print_json(&a);
	return 0;
}
