/* SPDX-License-Identifier: MIT */
/* Model shards in safetensors format, either generated or the user's. */
#ifndef CLI_SHARDS_H
#define CLI_SHARDS_H

#include "tools/common/safetensors.h"
#include "tools/common/util.h"

struct shard {
	char *path;
	int fd;      /* the file; for an object, a copy without a name */
	bool object; /* name is s3://, rados:// or similar: only requests read the object itself */
	struct safetensors *st;
	struct pst_file *file;
	uint32_t *crcs; /* CRC-32C of each tensor in st */
	bool made;      /* generated: the bytes are a pattern of seed and file offset */
	uint64_t seed;
};

/*
 * Generate a shard of about len bytes, the idx-th of nr, and sync it: the layers of a transformer
 * in BF16 with F32 norms, and some tensors of odd sizes.  Return: 0, or -errno with a sentence.
 */
int shard_make(struct shard *s, const char *path, uint64_t len, unsigned idx, unsigned nr);

/*
 * Take a file of the user's, and read it once for the CRCs.
 * @dir: an object (SCHEME://...) is copied into this directory
 * Return: 0 or -errno with a sentence.
 */
int shard_open(struct shard *s, const char *path, const char *dir);

/*
 * Compare bytes with those of the shard at an offset.  Return: 0; -EIO with a sentence for a
 * difference.
 */
int shard_compare(const struct shard *s, uint64_t off, const void *buf, size_t len,
		  const char *what);

/* Close a shard; zeroed memory with fd -1 is allowed. */
void shard_done(struct shard *s);

#endif
