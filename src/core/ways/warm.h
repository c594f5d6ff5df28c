/* SPDX-License-Identifier: MIT */
/*
 * Whether a file is warm: the page cache held the bytes of the last reads (cached.c).
 */
#ifndef PST_WARM_H
#define PST_WARM_H

#include <stdatomic.h>
#include <stdbool.h>

#include "file/file.h"

#define WARM_SURE 8

/* Return true after so many consecutive hits that nobody asks any more. */
static inline bool cached_is_warm(const struct file *file)
{
	int hits = atomic_load_explicit(&file->warm, memory_order_relaxed) & 0xff; /* cached.c */

	return hits >= WARM_SURE;
}

#endif
