/* SPDX-License-Identifier: MIT */
/* One measurement of penstock bench: requests through queues, or the plain way. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "tools/common/hist.h"
#include "tools/common/util.h"

#define BENCH_THREADS_MAX 256

/* What to measure.  Every thread works on its own part of the file. */
struct bench_job {
	const char *path; /* of the file */
	int fd;
	struct pst_file *file; /* for all threads, or NULL: each wraps fd by itself */
	uint64_t file_size;
	const char *device;
	bool host; /* device memory is what plain reads go to: no copy */
	bool write, random;
	bool cold;       /* each byte at most once, after the cache was dropped */
	uint64_t size;   /* bytes of a piece */
	uint32_t pieces; /* of a request */
	uint32_t depth;
	uint32_t batch; /* completions to wait for at once */
	unsigned threads;
	uint64_t policy;
	uint32_t store;
	bool strict;
	double seconds; /* how long, unless bytes is reached before */
	uint64_t bytes; /* most to move, all threads together; 0: no limit */
};

struct bench_result {
	uint64_t bytes;
	uint64_t pieces;
	uint64_t requests;
	uint64_t ns;    /* from the first start to the last end */
	uint64_t setup; /* ns before that, of the slowest thread: queue, engine, window */
	double cpu;     /* seconds of user and system time of the whole process */
	uint32_t paths;
	struct whys whys;
	struct hist hist; /* of requests */
};

/* What was pinned of a file opened as stable. */
struct bench_pages {
	uint64_t bytes; /* of page cache */
	uint64_t ns;    /* that pinning took */
	uint64_t wait;  /* ns from the first read until nothing more was pinned */
	uint32_t why;   /* enum pst_why: why no device reads them, or PST_WHY_NONE */
	int32_t detail; /* of why */
};

/*
 * Read all of job->file, which is stable, into device memory, and wait until its pages are
 * pinned.  Not measured; it is what a program has behind it that reads the file again.
 */
int bench_pin(const struct bench_job *job, struct bench_pages *ret);

/* 0 or -errno with a sentence. */
int bench_ours(const struct bench_job *job, struct bench_result *ret);
int bench_plain(const struct bench_job *job, struct bench_result *ret);

#endif
