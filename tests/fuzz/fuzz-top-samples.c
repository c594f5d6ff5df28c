/* SPDX-License-Identifier: MIT */
/*
 * Arbitrary bytes as the statistics that a mount reports.  Accepted names and labels must be
 * texts inside the input; a refusal must name a line of the input.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/top/samples.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Abort unless @ok, also in release builds. */
static void must(int ok)
{
	if (!ok)
		abort();
}

struct input {
	const char *from, *to;
	unsigned nr;
};

static void is_within(const struct input *in, const char *text)
{
	must(text >= in->from && text < in->to && memchr(text, '\0', (size_t)(in->to - text)));
}

static int take(void *arg, const struct sample *s)
{
	struct input *in = arg;

	in->nr++;
	is_within(in, s->name);
	must(*s->name && s->nr_labels <= SAMPLE_LABELS);
	for (unsigned i = 0; i < s->nr_labels; i++) {
		is_within(in, s->key[i]);
		is_within(in, s->label[i]);
		is_within(in, sample_label(s, s->key[i]));
	}
	must(!*sample_label(s, "no such label"));
	return in->nr == 1000 ? -ECANCELED : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	char *text = malloc(len + 1);
	struct input in = { text, text + len + 1, 0 };
	unsigned line, lines = 1;
	int r;

	must(text != NULL);
	memcpy(text, data, len);
	text[len] = '\0';
	for (size_t i = 0; i < len; i++)
		lines += text[i] == '\n';
	r = samples_read(text, len, take, &in, &line);
	must(r == 0 || r == -EPROTO || r == -ECANCELED);
	must(line <= lines && in.nr <= line);
	free(text);
	return 0;
}
