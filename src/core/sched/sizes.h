/* SPDX-License-Identifier: MIT */
/*
 * The number of an engine's workers and the size of its slots (sizes.c).
 */
#ifndef PST_SIZES_H
#define PST_SIZES_H

#include "base/base.h"

/* Return the number of workers, and in *ret_usual how many take requests of all kinds. */
unsigned engine_width(unsigned *ret_usual);
uint64_t engine_slot_size(void);

#endif
