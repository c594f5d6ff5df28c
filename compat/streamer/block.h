/* SPDX-License-Identifier: MIT */
#ifndef STREAMER_BLOCK_H
#define STREAMER_BLOCK_H

#include "args.h"
#include "code.h"

/*
 * The alignment that O_DIRECT asks of these files: the result is a code, and *ret never 0 unless
 * that is RUNAI_INVALID.
 */
int block_size(const struct strings *paths, size_t *ret);

#endif
