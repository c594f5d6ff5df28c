/* SPDX-License-Identifier: MIT */
/*
 * The path CACHED, as other files use it (cached.c).
 */
#ifndef PST_CACHED_H
#define PST_CACHED_H

#include <stdbool.h>
#include <stdint.h>

struct req;

/* Return true if CACHED is worth trying for these bytes. */
bool cached_worth(const struct req *r, uint64_t off, uint64_t len);

#endif
