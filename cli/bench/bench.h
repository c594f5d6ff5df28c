/* SPDX-License-Identifier: MIT */
/* One measurement of penstock bench, either by requests through queues or by plain system calls. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "tools/common/hist.h"
#include "tools/common/util.h"

#define BENCH_THREADS_MAX 256

/* The measurement to make.  Every thread works on its own part of the file. */
struct bench_job {
	const char *path; /* path of the file */
	int fd;
	struct pst_file *file; /* file for all threads; NULL: each thread wraps fd itself */
	uint64_t file_size;
	const char *device;
	bool host; /* the CPU can access the device's memory */
	/* the plain side reads into a buffer and copies from there to the device; false: it reads
	 * into host memory */
	bool plain_copies;
	bool write, random;
	bool cold;       /* drop the file from the page cache; then read each byte once */
	uint64_t size;   /* bytes of one piece */
	uint32_t pieces; /* pieces of one request */
	uint32_t depth;
	uint32_t batch; /* completions to wait for at once */
	unsigned threads;
	unsigned turns; /* turns of the row */
	uint64_t policy;
	uint32_t store;
	bool strict;
	double seconds; /* seconds of a turn; it ends earlier if no bytes are left */
	uint64_t bytes; /* maximum bytes of all turns and threads together; 0: no limit */
};

/* The result of one turn, or of several. */
struct bench_result {
	uint64_t bytes;
	uint64_t pieces;
	uint64_t requests;
	uint64_t ns;    /* ns from the first start to the last end */
	uint64_t setup; /* ns of the slowest thread before its first turn: queue, engine, window */
	double cpu;     /* CPU seconds, user and system, of the whole process */
	uint32_t paths;
	struct whys whys;
	struct hist hist; /* latency of requests */
};

/* The pinned pages of a file opened as stable. */
struct bench_pages {
	uint64_t bytes; /* bytes of page cache */
	uint64_t ns;    /* ns that pinning took */
	uint64_t wait;  /* ns from the first read until the library pinned no more pages */
	uint32_t why;   /* enum pst_why: why no device reads the pages, or PST_WHY_NONE */
	int32_t detail; /* detail of why */
};

/*
 * Read all of job->file, a stable file, into device memory, and wait until its pages are pinned.
 * Not measured: a program that reads a file repeatedly pays for this once.
 */
int bench_pin(const struct bench_job *job, struct bench_pages *ret);

/*
 * One side of a row: threads with their queues and memory.  They exist for all turns and sleep
 * between them.
 */
struct bench_side;

/* Return how many of the wanted turns a side can have: see walk_turns(). */
unsigned bench_turns(const struct bench_job *job, bool with_plain, unsigned wanted);

/* Start the threads and wait until they are set up. job must remain valid; the caller frees it. */
int bench_side_new(const struct bench_job *job, bool plain, struct bench_side **ret_side);
struct bench_side *bench_side_free(struct bench_side *s);

/*
 * Drop the file from the page cache, or read it into the page cache, then measure one turn; the
 * first turn is 0. After an error, do not call again.  Return 0, or -errno with a sentence.
 */
int bench_side_turn(struct bench_side *s, unsigned turn, struct bench_result *ret);

void bench_result_add(struct bench_result *to, const struct bench_result *r);

static inline void bench_sidep(struct bench_side **s)
{
	(void)bench_side_free(*s);
}

#endif
