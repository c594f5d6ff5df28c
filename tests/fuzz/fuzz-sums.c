/* SPDX-License-Identifier: MIT */
/*
 * Arbitrary bytes as a model's checksum file; the number in its first line is taken as the
 * model's size.  Accepted ranges must cover the model in order, and must be the same after they
 * are printed and parsed again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/sums.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Abort unless @ok, also in release builds. */
static void must(int ok)
{
	if (!ok)
		abort();
}

static void check(const struct sums *s)
{
	struct sums *again = NULL;
	uint64_t at = 0;
	char *text = NULL;
	size_t len = 0;
	char why[200];
	FILE *to;

	for (size_t i = 0; i < s->nr; i++) {
		must(s->v[i].off == at && s->v[i].len && s->v[i].len <= SUMS_RANGE_MAX);
		at += s->v[i].len;
	}
	must(at == s->size);
	to = open_memstream(&text, &len);
	must(to != NULL);
	sums_print(s, to);
	must(fclose(to) == 0);
	must(sums_parse(text, len, s->size, &again, why, sizeof(why)) == 0);
	must(again->nr == s->nr);
	must(!s->nr || !memcmp(again->v, s->v, s->nr * sizeof(*s->v)));
	(void)sums_free(again);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	const char *text = (const char *)data;
	struct sums *s = NULL;
	uint64_t size = 0;
	char why[200] = "";

	for (size_t i = 18; i < len && text[i] >= '0' && text[i] <= '9'; i++)
		size = size * 10 + (uint64_t)(text[i] - '0');
	if (sums_parse(text, len, size, &s, why, sizeof(why)) == 0)
		check(s);
	else
		must(!s && *why && strlen(why) < sizeof(why));
	(void)sums_free(s);
	return 0;
}
