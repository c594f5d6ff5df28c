/* SPDX-License-Identifier: MIT */
/*
 * Bytes that can be recomputed from a seed and a position.  Every 8 bytes differ from all others
 * nearby, so that misplaced pieces are detected.
 */
#ifndef CLI_PATTERN_H
#define CLI_PATTERN_H

#include <stddef.h>
#include <stdint.h>

/* Fill with bytes off..off+len of the seed's pattern. */
void pattern_fill(void *buf, uint64_t seed, uint64_t off, size_t len);

/* Return the first offset in buf that differs from the pattern; len if none does. */
size_t pattern_differs(const void *buf, uint64_t seed, uint64_t off, size_t len);

#endif
