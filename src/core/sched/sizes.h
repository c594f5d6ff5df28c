/* SPDX-License-Identifier: MIT */
/*
 * How many workers an engine has, and how large its slots are (sizes.c).
 */
#ifndef PST_SIZES_H
#define PST_SIZES_H

#include "base/base.h"

/* How many workers an engine has, and how many of them take requests of all kinds. */
unsigned engine_width(unsigned *ret_usual);
uint64_t engine_slot_size(void);

#endif
