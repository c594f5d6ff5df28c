/* SPDX-License-Identifier: MIT */
/*
 * Reads that their callers copy themselves (single.c). way.h declares the functions that paths
 * call.
 */
#ifndef PST_SINGLE_H
#define PST_SINGLE_H

#include "core/sched/engine.h"

/* Return how many of up to sixteen CPUs are not used by callers that copy; at least 1.  Under the
 * lock. */
unsigned single_free_cpus(const struct engine *e);

#endif
