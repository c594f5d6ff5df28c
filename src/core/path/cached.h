/* SPDX-License-Identifier: MIT */
/*
 * The path CACHED, as others know it (cached.c).
 */
#ifndef PST_CACHED_H
#define PST_CACHED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "file/file.h"

#define WARM_SURE 8

struct req;

/* Is CACHED worth trying for these bytes? */
bool cached_worth(const struct req *r, uint64_t off, uint64_t len);

/* Were there so many hits in a row that nobody asks any more? */
static inline bool cached_is_warm(const struct file *file)
{
	int hits = atomic_load_explicit(&file->warm, memory_order_relaxed) & 0xff; /* cached.c */

	return hits >= WARM_SURE;
}

#endif
