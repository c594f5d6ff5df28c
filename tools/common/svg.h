/* SPDX-License-Identifier: MIT */
#ifndef COMMON_SVG_H
#define COMMON_SVG_H

#include <stdint.h>
#include <stdio.h>

#define SVG_SERIES_MAX 8

struct svg_series {
	const char *name;
	const double *y; /* one value for each x; negative: missing */
};

/* A chart of lines: sizes on a logarithmic x axis, y from 0 upwards. */
struct svg_chart {
	const char *title;
	const char *subtitle[2]; /* small lines below the title; NULL: none */
	const char *y_name;
	const uint64_t *x; /* sizes in bytes, ascending */
	unsigned nr_x;
	struct svg_series series[SVG_SERIES_MAX];
	unsigned nr_series;
};

/*
 * Write a <text> element.  (x, y): left end of the base line; class: one of the style sheet; text
 * may be foreign (base/shown.h).
 */
void svg_label(FILE *f, double x, double y, const char *class, const char *text);

/* Write the chart to a file.  Return 0, or -errno with a sentence in fail_text(). */
int svg_write(const char *path, const struct svg_chart *chart);

#endif
