/* SPDX-License-Identifier: MIT */
/*
 * Compare file reads to GPU memory: cuFile, Penstock, and plain calls.
 *
 *	cufile.c	arguments, and the file
 *	cells.c	cells, in which the ways take turns
 *	worker.c	a way's process: threads, memory, one turn, comparing the bytes
 *	ways.c	the ways themselves
 *	lib.c		load CUDA and cuFile, if present
 *	report.c	the table, and JSON
 *
 * Each way runs in its own process: a call of cuFile may never return, and one library must not
 * disturb another.
 */
#ifndef BENCH_CUFILE_H
#define BENCH_CUFILE_H

#include <pthread.h>

#include "bench/vendor.h"
#include "tools/common/hist.h"
#include "tools/common/spread.h"
#include "tools/common/util.h"

#define SLOTS_MAX 256u
#define THREADS_MAX 64u
#define TURNS_MAX 99u
#define LIST_MAX 8u
#define BATCH_SIZE_MAX KIB(64) /* bytes; larger blocks gain nothing from batches */

enum way {
	CUFILE_DIRECT,
	CUFILE_BUFFERED,
	BATCH_DIRECT,
	BATCH_BUFFERED,
	OURS_ONE,
	OURS_DEEP,
	PLAIN,
	WAYS,
	FACTS = WAYS, /* not a way: a worker that reads a little, and reports the facts */
};

struct settings {
	const char *path, *libcufile; /* file, NULL: make one; cuFile, NULL: search for it */
	uint64_t size;                /* bytes of the file that are used */
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

/* Return how many blocks a thread of the way keeps in flight. */
unsigned way_slots(enum way w, uint64_t block);

/* --------------------------------------------------------------- processes */

enum what { ORDER_CELL, ORDER_TURN };

/* An order to a worker. */
struct order {
	uint32_t what, threads;
	uint64_t block, ns;
	bool cold; /* read each block at most once */
};

enum status {
	DONE,
	REFUSED, /* impossible on this machine; text has the reason */
	FAILED,
	WRONG, /* wrong bytes */
	HANGS, /* no answer in time; set by the waiting process, like DIED */
	DIED,
};

struct facts {
	char gpu[128], driver[64];
	int cuda;       /* version of CUDA; 13000 for 13.0 */
	int cufile;     /* version of cuFile; 1150 for 1.15; 0: none */
	char file[256]; /* file of the cuFile library */
	char mode[160]; /* how cuFile moves bytes here */
	char fs[32];
};

/* A worker's answer to an order; a worker also sends one, without an order, when it is ready. */
struct answer {
	enum status status;
	char text[400];
	uint64_t bytes, ops, ns;
	uint32_t paths;
	struct whys whys;
	struct hist hist; /* ns per block */
	struct facts facts;
};

/* Run a worker; never returns. */
__attribute__((noreturn)) void cufile_worker_main(enum way way, int sock);

/* ------------------------------------------------------------------- lanes */

/* One thread of a worker. */
struct lane {
	pthread_t thread;
	unsigned idx;
	uint64_t first, nr;   /* the lane's region: first block, number of blocks */
	uint64_t taken, most; /* blocks of this turn: taken, limit */
	uint64_t begun, ended, ops;
	cu_ptr dev;
	cu_stream stream;
	char *host, *check;        /* buffers of one block; host is pinned */
	uint64_t moved[SLOTS_MAX]; /* file offset of the last block in each slot */
	uint64_t since[SLOTS_MAX]; /* ns; when each slot's block began */
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

/* State of a worker, shared with its ways. */
struct work {
	enum way way;
	struct order cell; /* order that the worker is set up for */
	unsigned slots;
	uint64_t ns;       /* duration of a turn */
	int fd, fd_direct; /* descriptors; -1: the file system lacks O_DIRECT */
	cu_ctx ctx;
	cuf_handle handle;
	struct pst_file *file;
};

extern struct work work;

/* Return the offset of the next block; false at the end of the turn. */
bool lane_take(struct lane *l, uint64_t now, uint64_t *ret_off);

/* Record a block that has arrived in a slot. */
void lane_count(struct lane *l, unsigned slot, uint64_t off, uint64_t ns);

/* -------------------------------------------------------------------- ways */

/* Functions of the way.  Return 0, or -errno with a sentence; -EOPNOTSUPP if something is
 * refused. */
int way_open(void);           /* called once */
int way_init(struct lane *l); /* l->dev is allocated already */
int way_pass(struct lane *l); /* reads until lane_take() returns false */
void way_done(struct lane *l);

/* --------------------------------------------------------------- libraries */

/* Open CUDA.  Return 0, or -errno with a sentence. */
int cuda_open(cu_ctx *ret);
int cuda_check(cu_result e, const char *call);
#define CU(call) cuda_check(cu.call, #call)

/* Load and open cuFile, and register the file of this descriptor. */
int cufile_load(void);
int bench_cufile_open(int fd, cuf_handle *ret);
int bench_cufile_check(struct cuf_error e, const char *call);
/* Return the error of a cuFileRead() that read no whole block. */
int cufile_read_failed(ssize_t n, int err, uint64_t off);

/* facts_gpu() gets facts about the GPU and the file, facts_cufile() about cuFile: status and text
 * of the answer say what is missing. */
void facts_gpu(struct facts *ret);
void facts_cufile(struct answer *ret);

/* ------------------------------------------------------------------- cells */

/* Results of a way in a cell. */
struct result {
	bool asked; /* the way takes part in this cell */
	enum status status;
	char text[400];
	unsigned nr;            /* number of turns */
	double rate[TURNS_MAX]; /* GB/s per turn */
	struct spread spread;   /* spread of rate, set at the end of the cell */
	uint64_t bytes, ops;
	uint32_t paths;
	struct whys whys;
	struct hist hist;
};

struct cell {
	uint64_t block;
	unsigned threads;
	bool cold;
	char text[200]; /* why the cell was not measured, or "" */
	struct result v[WAYS];
};

double result_median(const struct result *r);

/* Measure all cells, showing each at its end.  Return 0, or -errno with a sentence. */
int cells_run(const char *path, int fd);

/* ------------------------------------------------------------------ report */

void report_begin(const char *path, const struct answer *facts);
void report_cell(const struct cell *c);
/* End the report, even of a stopped run.  Return 1 if bytes were wrong or a way other than cuFile's
 * failed; otherwise 0. */
int report_end(void);

#endif
