/* SPDX-License-Identifier: MIT */
/* A run of penstock bench: settings, results, and the three output formats. */
#ifndef CLI_BENCH_REPORT_H
#define CLI_BENCH_REPORT_H

#include "cli/bench/bench.h"
#include "cli/bench/turns.h"

#define SIZES_MAX 16

struct settings {
	const char *file, *dir, *device, *plot, *path_list;
	uint64_t size;
	uint64_t sizes[SIZES_MAX];
	unsigned nr_sizes;
	bool json, baseline, overwrite, cold, said_cold, strict, stable;
	bool write, random;
	const char *op;
	uint32_t pieces, depth, batch, store;
	unsigned queues, turns;
	uint64_t policy, bytes;
	double seconds;
};

struct side_sum {
	struct bench_result all;
	struct turn turns[TURNS_MAX];
};

struct row {
	uint64_t size;
	unsigned turns;
	struct side_sum ours, plain;
};

struct bench {
	const struct settings *set;
	struct machine m;
	struct pst_device dev;
	char *dir;  /* directory of the scratch file, or NULL */
	char *path; /* path of the file */
	int fd;
	uint64_t file_size;
	char fs[16];
	bool cold;
	struct pst_file *file; /* the file opened as stable, or NULL */
	struct bench_pages pages;
	struct row *rows;
	unsigned nr_rows;
};

/* These functions return 0, or -errno with a sentence. */
int bench_print_table(const struct bench *b);
int bench_plot(const struct bench *b);

void bench_print_json(const struct bench *b);

#endif
