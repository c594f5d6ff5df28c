/* SPDX-License-Identifier: MIT */
/*
 * Bytes that anyone can recompute from a seed and a position: every 8 of them differ from
 * all others near by, so that a piece that went to the wrong place is noticed.
 */
#ifndef CLI_PATTERN_H
#define CLI_PATTERN_H

#include <stddef.h>
#include <stdint.h>

/* Fill with the bytes at off..off+len of the pattern with this seed. */
void pattern_fill(void *buf, uint64_t seed, uint64_t off, size_t len);

/* Where buf first differs from it; len when nowhere. */
size_t pattern_differs(const void *buf, uint64_t seed, uint64_t off, size_t len);

#endif
