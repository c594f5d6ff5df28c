/* SPDX-License-Identifier: MIT */
/* A file is warm if the page cache held the bytes of its last reads (cached.c). */
#ifndef PST_WARM_H
#define PST_WARM_H

#include <stdatomic.h>
#include <stdbool.h>

#include "file/file.h"

#define WARM_SURE 8

/* Return true after WARM_SURE consecutive hits: then file_resident() is not called any more. */
static inline bool cached_is_warm(const struct file *file)
{
	int hits = atomic_load_explicit(&file->warm, memory_order_relaxed) & 0xff; /* the lowest
										    * byte: see
										    * struct warm in
										    * cached.c */

	return hits >= WARM_SURE;
}

#endif
