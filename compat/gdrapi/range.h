/* SPDX-License-Identifier: MIT */
/*
 * The bytes that a pin covers.
 *
 * gdrcopy's clients round a range to GPU pages of 64 KiB, at its end, its beginning, or both, so a
 * range mostly exceeds its allocation.  gdrcopy's module pins whole GPU pages, including bytes of
 * other allocations.  Here, a range ends where its allocation does.
 */
#ifndef GDRAPI_RANGE_H
#define GDRAPI_RANGE_H

#include <stddef.h>
#include <stdint.h>

struct pst_mem;

struct range {
	struct pst_mem *mem;  /* the existing part of the range */
	uint64_t va;          /* address as requested */
	uint64_t mapped_size; /* bytes in whole GPU pages from va */
	uint64_t lead;        /* bytes from va to the first byte of mem */
	uint64_t len;         /* bytes of mem */
};

/* Find the range.  Return 0, or a positive errno after logging the cause.  Release it with
 * range_done(). */
int range_find(uint64_t addr, uint64_t size, struct range *ret);
void range_done(struct range *r);

#endif
