/* SPDX-License-Identifier: MIT */
#ifndef STREAMER_BLOCK_H
#define STREAMER_BLOCK_H

#include "args.h"
#include "code.h"

/*
 * Get the alignment in bytes that O_DIRECT needs for all files.  Return a code; *ret is 0 only with
 * RUNAI_INVALID.
 */
int block_size(const struct strings *paths, size_t *ret);

#endif
