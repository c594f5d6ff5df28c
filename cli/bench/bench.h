/* SPDX-License-Identifier: MIT */
/* One measurement of penstock bench: requests through queues, or the plain way. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "tools/common/hist.h"
#include "tools/common/util.h"

#define BENCH_THREADS_MAX 256

/* The measurement to make.  Every thread works on its own part of the file. */
struct bench_job {
	const char *path; /* of the file */
	int fd;
	struct pst_file *file; /* for all threads, or NULL: each wraps fd by itself */
	uint64_t file_size;
	const char *device;
	bool host;         /* the CPU reaches the memory of device */
	bool plain_copies; /* plain reads go through a buffer and a copy; else into host memory */
	bool write, random;
	bool cold;       /* each byte once after the cache was dropped, if it comes through that */
	uint64_t size;   /* bytes of a piece */
	uint32_t pieces; /* of a request */
	uint32_t depth;
	uint32_t batch; /* completions to wait for at once */
	unsigned threads;
	unsigned turns; /* of the row */
	uint64_t policy;
	uint32_t store;
	bool strict;
	double seconds; /* of a turn, unless there is nothing left before */
	uint64_t bytes; /* most to move, all turns and threads together; 0: no limit */
};

/* Of one turn, or of several. */
struct bench_result {
	uint64_t bytes;
	uint64_t pieces;
	uint64_t requests;
	uint64_t ns;    /* from the first start to the last end */
	uint64_t setup; /* ns before the first, of the slowest thread: queue, engine, window */
	double cpu;     /* seconds of user and system time of the whole process */
	uint32_t paths;
	struct whys whys;
	struct hist hist; /* of requests */
};

/* The pinned pages of a file opened as stable. */
struct bench_pages {
	uint64_t bytes; /* of page cache */
	uint64_t ns;    /* that pinning took */
	uint64_t wait;  /* ns from the first read until nothing more was pinned */
	uint32_t why;   /* enum pst_why: why no device reads them, or PST_WHY_NONE */
	int32_t detail; /* of why */
};

/*
 * Read all of job->file, which is stable, into device memory, and wait until its pages are
 * pinned.  Not measured: a program that reads the file again has done that before.
 */
int bench_pin(const struct bench_job *job, struct bench_pages *ret);

/*
 * One side of a row: threads with their queues and memory, which stay from one turn to the next
 * and sleep between them.
 */
struct bench_side;

/* As many turns as a side may have of those that are wanted: walk_turns(). */
unsigned bench_turns(const struct bench_job *job, bool with_plain, unsigned wanted);

/* Start the threads and wait until they are set up; job stays the caller's and must remain. */
int bench_side_new(const struct bench_job *job, bool plain, struct bench_side **ret_side);
struct bench_side *bench_side_free(struct bench_side *s);

/*
 * Take the file out of the page cache, or see that it is there, and measure one turn, from 0 on.
 * After an error there can be no other.  0 or -errno with a sentence.
 */
int bench_side_turn(struct bench_side *s, unsigned turn, struct bench_result *ret);

void bench_result_add(struct bench_result *to, const struct bench_result *r);

static inline void bench_sidep(struct bench_side **s)
{
	(void)bench_side_free(*s);
}

#endif
