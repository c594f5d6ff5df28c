/* SPDX-License-Identifier: MIT */
/* The parts of the demonstration: their shared types, and the steps that they add. */
#ifndef CLI_DEMO_H
#define CLI_DEMO_H

#include "tools/common/shards.h"
#include "tools/common/xfer.h"

#define DEMO_STEPS_MAX 8
#define DEMO_DEPTH 32
#define DEMO_CHUNK MIB(4)
#define DEMO_BATCH_PAGES 128 /* KV pages in one request */

/* One step: the same bytes moved by requests and by plain pread(2) or pwrite(2) and copies. */
struct demo_step {
	char name[64];
	char unit[32];        /* what the latencies are of */
	char pieces[16];      /* size of those that requests are made of, or "" */
	const char *state;    /* "cold" or "warm" */
	const char *plain_by; /* calls of the plain way */
	bool stayed;          /* should be cold, but the files stayed in memory */
	struct xfer_stats ours, plain;
};

/* Bytes and checksums that were compared and were right; a difference ends the command. */
struct compared {
	uint64_t device;    /* read back from device memory, of requests and of the plain way */
	uint64_t untouched; /* likewise, beside the loaded ones: they must not change */
	uint64_t file;      /* read by pread(2) out of files that were written */
	uint64_t crcs;      /* of completions */
};

struct demo {
	char *dir; /* scratch */
	struct pst_device dev;
	struct pst_queue *queue;
	uint8_t *buf; /* DEMO_CHUNK bytes for plain copies and comparisons */

	struct shard *shards;
	unsigned nr_shards;
	uint64_t kv_bytes;

	struct demo_step *steps;
	unsigned nr_steps;
	struct compared compared;
};

struct demo_step *demo_step_add(struct demo *d, const char *name, const char *unit, bool cold);

/* Memory of the device, or a sentence that says what to do about it. */
int demo_alloc(const struct demo *d, uint64_t len, struct pst_mem **ret);

/* Make a file cold for a step, which notes where that does not work. */
void demo_make_cold(struct demo_step *step, int fd);

/*
 * The plain way reads and writes memory of the host without a copy: into the memory itself, or
 * into a buffer in place of the software device, whose copies only an emulator needs.
 */
bool demo_plain_copies(const struct demo *d);

/* Where the plain way reads to: the memory at that offset where a CPU reaches it, else d->buf. */
uint8_t *demo_plain_buf(const struct demo *d, struct pst_mem *mem, uint64_t off);

/* Overwrite device memory, so that bytes of an earlier run are no success. */
int demo_poison(struct demo *d, struct pst_mem *mem, uint64_t len);
bool demo_is_poison(const void *buf, size_t len);

/* Load every tensor of every shard: cold, warm, and warm with checksums. */
int demo_load(struct demo *d);

/* Write KV blocks out of device memory and bring scattered pieces back. */
int demo_kv(struct demo *d);

#endif
