/* SPDX-License-Identifier: MIT */
/*
 * Which bytes a pin is for.
 *
 * gdrcopy's clients round a range to GPU pages of 64 KiB: at the end, at the beginning, or both, so
 * that it mostly reaches past its allocation.  The module pins whole pages of the GPU, also those
 * of other allocations.  Here a range ends where its allocation does.
 */
#ifndef GDRAPI_RANGE_H
#define GDRAPI_RANGE_H

#include <stddef.h>
#include <stdint.h>

struct pst_mem;

struct range {
	struct pst_mem *mem;  /* what is there of it */
	uint64_t va;          /* as it was asked for */
	uint64_t mapped_size; /* in whole GPU pages from there */
	uint64_t lead;        /* bytes from va to the first of mem */
	uint64_t len;         /* of mem */
};

/* 0 or a positive errno, with the cause in the log.  range_done() is its end. */
int range_find(uint64_t addr, uint64_t size, struct range *ret);
void range_done(struct range *r);

#endif
