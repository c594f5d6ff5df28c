/* SPDX-License-Identifier: MIT */
/*
 * Callers that copy a read by themselves (lone.c); for ways, in way.h.
 */
#ifndef PST_LONE_H
#define PST_LONE_H

#include "core/sched/engine.h"

/* Under the lock: CPUs, of sixteen at most, on which no caller copies a lone read; at least
 * one. */
unsigned lone_free_cpus(const struct engine *e);

#endif
