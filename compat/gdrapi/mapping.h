/* SPDX-License-Identifier: MIT */
/* Windows on pinned ranges.  Calls return 0 or a positive errno. */
#ifndef GDRAPI_MAPPING_H
#define GDRAPI_MAPPING_H

#include "pin.h"

/* Map size bytes from the range's va, with a caching (enum pst_caching; 0: any).  The pin must be
 * locked and not mapped. */
int mapping_begin(struct pin *p, uint64_t size, unsigned caching);
/* Unmap, after waiting for copies.  The pin must be locked and mapped. */
void mapping_end(struct pin *p);

/* Copy; callable from any thread, without a lock.  ptr is any address in the mapping. */
int mapping_store(unsigned long handle, void *ptr, const void *src, size_t size);
int mapping_load(unsigned long handle, void *dst, const void *ptr, size_t size);

/* Return the handle whose mapping contains the byte, or 0. */
unsigned long mapping_find(const void *ptr);

#endif
