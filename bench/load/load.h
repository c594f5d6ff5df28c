/* SPDX-License-Identifier: MIT */
/*
 * Load the tensors of safetensors files into device memory, by Penstock or by plain calls, and
 * print the time.  bench/loaders runs this program and other loaders; it also runs alone.
 *
 *	load.c		arguments, loads, results
 *	model.c		files, tensors, memory, and checks of its bytes
 *	penstock.c	one request per tensor, which runs while the next tensor gets memory
 *	pinned.c	the usual loop: each thread reads with pread(2) into one of two registered
 *			buffers, while the other one is copied
 *
 * The time runs from before the first file is opened until all bytes are in device memory.  The
 * device's context is created before, because every program that uses a GPU has one.
 */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include <penstock.h>

#include "base/base.h"
#include "bench/vendor.h"
#include "tools/common/fail.h"
#include "tools/common/safetensors.h"

#define SHARDS_MAX 1024
#define THREADS_MAX 256

/* Destination of a tensor. */
struct place {
	struct pst_mem *mem; /* memory of the tensor, or of the whole file */
	uint64_t off;        /* bytes from the start of mem */
	uint64_t addr;       /* device address of the first byte */
};

/* A file, used by one thread at a time. */
struct shard {
	const char *path;
	uint64_t size; /* bytes of the file */
	struct safetensors *st;
	struct place *places; /* one entry per tensor */
	struct pst_mem **mems;
	size_t nr_mems;
	uint64_t alloc_ns; /* ns spent on allocating memory */
};

struct settings {
	struct pst_device device;
	/* for pinned: number of reading threads; for penstock: number of files in flight */
	unsigned threads;
	uint64_t piece; /* pinned: bytes of one buffer */
	bool per_file;  /* one allocation per file instead of one per tensor */
	bool direct;    /* pinned: read with O_DIRECT */
	bool stable;    /* penstock: open files as stable */
};

extern struct settings set;

static inline bool on_cuda(void)
{
	return set.device.kind == PST_KIND_CUDA;
}

static inline bool on_host(void)
{
	return set.device.kind == PST_KIND_HOST;
}

/* These functions return 0, or -errno with a sentence for the calling thread. */

/* Open the file and read its table of contents. */
int model_shard_open(struct shard *s);
/* Allocate memory for a tensor; with per_file, for all tensors at once. */
int shard_place(struct shard *s, size_t i);
/* Close the file and free the memory; s->path stays. */
void shard_drop(struct shard *s);
/* Compute the CRC-32 of each tensor's bytes on the device; ret has one entry per tensor. */
int shard_crc(const struct shard *s, uint32_t *ret);

/* Run work on nr indices, in at most at_once threads. */
int each(unsigned nr, unsigned at_once, int (*work)(void *arg, unsigned idx), void *arg);

/* Make the device's context, if it has one. */
int device_start(void);

/*
 * Load closed files until all bytes are in device memory.  ret_paths: the paths taken; "" if
 * unknown.
 */
int penstock_load(struct shard *shards, unsigned nr, char *ret_paths, size_t len);
int pinned_load(struct shard *shards, unsigned nr, char *ret_paths, size_t len);

#endif
