/* SPDX-License-Identifier: MIT */
/*
 * Loads the tensors of safetensors files into device memory, by Penstock or by hand, and says
 * how long that took.  bench/loaders runs it beside other loaders; it runs by itself, too.
 *
 *	load.c		the arguments, the loads, their printed results
 *	model.c		files, tensors, memory, and checks of the bytes in it
 *	penstock.c	a request for each tensor, which runs while the next ones get their memory
 *	pinned.c	a loop that anybody would write: pread(2) into two registered buffers a
 *			thread, and copies from one while the other is filled
 *
 * The clock runs from before the first file is opened until all bytes are in memory of the
 * device.  The device's context is made before: every program that uses a GPU has one.
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

/* Where a tensor's bytes are to be. */
struct place {
	struct pst_mem *mem; /* of its own, or of its file */
	uint64_t off;        /* in mem */
	uint64_t addr;       /* of the first byte, as the device knows it */
};

/* A file.  Only one thread at a time works on it. */
struct shard {
	const char *path;
	uint64_t size; /* bytes of the file */
	struct safetensors *st;
	struct place *places; /* of each tensor */
	struct pst_mem **mems;
	size_t nr_mems;
	uint64_t alloc_ns; /* that allocating them took */
};

struct settings {
	struct pst_device device;
	unsigned threads; /* pinned: that read; penstock: files at a time */
	uint64_t piece;   /* pinned: bytes of a buffer */
	bool per_file;    /* one allocation for a file, and not one for each tensor */
	bool direct;      /* pinned: by O_DIRECT */
	bool stable;      /* penstock: nobody changes the files */
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

/* All of these: 0, or -errno with a sentence in this thread. */

/* Open the file and read its table of contents. */
int model_shard_open(struct shard *s);
/* Allocate memory for a tensor, or for all where that is one. */
int shard_place(struct shard *s, size_t i);
/* Undo both; s->path stays. */
void shard_drop(struct shard *s);
/* The CRC-32 of each tensor's bytes, as they are on the device; ret has one for each. */
int shard_crc(const struct shard *s, uint32_t *ret);

/* Run work on each of nr indices, at most so many at a time, each in a thread. */
int each(unsigned nr, unsigned at_once, int (*work)(void *arg, unsigned idx), void *arg);

/* Make the device's context, if it has one. */
int device_start(void);

/*
 * Load all: from closed files to bytes in memory.  ret_paths is the way that they took; it is
 * empty where nobody tells.
 */
int penstock_load(struct shard *shards, unsigned nr, char *ret_paths, size_t len);
int pinned_load(struct shard *shards, unsigned nr, char *ret_paths, size_t len);

#endif
