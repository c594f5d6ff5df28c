/* SPDX-License-Identifier: MIT */
/*
 * Baselines for Penstock: move bytes between a file and NVIDIA memory in a few plain lines, without
 * libpenstock and without NVIDIA's headers.
 *
 *	plain		pread into ordinary memory, cuMemcpyHtoD
 *	pinned		two registered buffers per thread, cuMemcpyHtoDAsync from one while the
 *			other is filled
 *	odirect		O_DIRECT between the disk and host memory: the disk's own rate
 *	gpu-write	pinned in the other direction
 *	cufile		cuFileRead or cuFileWrite on registered buffers
 *
 *	raw.c		the arguments
 *	file.c		the file, and the order of its pieces
 *	vendor.c	load CUDA and cuFile, if present
 *	lanes.c		the threads, and the modes
 *	report.c	passes, and their printed results
 *
 * Threads take pieces from a common counter.  After each pass every thread compares its last pieces
 * in device memory and file; this is not timed.
 */
#ifndef BENCH_RAW_H
#define BENCH_RAW_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "bench/vendor.h"
#include "tools/common/hist.h"

#define THREADS_MAX 256
#define PASSES_MAX 100
#define SLOTS 2
#define PAGE 4096
#define NONE UINT64_MAX
#define REFUSED 3 /* exit status: this machine cannot run the mode */

enum mode { PLAIN, PINNED, ODIRECT, GPU_WRITE, CUFILE };

extern const char *const mode_names[];

struct settings {
	enum mode mode;
	const char *path, *libcufile;
	uint64_t size, block, bytes;
	unsigned threads, passes;
	int gpu;
	double seconds;
	bool random, cold, direct, write, json;
};

extern struct settings set;

static inline bool on_gpu(void)
{
	return set.mode != ODIRECT;
}

__attribute__((noreturn, format(printf, 2, 3))) void die(int status, const char *fmt, ...);

/* ------------------------------------------------------------------- file */

extern int fd, fd_direct; /* descriptors: buffered; O_DIRECT or -1 */

void raw_file_open(void);
/* Open the file again for one lane: threads that share a descriptor contend for its reference
 * count.  Return -1 with errno on failure. */
int raw_file_again(bool direct);
/* Return the part of the first gigabyte that is in the page cache; negative: unknown. */
double raw_file_resident(void);
void file_make_cold(void);
void file_make_warm(void);
/* Return true if there is an idx-th piece; with --seconds there always is. */
bool file_has(uint64_t idx);
/* Return the offset of a block of a piece; with random offsets, each block has its own. */
uint64_t raw_file_place(uint64_t idx, uint64_t block);

/* ---------------------------------------------------------------- vendors */

extern cu_ctx ctx;
extern cuf_handle cf_handle;
extern char gpu_name[128];
/* Loaded here, because the library itself does not use this function. */
extern cu_result (*memcpy_htod)(cu_ptr dst, const void *src, size_t len);

void load_cuda(void);
void load_cufile(void);
const char *cu_text(cu_result err);

/* ------------------------------------------------------------------ lanes */

/* One thread. */
struct lane {
	pthread_t thread;
	unsigned idx;
	int fd, fd_direct; /* descriptors: buffered; O_DIRECT or -1 */
	char *host[SLOTS];
	char *check;
	cu_ptr dev[SLOTS];
	cu_stream stream[SLOTS];
	uint64_t moved[SLOTS]; /* index of the slot's last piece */
	uint64_t begun, ended, ops, bytes, verified;
	struct hist hist; /* ns per piece */
	int status;       /* 0, or an exit status, with its message in text */
	char text[400];
};

extern struct lane *lanes;
extern pthread_barrier_t gate;
extern bool stop;     /* changed only between two calls of gate_wait() */
extern unsigned turn; /* number of the pass, from 0 */
extern _Atomic uint64_t next_piece;

/* The main function of a lane's thread. */
void *lane_main(void *arg);
void gate_wait(void);

/* ------------------------------------------------------------------ report */

/* Run all passes, and print their results. */
void run(void);

#endif
