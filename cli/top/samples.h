/* SPDX-License-Identifier: MIT */
/*
 * Parse the subset of Prometheus' text format that a mount's server writes.  The text comes from
 * another process, so every line is checked.
 */
#ifndef CLI_TOP_SAMPLES_H
#define CLI_TOP_SAMPLES_H

#include <stddef.h>

#define SAMPLE_LABELS 8u

struct sample {
	const char *name;
	unsigned nr_labels;
	const char *key[SAMPLE_LABELS], *label[SAMPLE_LABELS];
	double value;
};

/* Return the value of a label, or "". */
const char *sample_label(const struct sample *s, const char *key);

/*
 * Call fn for each line that is not a comment.  The text (len bytes and a NUL) is modified.
 * Return: 0; fn's result, if nonzero; -EPROTO with the line's number in *ret_line.
 */
int samples_read(char *text, size_t len, int (*fn)(void *arg, const struct sample *s), void *arg,
		 unsigned *ret_line);

#endif
