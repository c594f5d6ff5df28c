/* SPDX-License-Identifier: MIT */
#ifndef PST_MAPPED_H
#define PST_MAPPED_H

#include "base/base.h"

/*
 * May the CPU read or write each byte of a range, as the process is mapped now?  No page is
 * touched, so none is faulted in, and the length does not matter: what is looked at are mappings.
 * Kernels from 6.11 on are asked for those of the range, by one call each: 27 us for one.  Older
 * ones print all of the process: 4.5 us for each.
 *
 * Return: 0, also where /proc cannot be read and the range is mapped at all; -EFAULT with a
 * sentence.
 */
int mapped_check(uint64_t addr, uint64_t len);

#endif
