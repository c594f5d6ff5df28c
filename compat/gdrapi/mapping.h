/* SPDX-License-Identifier: MIT */
/*
 * Windows on pinned ranges.  Results are 0 or a positive errno.
 */
#ifndef GDRAPI_MAPPING_H
#define GDRAPI_MAPPING_H

#include "pin.h"

/* Map size bytes from the range's va, of a caching (enum pst_caching, 0: any).  The pin is
 * locked and not mapped. */
int mapping_begin(struct pin *p, uint64_t size, unsigned caching);
/* Waits for copies.  The pin is locked and mapped. */
void mapping_end(struct pin *p);

/* Any thread, without a lock.  ptr may be any byte of the mapping. */
int mapping_store(unsigned long handle, void *ptr, const void *src, size_t size);
int mapping_load(unsigned long handle, void *dst, const void *ptr, size_t size);

/* The handle in whose mapping a byte is, or 0. */
unsigned long mapping_find(const void *ptr);

#endif
