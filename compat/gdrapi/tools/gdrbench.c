/* SPDX-License-Identifier: MIT */
/* The benchmarks of gdrcopy 2.6, and both benchmarks of its first release. */
#include <inttypes.h>

#include "compat/gdrapi/tools/gdrtools.h"
#include "cli/window/api.h"

#define WRITES 10000u
#define READS 100u
#define BUCKETS 100u /* number of buckets; copylat reports their median and minimum */
#define FIRST_CHECKS 4u
#define FIRST_SIZE KIB(4)

struct bench {
	struct gdr_opts o;
	struct win win;
	char *src, *dst; /* host buffers, as large as the window */
};

static void gdrbench_done(struct bench *b)
{
	win_close(&b->win);
	free(b->src);
	free(b->dst);
}

/* Open a window of whole pages, and fill a host buffer with gdrcopy's pattern. */
static int bench_open(struct bench *b, uint64_t size)
{
	b->src = malloc(size);
	b->dst = calloc(1, size);
	if (!b->src || !b->dst)
		return fail(ENOMEM, "out of memory");
	win_walking_bit(b->src, size);
	return gdr_open(&b->o, size, &b->win);
}

/* -------------------------------------------------------------------- copybw */

/* Check that the device has the bytes that were written. */
static int check_written(struct bench *b, uint64_t len)
{
	_cleanup_(freep) char *seen = malloc(len);
	int r;

	if (!seen)
		return fail(ENOMEM, "out of memory");
	r = pst_mem_copy_out(b->win.mem, b->win.off + b->o.off, seen, len);
	if (r < 0)
		return fail_pst(r, b->win.dev.name);
	return memcmp(seen, b->src, len) == 0
		       ? 0
		       : fail(EIO, "the device has other bytes than were written");
}

static int write_test(struct bench *b, uint64_t len, double *ret_mb)
{
	struct win_copy c = { .win = &b->win, .off = b->o.off, .host = b->src, .len = len };
	uint64_t begun = now_ns();
	int r = win_copies(&c, (uint32_t)b->o.writes);

	*ret_mb = gdr_mb_per_s(len * b->o.writes, now_ns() - begun);
	return r < 0 ? r : check_written(b, len);
}

static int read_test(struct bench *b, uint64_t len, double *ret_mb)
{
	struct win_copy c = {
		.win = &b->win, .load = true, .off = b->o.off, .host = b->dst, .len = len
	};
	uint64_t begun = now_ns();
	int r = win_copies(&c, (uint32_t)b->o.reads);

	*ret_mb = gdr_mb_per_s(len * b->o.reads, now_ns() - begun);
	if (r < 0)
		return r;
	return memcmp(b->dst, b->src, len) == 0
		       ? 0
		       : fail(EIO, "the CPU reads other bytes than were written");
}

static int one_size(struct bench *b, uint64_t len)
{
	double mb;
	int r;

	(void)printf("writing test, size=%" PRIu64 " offset=%" PRIu64 " num_iters=%" PRIu64 "\n",
		     len, b->o.off, b->o.writes);
	r = write_test(b, len, &mb);
	if (r < 0)
		return r;
	(void)printf("write BW: %gMB/s\n", mb);
	(void)printf("reading test, size=%" PRIu64 " offset=%" PRIu64 " num_iters=%" PRIu64 "\n",
		     len, b->o.off, b->o.reads);
	r = read_test(b, len, &mb);
	if (r == 0)
		(void)printf("read BW: %gMB/s\n", mb);
	return r;
}

/* Measure all powers of two up to the copy size, or only that size. */
static int all_sizes(struct bench *b)
{
	int r = 0;

	if (!b->o.every_size)
		return one_size(b, b->o.copy);
	for (uint64_t len = 1; 2 * len <= b->o.copy && r == 0; len *= 2)
		r = one_size(b, len);
	return r;
}

static int check_bw(struct gdr_opts *o)
{
	if (!o->copy)
		o->copy = o->size;
	if (!o->size || !o->writes || !o->reads || o->writes > UINT32_MAX || o->reads > UINT32_MAX)
		return fail(EINVAL, "-s, -w and -r take a number that is not 0");
	if (o->off % 4)
		return fail(EINVAL, "offset must be multiple of 4 bytes");
	if (o->copy > o->size || o->off > o->size - o->copy)
		return fail(EINVAL, "offset + copy size run past the end of the buffer");
	return 0;
}

int gdr_copybw(int argc, char *argv[])
{
	_cleanup_(gdrbench_done) struct bench b = {
		.o = { "cuda:0", .size = KIB(128), .writes = WRITES, .reads = READS },
	};
	uint64_t size;
	int r;

	r = gdr_parse(argc, argv, ":s:d:o:c:w:r:a:M:lh", &b.o);
	if (r)
		return MIN(r, 0);
	r = check_bw(&b.o);
	if (r == 0)
		r = gdr_print_devices(b.o.device);
	if (r < 0)
		return r;
	size = align_up(b.o.size, GDR_PAGE);
	(void)printf("testing size: %" PRIu64 "\nrounded size: %" PRIu64 "\n", b.o.size, size);
	r = bench_open(&b, size);
	if (r < 0)
		return r;
	(void)printf("gpu alloc fn: %s\ndevice ptr: %" PRIx64 "\nmap_d_ptr: %p\n",
		     gdr_alloc_name(&b.win), b.win.mem_info.addr + b.win.off, (void *)b.win.ptr);
	gdr_print_info(&b.win, true);
	(void)printf("user-space pointer:%p\n", (void *)b.win.ptr);
	r = all_sizes(&b);
	if (r == 0)
		gdr_close(&b.win);
	return r;
}

/* ------------------------------------------------------------------- copylat */

/* Round the iterations up to a multiple of the number of buckets. */
static uint64_t round_up(uint64_t iters)
{
	return (iters + BUCKETS - 1) / BUCKETS * BUCKETS;
}

static int latencies(struct bench *b, bool load, uint64_t iters)
{
	const struct bucket_plan plan = { BUCKETS, (uint32_t)(iters / BUCKETS), 0 };
	const char *name = load ? "gdr_copy_from_mapping" : "gdr_copy_to_mapping";
	struct bucket_sum sum;
	int r;

	(void)printf("\n%s num iters for each size: %" PRIu64 "\n", name, iters);
	if (!load)
		(void)puts("WARNING: Measuring the API invocation overhead as observed by the CPU. "
			   "Data might not be ordered all the way to the GPU internal visibility.");
	(void)puts("Test \t\t\t Size(B) \t Median Time(us) \t Min. Time(us)");
	for (uint64_t size = 1; size <= b->win.len; size *= 2) {
		struct win_copy c = {
			.win = &b->win, .load = load, .host = load ? b->dst : b->src, .len = size
		};

		r = buckets_run(&plan, win_copies, &c, &sum);
		if (r < 0)
			return r;
		(void)printf("%s \t %8" PRIu64 " \t %11.4f \t %11.4f\n", name, size,
			     sum.median / 1e3, sum.min / 1e3);
	}
	return 0;
}

int gdr_copylat(int argc, char *argv[])
{
	_cleanup_(gdrbench_done) struct bench b = {
		.o = { "cuda:0", .size = MIB(16), .writes = WRITES, .reads = READS },
	};
	int r;

	r = gdr_parse(argc, argv, ":s:d:w:r:a:M:h", &b.o);
	if (r)
		return MIN(r, 0);
	r = check_bw(&b.o);
	if (r == 0)
		r = gdr_print_devices(b.o.device);
	if (r == 0)
		r = bench_open(&b, align_up(b.o.size, GDR_PAGE));
	if (r < 0)
		return r;
	(void)printf("device ptr: 0x%" PRIx64 "\nallocated size: %" PRIu64
		     "\ngpu alloc fn: %s\n\nmap_d_ptr: %p\n",
		     b.win.mem_info.addr + b.win.off, b.win.len, gdr_alloc_name(&b.win),
		     (void *)b.win.ptr);
	gdr_print_info(&b.win, true);
	(void)printf("user-space pointer: %p\nuse cold cache: no\n", (void *)b.win.ptr);
	r = latencies(&b, false, round_up(b.o.writes));
	if (r == 0)
		r = latencies(&b, true, round_up(b.o.reads));
	if (r == 0)
		gdr_close(&b.win);
	return r;
}

/* ------------------------------------------------------------------- apiperf */

static double mean_us(const double *ns, uint64_t nr)
{
	double sum = 0;

	for (uint64_t i = 0; i < nr; i++)
		sum += ns[i];
	return sum / (double)nr / 1e3;
}

static int one_api_size(struct bench *b, const struct win_set *set, uint64_t size)
{
	_cleanup_(api_times_done) struct api_times t = { { NULL } };
	struct api_hist h;
	int r;

	r = api_times_init(&t, (unsigned)b->o.count);
	if (r == 0)
		r = api_measure(&b->win, set, size, (unsigned)b->o.writes, (unsigned)b->o.count,
				&t);
	if (r < 0)
		return r;
	(void)printf("Size(B)\tpin.Time(us)\tmap.Time(us)\tget_info.Time(us)\tunmap.Time(us)\t"
		     "unpin.Time(us)\n%" PRIu64,
		     size);
	for (unsigned s = 0; s < API_STEPS; s++)
		(void)printf("\t%f", mean_us(t.ns[s], b->o.count));
	(void)printf("\nHistogram of gdr_pin_buffer latency for %" PRIu64 " bytes\n", size);
	api_hist(t.ns[API_WRAP], (unsigned)b->o.count, &h);
	for (unsigned i = 0; i < API_BINS; i++)
		(void)printf("[%f\t-\t%f]\t%u\n", (h.min + i * h.width) / 1e3,
			     (h.min + (i + 1) * h.width) / 1e3, h.nr[i]);
	(void)putchar('\n');
	return 0;
}

int gdr_apiperf(int argc, char *argv[])
{
	_cleanup_(gdrbench_done) struct bench b = {
		.o = { "cuda:0", .size = MIB(16), .count = 100, .writes = 10 },
	};
	struct win_set set = { 0 };
	int r;

	r = gdr_parse(argc, argv, ":s:d:n:w:a:M:h", &b.o);
	if (r)
		return MIN(r, 0);
	if (!b.o.size || !b.o.count || b.o.count > 1000000 || b.o.writes > 1000000)
		return fail(EINVAL,
			    "-s and -n take a number that is not 0, -n and -w up to 1000000");
	r = gdr_print_devices(b.o.device);
	if (r == 0)
		r = bench_open(&b, align_up(b.o.size, GDR_PAGE));
	if (r < 0)
		return r;
	(void)printf("device ptr: 0x%" PRIx64 "\nallocated size: %" PRIu64 "\n",
		     b.win.mem_info.addr + b.win.off, b.win.len);
	/* Close this window: only the measured windows may be open. */
	b.win.w = pst_window_close(b.win.w);
	set.caching = b.o.caching;
	for (uint64_t size = GDR_PAGE; size <= b.win.len && r == 0; size *= 2)
		r = one_api_size(&b, &set, size);
	if (r == 0)
		(void)puts("closing gdrdrv");
	return r;
}

/* ------------------------------------------------------- the first release */

static void print_diff(const struct win_diff *d)
{
	(void)printf("check error: %" PRIu64 " different bytes, the first is byte %" PRIu64
		     ": %02x, expected %02x\n",
		     d->nr, d->at, d->is, d->should);
}

int gdr_first_validate(int argc, char *argv[])
{
	static const char *const texts[FIRST_CHECKS] = {
		"direct access + read back via cuMemcpy D->H",
		"gdr_copy_to_bar() + read back via cuMemcpy D->H",
		"gdr_copy_to_bar() + read back via gdr_copy_from_bar()",
		"gdr_copy_to_bar() + read back via gdr_copy_from_bar() + extra_dwords=5",
	};
	_cleanup_(win_checker_done) struct win_checker k = { 0 };
	_cleanup_(gdrbench_done) struct bench b = { .o = { "cuda:0", .size = KIB(256) + 16 } };
	unsigned failed = 0;
	int r;

	r = gdr_parse(argc, argv, ":d:h", &b.o);
	if (r)
		return MIN(r, 0);
	(void)printf("buffer size: %" PRIu64 "\n", align_up(b.o.size, GDR_PAGE));
	r = bench_open(&b, align_up(b.o.size, GDR_PAGE));
	if (r == 0)
		r = win_checker_init(&k, &b.win);
	for (unsigned i = 0; i < FIRST_CHECKS && r == 0; i++) {
		struct win_diff d;

		(void)printf("check %u: %s\n", i + 1, texts[i]);
		r = win_check(&k, i + 1, &d);
		if (r == 0 && d.nr) {
			print_diff(&d);
			failed++;
		}
	}
	return r == 0 && failed ? fail(EIO, "%u of %u checks failed", failed, FIRST_CHECKS) : r;
}

int gdr_first_copybw(int argc, char *argv[])
{
	_cleanup_(gdrbench_done) struct bench b = {
		.o = { "cuda:0", .size = FIRST_SIZE, .writes = WRITES, .reads = READS },
	};
	double mb;
	int r;

	r = gdr_parse(argc, argv, ":d:h", &b.o);
	if (r)
		return MIN(r, 0);
	r = bench_open(&b, align_up(b.o.size, GDR_PAGE));
	if (r < 0)
		return r;
	(void)printf("testing size: %" PRIu64 "\nrounded size: %" PRIu64 "\ndevice ptr: %" PRIx64
		     "\nbar_ptr: %p\n",
		     b.o.size, b.win.len, b.win.mem_info.addr + b.win.off, (void *)b.win.ptr);
	gdr_print_info(&b.win, false);
	(void)printf("user-space pointer:%p\nBAR writing test...\n", (void *)b.win.ptr);
	r = write_test(&b, b.o.size, &mb);
	if (r < 0)
		return r;
	(void)printf("BAR1 write BW: %gMB/s\nBAR reading test...\n", mb);
	r = read_test(&b, b.o.size, &mb);
	if (r < 0)
		return r;
	(void)printf("BAR1 read BW: %gMB/s\n", mb);
	gdr_close(&b.win);
	return 0;
}
