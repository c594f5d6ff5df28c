/* SPDX-License-Identifier: MIT */
/*
 * Prometheus' text format, as far as the server of a mount writes it.  The text comes from another
 * process: every line is checked.
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

/* The value of a label, or "". */
const char *sample_label(const struct sample *s, const char *key);

/*
 * Calls fn for each line that is no comment.  The text, which a 0 ends at len, is changed.
 * Return: 0; what fn returns unless that is 0; -EPROTO, and *ret_line is the number of the line.
 */
int samples_read(char *text, size_t len, int (*fn)(void *arg, const struct sample *s), void *arg,
		 unsigned *ret_line);

#endif
