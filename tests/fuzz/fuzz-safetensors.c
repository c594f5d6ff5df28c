/* SPDX-License-Identifier: MIT */
/*
 * Arbitrary bytes as a safetensors file.  The tensors of an accepted file must lie inside the
 * file, in order, without gaps, with the lengths of their shapes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Abort unless @ok, also in release builds. */
static void must(int ok)
{
	if (!ok)
		abort();
}

static void check(const struct safetensors *st, uint64_t file_size)
{
	uint64_t at = st->data_off;

	must(st->data_off >= 10 && st->data_off + st->data_len == file_size);
	for (size_t i = 0; i < st->nr; i++) {
		const struct safetensor *t = &st->tensors[i];

		must(t->name && t->dtype);
		must(t->off == at && t->len <= file_size - at);
		at += t->len;
	}
	must(at == file_size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct safetensors *st = NULL;
	char why[200] = "";

	if (safetensors_parse(data, len, len, &st, why, sizeof(why)) == 0)
		check(st, len);
	else
		must(!st && *why && strlen(why) < sizeof(why));
	(void)safetensors_free(st);
	return 0;
}
