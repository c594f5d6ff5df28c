/* SPDX-License-Identifier: MIT */
/*
 * Duration of reads of thousands of small pieces, from pst_queue_submit() to the last
 * completion.  The pieces come from random places of a cached file and go to random places in
 * device memory.
 *
 *	gpu-pieces [-m DEVICE] [--stable] [--requests N] [--pieces N] [--size BYTES]
 *		   [--batches N] FILE
 *
 * Batches use four tables of segments in turn.  At the end each table's pieces are compared with
 * the file.  Prints one JSON object.
 */
#include <getopt.h>

#include "hw.h"

#define TABLES 4
#define REQUESTS_MAX 1024

static const char *device = "cuda:0", *path;
static uint64_t size = 4096, nr_pieces = 16384, nr_requests = 1, nr_batches = 100;
static int stable;

static struct pst_queue *q;
static struct pst_file *f;
static struct pst_mem *m;
static struct pst_seg *tables[TABLES];
static uint64_t file_len;
static uint32_t paths, whys;

/* Make a table: every piece of memory once, in random order.  File offsets are distinct if the
 * file has enough pieces. */
static struct pst_seg *table_new(void)
{
	struct pst_seg *segs = calloc(nr_pieces, sizeof(*segs));
	uint64_t there = file_len / size, step = there / nr_pieces ? there / nr_pieces : 1;

	T_CHECK(segs);
	for (uint64_t i = 0; i < nr_pieces; i++)
		segs[i] = (struct pst_seg){ .file_off = (i * step + rig_below(step)) % there * size,
					    .mem_off = i * size,
					    .len = size };
	for (uint64_t i = nr_pieces - 1; i > 0; i--) {
		uint64_t k = rig_below(i + 1), t = segs[i].mem_off;

		segs[i].mem_off = segs[k].mem_off;
		segs[k].mem_off = t;
		k = rig_below(i + 1);
		t = segs[i].file_off;
		segs[i].file_off = segs[k].file_off;
		segs[k].file_off = t;
	}
	return segs;
}

static void prepare(struct pst_seg *segs)
{
	for (uint64_t i = 0; i < nr_requests; i++) {
		uint64_t from = nr_pieces * i / nr_requests, to = nr_pieces * (i + 1) / nr_requests;
		struct pst_io io = { .op = PST_OP_READ,
				     .file = f,
				     .mem = m,
				     .segs = segs + from,
				     .nr_segs = to - from,
				     .user_data = (to - from) * size };

		T_OK(pst_queue_prep(q, &io));
	}
}

/* Run one batch and return its ns, from the submit on. */
static uint64_t batch(struct pst_seg *segs, uint64_t *ret_prep, uint64_t *ret_submit)
{
	static struct pst_done done[REQUESTS_MAX];
	uint64_t before = t_now(), begun;

	prepare(segs);
	begun = t_now();
	*ret_prep = begun - before;
	T_EQ(pst_queue_submit(q), nr_requests);
	*ret_submit = t_now() - begun;
	T_EQ(pst_queue_reap(q, done, (unsigned)nr_requests, (unsigned)nr_requests,
			    t_in_ms(RIG_WAIT_MS)),
	     nr_requests);
	begun = t_now() - begun;
	for (uint64_t i = 0; i < nr_requests; i++) {
		if (done[i].res != (int64_t)done[i].user_data) {
			rig_show(&done[i]);
			T_FAIL("a request gave %lld", (long long)done[i].res);
		}
		paths |= done[i].paths;
		whys |= 1u << done[i].why;
	}
	return begun;
}

static void verify(const struct pst_seg *segs)
{
	char *got = malloc(nr_pieces * size), *want = malloc(size);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	T_CHECK(got && want && fd >= 0);
	T_OK(pst_mem_copy_out(m, 0, got, nr_pieces * size));
	for (uint64_t i = 0; i < nr_pieces; i++) {
		T_EQ(pread(fd, want, size, (off_t)segs[i].file_off), size);
		if (memcmp(want, got + segs[i].mem_off, size) != 0)
			T_FAIL("the piece at byte %" PRIu64 " of the file is wrong",
			       segs[i].file_off);
	}
	(void)close(fd);
	free(got);
	free(want);
}

static int by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void run(void)
{
	uint64_t *ns = calloc(nr_batches, sizeof(*ns)), *prep = calloc(nr_batches, sizeof(*prep));
	uint64_t *submit = calloc(nr_batches, sizeof(*submit));
	uint64_t pinned = 0, warm, first;
	char text[300];

	T_CHECK(ns && prep && submit);
	q = rig_queue(PST_BACKEND_AUTO, nr_requests > 128 ? (uint32_t)nr_requests : 0);
	f = rig_open(path, RIG_R | (stable ? PST_FILE_STABLE : 0));
	m = rig_alloc(device, nr_pieces * size);
	file_len = rig_file_info(f).size;
	T_CHECK(file_len >= size);
	rig_warm(path);
	if (stable)
		pinned = hw_pin(q, f, m, nr_pieces * size, file_len);
	for (unsigned i = 0; i < TABLES; i++)
		tables[i] = table_new();

	/* Not measured: the first batch starts threads and registers memory. */
	first = batch(tables[0], &warm, &warm);
	paths = whys = 0;
	for (uint64_t i = 0; i < nr_batches; i++)
		ns[i] = batch(tables[i % TABLES], &prep[i], &submit[i]);
	for (unsigned i = 0; i < TABLES; i++) {
		(void)batch(tables[i], &warm, &warm);
		verify(tables[i]);
	}

	qsort(ns, nr_batches, sizeof(*ns), by_value);
	qsort(prep, nr_batches, sizeof(*prep), by_value);
	qsort(submit, nr_batches, sizeof(*submit), by_value);
	printf("{\"tool\": \"gpu-pieces\", \"pieces\": %" PRIu64 ", \"size\": %" PRIu64
	       ", \"requests\": %" PRIu64 ", \"stable\": %s, \"batches\": %" PRIu64
	       ", \"median_us\": %.1f, \"min_us\": %.1f, \"p99_us\": %.1f, \"prep_us\": %.1f, "
	       "\"submit_us\": %.1f, "
	       "\"first_us\": %.1f, \"gb_per_s\": %.3f, \"paths\": \"%s\", \"whys\": %u, "
	       "\"pinned_bytes\": %" PRIu64 ", \"file_bytes\": %" PRIu64
	       ", \"verified_bytes\": %" PRIu64 "}\n",
	       nr_pieces, size, nr_requests, stable ? "true" : "false", nr_batches,
	       (double)ns[nr_batches / 2] / 1e3, (double)ns[0] / 1e3,
	       (double)ns[nr_batches * 99 / 100] / 1e3, (double)prep[nr_batches / 2] / 1e3,
	       (double)submit[nr_batches / 2] / 1e3, (double)first / 1e3,
	       (double)(nr_pieces * size) / (double)ns[nr_batches / 2],
	       hw_paths(paths, text, sizeof(text)), whys, pinned, file_len,
	       TABLES * nr_pieces * size);

	for (unsigned i = 0; i < TABLES; i++)
		free(tables[i]);
	pst_queue_free(q);
	pst_file_close(f);
	pst_mem_free(m);
	free(ns);
	free(prep);
	free(submit);
}

int main(int argc, char **argv)
{
	static const struct option longs[] = { { "stable", no_argument, &stable, 1 },
					       { "requests", required_argument, NULL, 'r' },
					       { "pieces", required_argument, NULL, 'p' },
					       { "size", required_argument, NULL, 's' },
					       { "batches", required_argument, NULL, 'b' },
					       { 0 } };
	int opt;

	while ((opt = getopt_long(argc, argv, "m:", longs, NULL)) != -1) {
		uint64_t v = optarg ? strtoull(optarg, NULL, 10) : 0;

		switch (opt) {
		case 0:
			break;
		case 'm':
			device = optarg;
			break;
		case 'r':
			nr_requests = v;
			break;
		case 'p':
			nr_pieces = v;
			break;
		case 's':
			size = v;
			break;
		case 'b':
			nr_batches = v;
			break;
		default:
			return 2;
		}
	}
	if (argc - optind != 1 || !size || !nr_batches || !nr_requests ||
	    nr_requests > REQUESTS_MAX || nr_pieces < nr_requests)
		HW_DIE("usage: gpu-pieces [-m DEVICE] [--stable] [--requests N] [--pieces N] "
		       "[--size BYTES] [--batches N] FILE");
	path = argv[optind];
	if (setjmp(t_jump))
		HW_DIE("gpu-pieces: %s", t_why);
	run();
	return 0;
}
