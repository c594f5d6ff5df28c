/* SPDX-License-Identifier: MIT */
/*
 * Checksums beside a safetensors file, as MODEL.safetensors.crc32c has them.  That file is text:
 * the line "penstock-crc32c 1 BYTES" with the length of the model, then a line "CRC OFFSET BYTES"
 * for each range, the CRC-32C as eight hexadecimal digits.  The ranges cover the model without a
 * gap, in order, none is longer than 16 MiB, and none reaches into two tensors.
 */
#ifndef CLI_SUMS_H
#define CLI_SUMS_H

#include <stdio.h>

#include "tools/common/safetensors.h"

#define SUMS_SUFFIX ".crc32c"
#define SUMS_RANGE_MAX (16u << 20) /* bytes of a range */
#define SUMS_TEXT_MAX (64u << 20)  /* bytes of the text; 160,000 tensors of 16 MiB take 8 */

struct sum {
	uint64_t off; /* in the model */
	uint32_t len;
	uint32_t crc;
};

struct sums {
	uint64_t size; /* bytes of the model */
	size_t nr;
	struct sum *v;
};

/* Cut a model into the ranges, without checksums.  Return NULL without memory. */
struct sums *sums_new(const struct safetensors *st);

/*
 * Read the text of such a file, which is hostile.
 * @size: bytes of the model
 * @ret:  to be freed with sums_free()
 * @why:  on failure, a sentence without a full stop
 *
 * Return: 0; -EINVAL for a text that is none, or of a file of another length; -ENOMEM.
 */
int sums_parse(const char *text, size_t len, uint64_t size, struct sums **ret, char *why,
	       size_t why_len);

/* Print the text. */
void sums_print(const struct sums *s, FILE *to);

struct sums *sums_free(struct sums *s);

static inline void sums_freep(struct sums **s)
{
	(void)sums_free(*s);
}

#endif
