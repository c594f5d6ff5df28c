/* SPDX-License-Identifier: MIT */
/*
 * Callers that copy a read by themselves (single.c); for ways, in way.h.
 */
#ifndef PST_SINGLE_H
#define PST_SINGLE_H

#include "core/sched/engine.h"

/* Under the lock: CPUs, of sixteen at most, on which no caller copies a single read; at least
 * one. */
unsigned single_free_cpus(const struct engine *e);

#endif
