/* SPDX-License-Identifier: MIT */
/*
 * Measure bandwidth: each thread copies its slice repeatedly for the given time, and reads the
 * clock once per batch of copies, which takes some microseconds.
 */
#include <pthread.h>

#include "tools/common/hist.h"
#include "tools/common/json.h"
#include "tools/common/shown.h"
#include "tools/common/table.h"
#include "cli/window/window.h"

#define BATCH_NS 20000u
#define BATCH_MAX 100u

/* The combined rate of all threads. */
struct rate {
	uint64_t bytes, ns;
	double p50, p99; /* ns per copy, computed from times of batches */
};

struct row {
	uint64_t size;
	unsigned threads;
	bool load;
	char kernel[16]; /* name of the copy kernel */
	struct rate window, copies;
};

/* Workers wait here until all have started, or until starting one has failed. */
struct gate {
	pthread_mutex_t lock; /* held by the starting thread until all workers have started */
	bool failed;
};

struct worker {
	struct win_copy copy;
	struct gate *gate;
	uint64_t run_ns;
	uint64_t begun, ended, bytes;
	uint32_t batch;
	struct hist hist; /* ns of a batch, scaled to BATCH_MAX copies */
	int err;
	char text[256];
};

struct bw {
	const struct win_set *set;
	struct win win;
	struct machine m;
	const char *kernels[WIN_KERNELS_MAX]; /* kernels to measure; none: the window's default */
	unsigned nr_kernels;
	char *host; /* host memory for all threads */
	struct worker *workers;
	struct row *rows;
	unsigned nr_rows;
};

/* -------------------------------------------------------------------- one row */

static int choose_batch(struct worker *w)
{
	uint64_t begun = now_ns(), ns;
	int r;

	do {
		r = win_copies(&w->copy, 1);
		ns = now_ns() - begun;
	} while (r == 0 && ++w->batch < BATCH_MAX && ns < BATCH_NS);
	return r;
}

static void *bw_thread(void *arg)
{
	struct worker *w = arg;
	uint64_t end, now;
	int r = 0;

	(void)pthread_mutex_lock(&w->gate->lock);
	(void)pthread_mutex_unlock(&w->gate->lock);
	w->begun = w->ended = now = now_ns();
	end = w->gate->failed ? now : now + w->run_ns;
	while (r == 0 && now < end && !stop_signal) {
		r = win_copies(&w->copy, w->batch);
		now = now_ns();
		hist_add(&w->hist, (now - w->ended) * BATCH_MAX / w->batch);
		w->ended = now;
		w->bytes += w->copy.len * w->batch;
	}
	w->err = r;
	if (r < 0)
		(void)snprintf(w->text, sizeof(w->text), "%.250s", fail_text());
	return NULL;
}

static void add_up(const struct worker *workers, unsigned nr, struct rate *ret)
{
	uint64_t first = UINT64_MAX, last = 0;
	static struct hist all;

	*ret = (struct rate){ 0 };
	all = (struct hist){ 0 };
	for (unsigned i = 0; i < nr; i++) {
		first = MIN(first, workers[i].begun);
		last = MAX(last, workers[i].ended);
		ret->bytes += workers[i].bytes;
		hist_merge(&all, &workers[i].hist);
	}
	ret->ns = last - first;
	ret->p50 = (double)hist_quantile(&all, 0.5) / BATCH_MAX;
	ret->p99 = (double)hist_quantile(&all, 0.99) / BATCH_MAX;
}

/* Run the threads.  Return 0, or the error of starting one. */
static int run_threads(struct bw *b, unsigned nr)
{
	struct gate gate = { .lock = PTHREAD_MUTEX_INITIALIZER };
	pthread_t threads[WIN_THREADS_MAX];
	unsigned started;
	int r = 0;

	(void)pthread_mutex_lock(&gate.lock);
	for (started = 0; started < nr; started++) {
		b->workers[started].gate = &gate;
		r = pthread_create(&threads[started], NULL, bw_thread, &b->workers[started]);
		if (r != 0)
			break;
	}
	gate.failed = r != 0;
	(void)pthread_mutex_unlock(&gate.lock);
	while (started)
		(void)pthread_join(threads[--started], NULL);
	(void)pthread_mutex_destroy(&gate.lock);
	return r ? fail(r, "cannot start %u threads: %s", nr, strerror(r)) : 0;
}

/* Run the threads, and check that the bytes have arrived. */
static int run_and_check(struct bw *b, const struct row *row, struct rate *ret)
{
	int r = run_threads(b, row->threads);

	if (r == 0 && stop_signal)
		r = fail(EINTR, "interrupted");
	for (unsigned i = 0; i < row->threads && r == 0; i++) {
		const struct worker *w = &b->workers[i];

		r = w->err < 0 ? fail(w->err, "%s", w->text) : win_copy_check(&w->copy, i + 1);
	}
	add_up(b->workers, row->threads, ret);
	return r;
}

static int bw_worker_init(struct bw *b, const struct row *row, unsigned idx, bool baseline)
{
	struct worker *w = &b->workers[idx];
	uint64_t off = idx * row->size;
	int r;

	*w = (struct worker){
		.copy = { .win = &b->win,
			  .load = row->load,
			  .off = off,
			  .host = b->host + off,
			  .len = row->size },
		.run_ns = (uint64_t)(b->set->seconds * 1e9),
	};
	if (baseline) {
		r = pst_mem_wrap(b->win.mem_info.addr + b->win.off + off, row->size, NULL,
				 &w->copy.mem);
		if (r < 0)
			return fail_pst(r, b->win.dev.name);
	}
	r = win_copy_begin(&w->copy, idx + 1);
	return r < 0 ? r : choose_batch(w);
}

static int bw_measure(struct bw *b, const struct row *row, bool baseline, struct rate *ret)
{
	int r = 0;

	for (unsigned i = 0; i < row->threads && r == 0; i++)
		r = bw_worker_init(b, row, i, baseline);
	if (r == 0)
		r = run_and_check(b, row, ret);
	for (unsigned i = 0; i < row->threads; i++)
		b->workers[i].copy.mem = pst_mem_free(b->workers[i].copy.mem);
	return r;
}

/* Return the same row of an earlier kernel; its baseline is reused. */
static const struct row *row_before(const struct bw *b, const struct row *row)
{
	for (const struct row *r = b->rows; r < row; r++)
		if (r->size == row->size && r->threads == row->threads && r->load == row->load)
			return r;
	return NULL;
}

static int bw_run_row(struct bw *b, uint64_t size, unsigned threads, bool load)
{
	struct row *row = &b->rows[b->nr_rows];
	const struct row *before;
	int r;

	*row = (struct row){ .size = size, .threads = threads, .load = load };
	(void)snprintf(row->kernel, sizeof(row->kernel), "%s",
		       load ? b->win.info.load : b->win.info.store);
	before = row_before(b, row);
	r = bw_measure(b, row, false, &row->window);
	if (before)
		row->copies = before->copies;
	else if (r == 0 && b->set->baseline)
		r = bw_measure(b, row, true, &row->copies);
	b->nr_rows++;
	return r;
}

static int bw_run_rows(struct bw *b, bool load)
{
	const struct win_set *set = b->set;
	int r = 0;

	for (unsigned t = 0; t < set->nr_threads; t++)
		for (unsigned s = 0; s < set->nr_sizes && r == 0; s++)
			r = bw_run_row(b, set->sizes[s], set->threads[t], load);
	return r;
}

/* Measure one kernel.  A kernel may serve one direction only, or not serve some mappings. */
static int run_kernel(struct bw *b, const char *kernel)
{
	struct win_set set = *b->set;
	int r;

	set.kernel = kernel;
	r = win_map(&b->win, &set);
	if (r == -EOPNOTSUPP)
		return 0;
	if (r == 0 && !strcmp(b->win.info.store, kernel))
		r = bw_run_rows(b, false);
	if (r == 0 && !strcmp(b->win.info.load, kernel))
		r = bw_run_rows(b, true);
	return r;
}

static int bw_run_all(struct bw *b)
{
	struct win_set set = *b->set;
	int r = 0;

	if (!b->nr_kernels) {
		r = bw_run_rows(b, false);
		return r < 0 ? r : bw_run_rows(b, true);
	}
	for (unsigned i = 0; i < b->nr_kernels && r == 0; i++)
		r = run_kernel(b, b->kernels[i]);
	/* For the report, open a window without naming a kernel, so that it chooses one. */
	set.kernel = NULL;
	return r < 0 ? r : win_map(&b->win, &set);
}

/* -------------------------------------------------------------------- output */

static double gb(const struct rate *r)
{
	return gb_per_s(r->bytes, r->ns);
}

static void add_rate(struct table *t, const struct rate *r)
{
	table_add(t, "%.3f", gb(r));
	table_add(t, "%s", win_us_text(r->p50).s);
	table_add(t, "%s", win_us_text(r->p99).s);
}

static void bw_add_row(struct table *t, const struct row *row, bool baseline, bool ratios)
{
	table_add(t, "%s", row->load ? "load" : "store");
	table_add(t, "%s", row->kernel);
	table_add(t, "%s", size_text(row->size).s);
	table_add(t, "%u", row->threads);
	add_rate(t, &row->window);
	if (ratios)
		table_add(t, "%.2fx",
			  gb(&row->copies) > 0 ? gb(&row->window) / gb(&row->copies) : 0);
	if (!baseline)
		return;
	table_add(t, "  copies");
	for (unsigned i = 0; i < 3; i++)
		table_add(t, "%s", "");
	add_rate(t, &row->copies);
	if (ratios)
		table_add(t, "%s", "");
}

static int bw_print_table(const struct bw *b)
{
	static const char *const heads[] = { "<copy", "<kernel", "<size", "threads",
					     "GB/s",  "p50 us",  "p99",   "ratio" };
	bool ratios = b->set->baseline && !device_is_emulated(&b->win.dev);
	_cleanup_(table_freep) struct table *t = table_new(heads, ratios ? 8 : 7);

	if (!t)
		return fail(ENOMEM, "out of memory");
	for (unsigned i = 0; i < b->nr_rows; i++)
		bw_add_row(t, &b->rows[i], b->set->baseline, ratios);
	win_print_head(&b->win, &b->m);
	(void)puts("");
	table_print(t, stdout, shown_width(stdout));
	shown_printf(2, "kernel: the one for long copies; short ones may take another");
	if (b->set->baseline)
		shown_printf(2, "copies: " WIN_BASELINE);
	return 0;
}

static void json_rate(struct json_object *to, const char *key, const struct rate *r)
{
	struct json_object *o = json_object_new_object();

	json_u64(o, "bytes", r->bytes);
	json_num(o, "seconds", (double)r->ns / 1e9);
	json_num(o, "gb_per_s", gb(r));
	json_num(o, "p50_us", r->p50 / 1e3);
	json_num(o, "p99_us", r->p99 / 1e3);
	json_add(to, key, o);
}

static void bw_print_json(const struct bw *b)
{
	_cleanup_(json_putp) struct json_object *root = json_object_new_object();
	struct json_object *rows = json_object_new_array();

	win_json_head(root, &b->win, &b->m);
	if (b->set->baseline)
		json_text(root, "copies", WIN_BASELINE);
	for (unsigned i = 0; i < b->nr_rows; i++) {
		const struct row *row = &b->rows[i];
		struct json_object *o = json_object_new_object();

		json_text(o, "copy", row->load ? "load" : "store");
		json_text(o, "kernel", row->kernel);
		json_u64(o, "size", row->size);
		json_u64(o, "threads", row->threads);
		json_rate(o, "window", &row->window);
		if (b->set->baseline)
			json_rate(o, "copies", &row->copies);
		json_add(rows, NULL, o);
	}
	json_add(root, "rows", rows);
	json_print(root);
}

static void bw_done(struct bw *b)
{
	win_close(&b->win);
	free(b->host);
	free(b->workers);
	free(b->rows);
}

static int bw_prepare(struct bw *b, unsigned most_threads, uint64_t len)
{
	struct win_set first = *b->set;
	int n;

	machine_facts(&b->m);
	if (len > WIN_MEMORY_MAX)
		return fail(EINVAL, "%u threads with so much each is more than %s of memory",
			    most_threads, size_text(WIN_MEMORY_MAX).s);
	if (first.kernel && !strcmp(first.kernel, WIN_ALL_KERNELS)) {
		n = pst_window_kernels(b->kernels, WIN_KERNELS_MAX);
		if (n < 0)
			return fail_pst(n, NULL);
		b->nr_kernels = MIN((unsigned)n, WIN_KERNELS_MAX);
		first.kernel = NULL;
	}
	b->host = malloc(len);
	b->workers = calloc(most_threads, sizeof(*b->workers));
	b->rows = calloc(2u * b->set->nr_sizes * b->set->nr_threads * MAX(b->nr_kernels, 1u),
			 sizeof(*b->rows));
	if (!b->host || !b->workers || !b->rows)
		return fail(ENOMEM, "out of memory");
	return win_open(&b->win, &first, len, 1);
}

int win_copybw(const struct win_set *set)
{
	_cleanup_(bw_done) struct bw b = { .set = set };
	unsigned threads = 0;
	uint64_t size = 0;
	int r;

	for (unsigned i = 0; i < set->nr_threads; i++)
		threads = MAX(threads, set->threads[i]);
	for (unsigned i = 0; i < set->nr_sizes; i++)
		size = MAX(size, set->sizes[i]);
	r = bw_prepare(&b, threads, threads * size);
	if (r == 0)
		r = bw_run_all(&b);
	if (r < 0)
		return r;
	if (!set->json)
		return bw_print_table(&b);
	bw_print_json(&b);
	return 0;
}
