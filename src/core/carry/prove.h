/* SPDX-License-Identifier: MIT */
/*
 * Proof of a device's copies (prove.c).
 */
#ifndef PST_PROVE_H
#define PST_PROVE_H

#include "core/sched/engine.h"

/* Prove the device's copies with a pattern. */
int engine_prove(struct engine *e);

#endif
