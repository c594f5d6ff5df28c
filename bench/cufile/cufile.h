/* SPDX-License-Identifier: MIT */
/*
 * Files to GPU memory by cuFile, by Penstock and by hand, side by side.
 *
 *	cufile.c	the arguments, and the file
 *	cells.c	cells: the ways take turns
 *	worker.c	a way's process: threads, memory, one turn, its bytes compared
 *	ways.c	the ways themselves
 *	lib.c		CUDA and cuFile, as far as they are here
 *	report.c	the table, and JSON
 *
 * Each way runs in a process of its own: a call of cuFile may never return, and a library must not
 * disturb the others.
 */
#ifndef BENCH_CUFILE_H
#define BENCH_CUFILE_H

#include <pthread.h>

#include "bench/vendor.h"
#include "tools/common/hist.h"
#include "tools/common/util.h"

#define SLOTS_MAX 256u
#define THREADS_MAX 64u
#define TURNS_MAX 99u
#define LIST_MAX 8u
#define BATCH_SIZE_MAX KIB(64) /* larger blocks need no batches */

enum way {
	CUFILE_DIRECT,
	CUFILE_BUFFERED,
	BATCH_DIRECT,
	BATCH_BUFFERED,
	OURS_ONE,
	OURS_DEEP,
	PLAIN,
	WAYS,
	FACTS = WAYS, /* moves a little, and says what there is */
};

struct settings {
	const char *path, *libcufile; /* NULL: one that is made; the one that is found */
	uint64_t size;                /* of the file that is used */
	uint64_t blocks[LIST_MAX];
	unsigned nr_blocks;
	unsigned threads[LIST_MAX];
	unsigned nr_threads;
	unsigned turns, depth, batch, gpu;
	double seconds, patience;
	bool cold, warm, json;
};

extern struct settings set;

static inline bool way_is_cufile(enum way w)
{
	return w <= BATCH_BUFFERED || w == FACTS;
}

static inline bool way_is_batch(enum way w)
{
	return w == BATCH_DIRECT || w == BATCH_BUFFERED;
}

static inline bool way_is_ours(enum way w)
{
	return w == OURS_ONE || w == OURS_DEEP;
}

/* Blocks of a thread that are under way at a time. */
unsigned way_slots(enum way w, uint64_t block);

/* --------------------------------------------------------------- processes */

enum what { ORDER_CELL, ORDER_TURN };

/* A worker's orders. */
struct order {
	uint32_t what, threads;
	uint64_t block, ns;
	bool cold; /* each block at most once */
};

enum status {
	DONE,
	REFUSED, /* not to be had here; the text says why */
	FAILED,
	WRONG, /* bytes */
	HANGS, /* the process that waited sets the last two */
	DIED,
};

struct facts {
	char gpu[128], driver[64];
	int cuda;       /* 13000 for 13.0 */
	int cufile;     /* 1150 for 1.15; 0: none */
	char file[256]; /* of cuFile */
	char mode[160]; /* how it moves bytes here */
	char fs[32];
};

/* The worker's answer to each, and once without being asked when it is ready. */
struct answer {
	enum status status;
	char text[400];
	uint64_t bytes, ops, ns;
	uint32_t paths;
	struct whys whys;
	struct hist hist; /* ns of blocks */
	struct facts facts;
};

/* Never returns. */
__attribute__((noreturn)) void cufile_worker_main(enum way way, int sock);

/* ------------------------------------------------------------------- lanes */

/* One thread of a worker. */
struct lane {
	pthread_t thread;
	unsigned idx;
	uint64_t first, nr;   /* its region, in blocks */
	uint64_t taken, most; /* of the turn */
	uint64_t begun, ended, ops;
	cu_ptr dev;
	cu_stream stream;
	char *host, *check;        /* a block each; host is pinned */
	uint64_t moved[SLOTS_MAX]; /* the offset that came into a slot last */
	uint64_t since[SLOTS_MAX]; /* ns */
	cuf_batch batch;
	struct pst_queue *queue;
	struct pst_mem *mem;
	uint32_t paths;
	struct whys whys;
	struct hist hist;
	enum status status;
	char text[400];
};

#define NOWHERE UINT64_MAX

/* Of the worker, for its ways. */
struct work {
	enum way way;
	struct order cell; /* the one that it is set up for */
	unsigned slots;
	uint64_t ns;       /* that a turn takes */
	int fd, fd_direct; /* -1: the file system has no O_DIRECT */
	cu_ctx ctx;
	cuf_handle handle;
	struct pst_file *file;
};

extern struct work work;

/* The next block's offset; false when the turn is over. */
bool lane_take(struct lane *l, uint64_t now, uint64_t *ret_off);

/* A block came into a slot. */
void lane_count(struct lane *l, unsigned slot, uint64_t off, uint64_t ns);

/* -------------------------------------------------------------------- ways */

/* 0 or -errno with a sentence; -EOPNOTSUPP where somebody refuses. */
int way_open(void);           /* once */
int way_init(struct lane *l); /* l->dev is there */
int way_pass(struct lane *l); /* until lane_take() ends it */
void way_done(struct lane *l);

/* --------------------------------------------------------------- libraries */

/* 0 or -errno with a sentence. */
int cuda_open(cu_ctx *ret);
int cuda_check(cu_result e, const char *call);
#define CU(call) cuda_check(cu.call, #call)

/* Loads and opens it, and registers the file of this descriptor. */
int cufile_load(void);
int bench_cufile_open(int fd, cuf_handle *ret);
int bench_cufile_check(struct cuf_error e, const char *call);
/* The error of a cuFileRead() that gave no whole block. */
int cufile_read_failed(ssize_t n, int err, uint64_t off);

/* The facts of the GPU and the file; and of cuFile, where status and text say what is not. */
void facts_gpu(struct facts *ret);
void facts_cufile(struct answer *ret);

/* ------------------------------------------------------------------- cells */

/* A way in a cell. */
struct result {
	bool asked; /* it takes part in this cell */
	enum status status;
	char text[400];
	unsigned nr;            /* turns */
	double rate[TURNS_MAX]; /* GB/s; sorted once the cell is done */
	uint64_t bytes, ops;
	uint32_t paths;
	struct whys whys;
	struct hist hist;
};

struct cell {
	uint64_t block;
	unsigned threads;
	bool cold;
	char text[200]; /* why it was not measured, or "" */
	struct result v[WAYS];
};

double result_median(const struct result *r);

/* Measures all cells, each shown as soon as it is done; 0, or -errno with a sentence. */
int cells_run(const char *path, int fd);

/* ------------------------------------------------------------------ report */

void report_begin(const char *path, const struct answer *facts);
void report_cell(const struct cell *c);
/* Also of a run that was stopped.  1: wrong bytes, or a way without cuFile failed; else 0. */
int report_end(void);

#endif
