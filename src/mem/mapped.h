/* SPDX-License-Identifier: MIT */
#ifndef PST_MAPPED_H
#define PST_MAPPED_H

#include "base/base.h"

struct mapped {
	uint64_t addr;
	uint64_t len; /* at least 1; addr + len is at most UINT64_MAX */
};

/*
 * May the CPU read or write each byte of some ranges, as the process is mapped now?  No page is
 * touched, so none is faulted in.  The cost depends on the number of mappings, not on the length.
 * Kernels from 6.11 on are asked for those of the ranges, by one call each: 27 us for the first.
 * Older ones print all of the process once: 4.5 us for each mapping.
 * @list: by address; ranges may overlap
 *
 * Return: 0, also where /proc cannot be read and the range is mapped at all; -EFAULT with a
 * sentence.
 */
int mapped_check(const struct mapped *list, unsigned nr);

#endif
