/* SPDX-License-Identifier: MIT */
/*
 * Checksum files of safetensors files, MODEL.safetensors.crc32c.  Their text is the line
 * "penstock-crc32c 1 BYTES", with the model's length, and one line "CRC OFFSET BYTES" per range,
 * with the CRC-32C as eight hexadecimal digits.  The ranges cover the model in order and without
 * gaps.  No range is longer than 16 MiB or contains bytes of two tensors.
 */
#ifndef CLI_SUMS_H
#define CLI_SUMS_H

#include <stdio.h>

#include "tools/common/safetensors.h"

#define SUMS_SUFFIX ".crc32c"
#define SUMS_RANGE_MAX (16u << 20) /* maximum bytes of a range */
/* Maximum bytes of the text; 160,000 tensors of 16 MiB take 8 MB. */
#define SUMS_TEXT_MAX (64u << 20)

struct sum {
	uint64_t off; /* bytes from the start of the model */
	uint32_t len;
	uint32_t crc;
};

struct sums {
	uint64_t size; /* bytes of the model */
	size_t nr;
	struct sum *v;
};

/* Divide a model into ranges, without checksums.  Return NULL if out of memory. */
struct sums *sums_new(const struct safetensors *st);

/*
 * Parse a checksum file, which is hostile.
 * @size: bytes of the model
 * @ret: to be freed with sums_free()
 * @why: on failure, a sentence without a full stop
 *
 * Return: 0; -EINVAL for malformed text, or for a model of another length; -ENOMEM.
 */
int sums_parse(const char *text, size_t len, uint64_t size, struct sums **ret, char *why,
	       size_t why_len);

/* Print the text of the checksum file. */
void sums_print(const struct sums *s, FILE *to);

struct sums *sums_free(struct sums *s);

static inline void sums_freep(struct sums **s)
{
	(void)sums_free(*s);
}

#endif
