/* SPDX-License-Identifier: MIT */
/* Shared types of the demonstration, and its steps. */
#ifndef CLI_DEMO_H
#define CLI_DEMO_H

#include "tools/common/shards.h"
#include "tools/common/xfer.h"

#define DEMO_STEPS_MAX 8
#define DEMO_DEPTH 32
#define DEMO_CHUNK MIB(4)
#define DEMO_BATCH_PAGES 128 /* KV pages per request */

/* One step: the same bytes moved by requests and by plain pread(2) or pwrite(2) with copies. */
struct demo_step {
	char name[64];
	char unit[32];        /* what one latency measures, such as a tensor */
	char pieces[16];      /* size of the pieces of a request, or "" */
	const char *state;    /* "cold" or "warm" */
	const char *plain_by; /* system calls of the plain side */
	bool stayed; /* the files stayed in memory although the step should read them cold */
	bool copied; /* the plain side read local copies of objects */
	struct xfer_stats ours, plain;
};

/* Amounts that were compared and were equal; the command ends at the first difference. */
struct compared {
	uint64_t device;    /* bytes read back from device memory, for both sides */
	uint64_t untouched; /* bytes next to the data that stayed unchanged, for both sides */
	uint64_t file;      /* bytes of written files, read back by pread(2) */
	uint64_t crcs;      /* checksums of completions that were compared */
};

struct demo {
	char *dir; /* scratch directory */
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

/* Allocate device memory; fail with a sentence that contains the cure. */
int demo_alloc(const struct demo *d, uint64_t len, struct pst_mem **ret);

/* Make a file cold for a step, and record in the step if that fails. */
void demo_make_cold(struct demo_step *step, int fd);

/*
 * Return true if the plain side copies to or from the device.  For host memory the plain side reads
 * into the memory itself.  For the software device it reads into a host buffer only, because copies
 * to an emulated device would not be comparable.
 */
bool demo_plain_copies(const struct demo *d);

/* Return where the plain side reads to: the memory at that offset if the CPU can access it, else
 * d->buf. */
uint8_t *demo_plain_buf(const struct demo *d, struct pst_mem *mem, uint64_t off);

/* Overwrite device memory, so that bytes of an earlier run cannot pass the check. */
int demo_poison(struct demo *d, struct pst_mem *mem, uint64_t len);
bool demo_is_poison(const void *buf, size_t len);

/* Load every tensor of every shard: cold, warm, and warm with checksums. */
int demo_load(struct demo *d);

/* Write KV blocks from device memory to a file, and read scattered pieces back. */
int demo_kv(struct demo *d);

#endif
