/* SPDX-License-Identifier: MIT */
/* Measure the steps of opening and closing a window; gdrcopy's apiperf prints the same times in its
 * own form. */
#ifndef CLI_WINDOW_API_H
#define CLI_WINDOW_API_H

#include "cli/window/window.h"

enum api_step { API_WRAP, API_OPEN, API_INFO, API_CLOSE, API_FREE, API_STEPS };

#define API_BINS 10u

struct api_times {
	double *ns[API_STEPS]; /* ns of each turn, per step */
};

/* A histogram with bins of equal width from the shortest to the longest time. */
struct api_hist {
	double min, width; /* ns */
	unsigned nr[API_BINS];
};

int api_times_init(struct api_times *t, unsigned nr);
void api_times_done(struct api_times *t);

/* Open and close windows of len bytes: a few as warm-up, then nr that are measured. */
int api_measure(const struct win *win, const struct win_set *set, uint64_t len, unsigned warm_up,
		unsigned nr, struct api_times *ret);

void api_hist(const double *ns, unsigned nr, struct api_hist *ret);

#endif
