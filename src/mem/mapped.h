/* SPDX-License-Identifier: MIT */
#ifndef PST_MAPPED_H
#define PST_MAPPED_H

#include "base/base.h"

struct mapped {
	uint64_t addr;
	uint64_t len; /* at least 1; addr + len is at most UINT64_MAX */
};

/*
 * Check that the CPU may read or write each byte of some ranges, as the process is mapped now.  No
 * page is touched, so none is faulted in.  The cost depends on the number of mappings, not on the
 * length.  Kernels since 6.11 are asked for the mappings of the ranges, by one call each: 27 us for
 * the first.  Older kernels print all mappings of the process once: 4.5 us for each.
 * @list: sorted by address; ranges may overlap
 *
 * Return: 0; -EFAULT with a sentence.  If /proc cannot be read, 0 if the range is mapped at all.
 */
int mapped_check(const struct mapped *list, unsigned nr);

#endif
