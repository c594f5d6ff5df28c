/* SPDX-License-Identifier: MIT */
/*
 * Read for several sequences at once, and cancel those that are no longer needed.
 *
 *	cancel-reads [-d DEVICE] FILE
 *
 * All reads of a sequence carry its number as user_data, so one call cancels them.  After a request
 * has ended early, hardware or kernel may still use its memory; pst_mem_drain() waits for that.
 */
#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <penstock.h>

#define NR_SEQS 8
#define READS 8            /* reads of a sequence */
#define PIECE (256u << 10) /* bytes of a read */
#define TIMEOUT_MS 2000    /* milliseconds per read: a hanging disk must not hang the program */
#define NR_READS (NR_SEQS * READS)

static int complain(const char *what)
{
	(void)fprintf(stderr, "cancel-reads: %s: %s\n", what, pst_error_text());
	return -1;
}

static uint64_t in_ms(uint64_t ms)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec + ms * 1000000u;
}

static int start(struct pst_queue *q, struct pst_file *file, struct pst_mem *mem)
{
	int r = 0;

	for (uint64_t i = 0; r == 0 && i < NR_READS; i++) {
		const struct pst_io io = {
			.op = PST_OP_READ,
			.file = file,
			.mem = mem,
			.file_off = i * PIECE,
			.mem_off = i * PIECE,
			.len = PIECE,
			.deadline_ns = in_ms(TIMEOUT_MS),
			.user_data = i / READS,
		};

		r = pst_queue_prep(q, &io);
	}
	return r < 0 ? r : pst_queue_submit(q);
}

/* Reap all requests: each completes once, even a cancelled one. */
static int finish(struct pst_queue *q, struct pst_mem *mem)
{
	unsigned arrived = 0, canceled = 0, failed = 0, busy = 0;
	struct pst_done done;
	char text[512];
	int r;

	while ((r = pst_queue_reap(q, &done, 1, 1, PST_NO_DEADLINE)) > 0) {
		busy += (done.flags & PST_DONE_BUSY) != 0;
		if (done.res >= 0) {
			arrived++; /* the cancel came too late: the bytes have arrived */
		} else if (done.res == -ECANCELED) {
			canceled++;
		} else if (!failed++) {
			(void)fprintf(stderr, "cancel-reads: sequence %d: %s\n",
				      (int)done.user_data,
				      pst_done_text(&done, text, sizeof(text)));
		}
	}
	(void)printf("%u arrived, %u were cancelled, %u failed; %u may still touch the memory\n",
		     arrived, canceled, failed, busy);
	if (r == 0 && pst_mem_drain(mem, in_ms(TIMEOUT_MS)) < 0)
		r = complain("the memory cannot be used again");
	return r < 0 || failed ? -1 : 0;
}

int main(int argc, char *argv[])
{
	struct pst_queue_opts opts = { .sz = sizeof(opts), .depth = NR_READS };
	const char *device = "soft";
	struct pst_file *file = NULL;
	struct pst_queue *q = NULL;
	struct pst_mem *mem = NULL;
	int opt, r;

	while ((opt = getopt(argc, argv, "d:")) == 'd')
		device = optarg;
	if (opt != -1 || optind + 1 != argc) {
		(void)fprintf(stderr, "usage: cancel-reads [-d DEVICE] FILE\n");
		return 2;
	}
	r = pst_file_open(argv[optind], PST_FILE_READ, NULL, &file);
	if (r == 0)
		r = pst_mem_alloc(device, (uint64_t)NR_READS * PIECE, NULL, &mem);
	if (r == 0)
		r = pst_queue_new(&opts, &q);
	if (r == 0)
		r = start(q, file, mem);
	if (r < 0)
		(void)complain("start");
	/* Cancel every second sequence. */
	for (uint64_t seq = 1; r >= 0 && seq < NR_SEQS; seq += 2)
		if (pst_queue_cancel(q, seq) == -ENOENT)
			(void)printf("sequence %d was through already\n", (int)seq);
	if (r >= 0)
		r = finish(q, mem);
	(void)pst_queue_free(q);
	(void)pst_file_close(file);
	(void)pst_mem_free(mem);
	return r < 0;
}
