/* SPDX-License-Identifier: MIT */
/*
 * Is a file warm: did the page cache hold the bytes that were asked of it last (cached.c)?
 */
#ifndef PST_WARM_H
#define PST_WARM_H

#include <stdatomic.h>
#include <stdbool.h>

#include "file/file.h"

#define WARM_SURE 8

/* Were there so many hits in a row that nobody asks any more? */
static inline bool cached_is_warm(const struct file *file)
{
	int hits = atomic_load_explicit(&file->warm, memory_order_relaxed) & 0xff; /* cached.c */

	return hits >= WARM_SURE;
}

#endif
