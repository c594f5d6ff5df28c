/* SPDX-License-Identifier: MIT */
/*
 * Reads that their callers copy themselves (single.c); the calls for ways are in way.h.
 */
#ifndef PST_SINGLE_H
#define PST_SINGLE_H

#include "core/sched/engine.h"

/* Return the CPUs, of at most sixteen, on which no caller copies a single read; at least one.
 * Under the lock. */
unsigned single_free_cpus(const struct engine *e);

#endif
